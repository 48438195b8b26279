"""The one part of the lab that talks to the session. Its methods run on the worker's thread."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

from speclab.analysis.compare import ComparedRun, Comparison, compare
from speclab.analysis.routing import Regret, regret
from speclab.drafters import setting_names
from speclab.errors import CancelledError, SettingsError
from speclab.lab.choices import Choices
from speclab.lab.loading import Loaded
from speclab.lab.runs import Runs
from speclab.lab.state import Frame, LabState
from speclab.lab.written import written_prompt, written_tokens
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.records import Step, Trace
from speclab.views.drafts import regret_words
from speclab.views.lookup import key_at
from speclab.views.summary import plural, summary

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair
    from speclab.trace.records import Lookup

REDRAW_SECONDS = 0.4
"""During a run the pictures follow at this pace: a browser that falls behind hears Stop late."""


class Player:
    """Loads models, starts, steps, runs and forks the session, and shows in the state what came of it.

    Args:
        state: where everything is shown.
        cancelled, stopped: as those of a `Worker`.
        pair: models given by the caller; else they are loaded.
    """

    def __init__(self, state: LabState, cancelled: Event, stopped: Event, pair: ModelPair | None) -> None:
        self.session: Session | None = None
        self.runs = Runs()
        self.beside: Session | None = None  # at work besides the session shown: Stop ends it too
        self.models = Loaded(pair, stopped, self._say)
        self._state, self._cancelled = state, cancelled

    def start(self, choices: Choices) -> None:
        """A new session of these choices, before its first iteration."""
        pair = self.models.load(choices.models)
        from speclab.engine.session import Session

        prompt = written_prompt(pair, choices.prompt)
        self.session = Session(pair, choices.strategy, prompt, **choices.settings)
        self.runs.begin(self.session, choices)
        self._take(self.session, choices)
        self._show(f"{len(self.session.prompt_ids)} prompt tokens are in the caches. Step decodes the first iteration.")

    def step(self, choices: Choices) -> Step | None:
        """One iteration on; the first starts the session."""
        session = self._live(choices)
        if self._cancelled.is_set():
            raise CancelledError("Stopped before the iteration began.")
        try:
            return session.step()
        finally:  # where it fails, what was decoded before is shown all the same
            self._show()

    def run(self, choices: Choices, until: Condition | None) -> Step | None:
        """Iterations until the condition holds, the text ends, or it is cancelled."""
        until = compiled(until, setting_names())  # refused before any model is loaded
        session = self._live(choices)
        holds = stateful(until, session.steps[session.cursor - 1] if session.cursor else None)
        drawn, stopped = monotonic(), ""

        def each(step: Step) -> bool:
            nonlocal drawn, stopped
            if holds(step):
                stopped = "Found. "
                return True
            if monotonic() - drawn > REDRAW_SECONDS:
                self._show()
                drawn = monotonic()
            return self._cancelled.is_set()

        try:
            if not self._cancelled.is_set():
                session.run(until=each)
            if self._cancelled.is_set():
                stopped = "Stopped. "
            elif session.done and not stopped:
                stopped = f"Ended ({session.finished}). "
        finally:  # where it fails, what was decoded before is shown all the same
            self._show(stopped=stopped)
        return self._state.step

    def goto(self, index: int) -> Step | None:
        """Another iteration of the run shown; no model call."""
        count = len(self._state.trace.steps)
        if not 0 <= index <= count:
            raise SettingsError(f"There is no iteration {index}: {count} are decoded; Step or Run decodes more.")
        if self._state.frame.live and self.session is not None:
            self.session.goto(index)
        frame = self._state.frame.at(index)
        self._state.tell(status=_told(frame.step), frame=frame)
        return self._state.step

    def open(self, trace: Trace, name: str) -> None:
        """Shows a recorded run; a session under way stays, and Step goes on with it."""
        self._state.comparison = self._state.regret = None
        kept = {"pinned": self._state.pinned, "beside": self._state.frame.beside}
        ran = f"{trace.settings.get('strategy', 'a strategy')} on {trace.models.get('target', 'other models')}"
        said = f"Opened {name}: {plural(len(trace.steps), 'iteration')} of {ran}, recorded."
        frame = Frame(trace, min(1, len(trace.steps)), **kept)
        self._state.tell(status=said, frame=frame, done=0, total=0)

    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Goes on from the cursor with other settings, in a session of its own."""
        if self.session is None or not self._state.frame.live:
            raise SettingsError(
                "A recorded run holds no models, and a fork needs them: Step decodes with the models chosen above, "
                "and what is decoded there can be forked."
            )
        session = self.session.fork(strategy=strategy, **settings)
        settings = session.settings.model_dump()
        applied = replace(self._state.applied, strategy=session.strategy, settings=settings)
        self.runs.fork(session, applied)
        self._take(session, applied)
        self._show(f"Forked at iteration {session.cursor}. ")
        return session

    def switch(self, number: int) -> Session:
        """Goes on with another run, at the iteration where it was left; no model call."""
        run = self.runs.switch(number)
        self._take(run.session, run.applied)
        self._show(stopped=f"Switched to run {number}. ")
        return run.session

    def apply(self, choices: Choices) -> None:
        """Brings about what has changed: by a fork at the cursor where that is enough, else by a new session."""
        applied = self._state.applied
        if self._state.frame.live and applied is not None and choices.forks_from(applied):
            self.fork(choices.strategy, **choices.settings)
        else:
            self.start(choices)

    def lookup(self, frame: Frame, written: str) -> Lookup | None:
        """What the drafter had learned, at the moment shown, of the tokens written, else of the node selected."""
        session = self.session
        if session is None or not frame.live:
            return None
        keys = written_tokens(session.pair, written) if written else key_at(frame.trace, frame.cursor, frame.selected)
        at = frame.cursor if frame.moment.reached("adapt") else frame.cursor - 1
        return session.lookup(keys[-1], keys[-2] if len(keys) > 1 else None, at)

    def measure(self) -> Comparison:
        """Decodes the text shown with each baseline of the strategy; tokens per iteration of all."""
        session = self.session
        if session is None or not session.cursor or not self._state.frame.live:
            raise SettingsError("No iteration is decoded yet: Step or Run, then measure the baselines on that text.")
        baselines = {type(strategy).__name__: strategy for strategy in session.strategy.baselines()}
        if not baselines:
            raise SettingsError("This strategy names no baselines: there is nothing to measure it against.")
        own = ComparedRun("this run", replace(session.trace, steps=session.steps[: session.cursor]))
        settings = session.settings.model_dump() | {"max_new_tokens": len(own.token_ids), "check": False}
        watch = lambda *_: self._cancelled.is_set()  # noqa: E731
        found = compare(session.pair, baselines, session.prompt_ids, watch=watch, **settings)
        if found.stopped:
            raise CancelledError("Stopped before the baselines were measured.")
        self._state.comparison = made = Comparison((own, *found.runs))
        tokens = len(own.token_ids)
        self._state.status = f"Synergy {made.synergy:.2f} over {tokens} tokens, against {made.best_baseline.name}."
        return made

    def regret(self) -> Regret:
        """Both trees of the iteration shown, verified, each in a fork of its own."""
        if self.session is None or not self._state.frame.live or not self._state.cursor:
            raise SettingsError("No iteration of a live run is shown: Step decodes one, then verify its trees.")
        self._state.regret = found = regret(self.session, self._state.cursor - 1)
        assert self._state.step is not None
        self._state.status = regret_words(self._state.step, found)
        return found

    def interrupt(self) -> None:
        """Ends the iteration under way, from any thread; everything before it stands."""
        for session in (self.session, self.beside):
            if session is not None:
                session.cancel()

    def _say(self, status: str) -> None:
        self._state.status = status

    def _live(self, choices: Choices) -> Session:
        if self.session is None:
            self.start(choices)
        assert self.session is not None
        return self.session

    def _take(self, session: Session, applied: Choices) -> None:
        self.session, state = session, self._state
        state.applied, state.comparison, state.regret = applied, None, None
        state.forks = self.runs.told()

    def _show(self, status: str = "", stopped: str = "") -> None:
        session = self.session
        assert session is not None
        pinned, beside = self._state.pinned, self.runs.refreshed(self._state.frame.beside)
        frame = Frame(session.trace, session.cursor, pinned=pinned, beside=beside, live=True)
        self._state.tell(
            status=status or stopped + _told(frame.step),
            frame=frame,
            done=len(session.token_ids),
            total=session.settings.max_new_tokens,
        )


def _told(step: Step | None) -> str:
    return summary(step) if step else "Before the first iteration: the prompt alone."
