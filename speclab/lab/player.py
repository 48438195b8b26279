"""The one part of the lab that talks to the session. Its methods run on the worker's thread."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

from speclab.breakpoints import Until
from speclab.errors import CancelledError, PromptError, SettingsError
from speclab.lab.choices import Choices, Models, Prompt
from speclab.lab.state import Frame, LabState
from speclab.trace import Step
from speclab.views.summary import summary

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.models.pair import ModelPair
    from speclab.session import Session

REDRAW_SECONDS = 0.4
"""During a run the pictures follow at this pace: a browser that falls behind hears Stop late."""


class Player:
    """Loads models, starts, steps, runs and forks the session, and shows in the state what came of it.

    Args:
        state: where everything is shown.
        cancelled: set when what runs should end.
        pair: models given by the caller; else `load` finds them.
    """

    def __init__(self, state: LabState, cancelled: Event, pair: ModelPair | None) -> None:
        self.session: Session | None = None
        self.pair = pair
        self._given = pair
        self._loaded: Models | None = None
        self._state, self._cancelled = state, cancelled

    def load(self, models: Models | None) -> ModelPair:
        """The pair of this choice; loaded once."""
        if models is None and self._given is not None:
            self.pair, self._loaded = self._given, None
        elif self.pair is None or self.pair is self._given or models != self._loaded:
            from speclab.models.pair import load_pair

            wanted = models or Models()
            self._state.status = f"Loading {wanted.target or wanted.name}…"
            self.pair = load_pair(**wanted.arguments())
            self._loaded = models
        assert self.pair is not None
        return self.pair

    def start(self, choices: Choices) -> None:
        """A new session of these choices, before its first iteration."""
        from speclab.session import Session

        pair = self.load(choices.models)
        prompt = _prompt(pair, choices.prompt)
        self.session = Session(pair, choices.strategy, prompt, **choices.settings)
        self._state.applied = choices
        self._show(f"{len(self.session.prompt_ids)} prompt tokens are in the caches. Step decodes the first iteration.")

    def step(self, choices: Choices) -> Step | None:
        """One iteration on; the first starts the session."""
        session = self._live(choices)
        if self._cancelled.is_set():
            raise CancelledError("Stopped before the iteration began.")
        step = session.step()
        self._show()
        return step

    def run(self, choices: Choices, until: Until | None) -> Step | None:
        """Iterations until the condition holds, the text ends, or it is cancelled."""
        session = self._live(choices)
        drawn, stopped = monotonic(), ""

        def each(step: Step) -> bool:
            nonlocal drawn, stopped
            if until is not None and until(step):
                stopped = "Found. "
                return True
            if monotonic() - drawn > REDRAW_SECONDS:
                self._show()
                drawn = monotonic()
            return self._cancelled.is_set()

        if not self._cancelled.is_set():
            session.run(until=each)
        if self._cancelled.is_set():
            stopped = "Stopped. "
        elif session.done and not stopped:
            stopped = f"Ended ({session.finished}). "
        self._show(stopped=stopped)
        return self._state.step

    def goto(self, index: int) -> Step | None:
        """Another iteration of the run shown; no model call."""
        count = len(self._state.trace.steps)
        if not 0 <= index <= count:
            raise SettingsError(f"There is no iteration {index}: {count} are decoded; Step or Run decodes more.")
        if self._state.frame.live and self.session is not None:
            self.session.goto(index)
        self._state.frame = self._state.frame.at(index)
        self._describe()
        return self._state.step

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Goes on from the cursor with other settings, in a session of its own."""
        if self.session is None:
            raise SettingsError("Nothing is decoded yet: Step first, then fork.")
        self.session = session = self.session.fork(strategy=strategy, **settings)
        applied = self._state.applied
        self._state.applied = replace(applied, strategy=session.strategy, settings=session.settings.model_dump())
        self._show(f"Forked at iteration {self.session.cursor}. ")
        return self.session

    def apply(self, choices: Choices) -> None:
        """Brings about what has changed: by a fork at the cursor where that is enough, else by a new session."""
        applied = self._state.applied
        if self.session is not None and applied is not None and choices.forks_from(applied):
            self.fork(choices.strategy, **choices.settings)
        else:
            self.start(choices)

    def interrupt(self) -> None:
        """Ends the iteration under way, from any thread; everything before it stands."""
        if self.session is not None:
            self.session.cancel()

    def _live(self, choices: Choices) -> Session:
        if self.session is None:
            self.start(choices)
        assert self.session is not None
        return self.session

    def _show(self, status: str = "", stopped: str = "") -> None:
        session = self.session
        assert session is not None
        pinned = self._state.pinned
        self._state.frame = Frame(session.trace, session.cursor, pinned=pinned, live=True)
        self._progress()
        if status:
            self._state.status = status
        else:
            self._describe(stopped)

    def _progress(self) -> None:
        session = self.session
        assert session is not None
        self._state.done, self._state.total = len(session.token_ids), session.settings.max_new_tokens

    def _describe(self, stopped: str = "") -> None:
        step = self._state.step
        self._state.status = stopped + (summary(step) if step else "Before the first iteration: the prompt alone.")


def _prompt(pair: ModelPair, prompt: Prompt) -> Prompt:
    """Text as it is; for a pair without a tokenizer, numbers written in it."""
    if pair.tokenizer is not None or not isinstance(prompt, str):
        return prompt
    words = prompt.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise PromptError("This pair has no tokenizer: write the prompt as token ids, such as 5 17 3.")
    return [int(word) for word in words]
