"""The one part of the lab that talks to the session. Its methods run on the worker's thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

from speclab.analysis.compare import ComparedRun, Comparison
from speclab.analysis.routing import Regret, regret
from speclab.drafters import setting_names
from speclab.errors import CancelledError, PromptError, SettingsError
from speclab.files import byte_count
from speclab.lab.actions import action
from speclab.lab.models import LoadedModels
from speclab.lab.runs import CURRENT, Comparer, Runs, cache_bytes, named_strategies
from speclab.lab.state import LabConfig, LabState, Prompt
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.files import load_trace
from speclab.trace.records import Step, Trace
from speclab.views.drafter_state import key_at
from speclab.views.explain import plural, position_summary, summary
from speclab.views.export import export_html, save_view
from speclab.views.playback import PHASES, WHOLE, PlaybackPosition, positions
from speclab.views.proposals import regret_words
from speclab.views.registry import Frame

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair
    from speclab.trace.records import Lookup

TRACE, PAGE = "trace", "page"
REDRAW_SECONDS = 0.4
"""During a run the pictures follow at this pace: a browser that falls behind hears Stop late."""


class SessionController:
    """Loads models, starts, steps, runs and forks the session, and shows in the state what came of it.

    Args:
        state: where everything is shown.
        cancelled, stopped: as those of a `Worker`.
        pair: models given by the caller; else they are loaded.
        read: reads the configuration form.
        write: shows a configuration in it, where another run is switched to.
    """

    def __init__(
        self,
        state: LabState,
        cancelled: Event,
        stopped: Event,
        pair: ModelPair | None,
        read: Callable[[], LabConfig],
        write: Callable[[LabConfig], None],
    ) -> None:
        self.session: Session | None = None
        self.runs = Runs()
        self.other: Session | None = None  # at work besides the session shown: Stop ends it too
        self.models = LoadedModels(pair, stopped, self._say)
        self._state, self._cancelled, self._read, self._write = state, cancelled, read, write

    # Sessions.

    @action("loading", "prepare")
    def prepare(self) -> None:
        """Loads the models that the form names, before the first step asks for them."""
        self.models.load(self._read().models)

    @action("loading", "apply")
    def start(self) -> None:
        """A new session of what the form says, before its first iteration."""
        self._start(self._read())

    @action("loading", "apply")
    def apply(self) -> None:
        """Brings about what the form says: by a fork at the cursor where that is enough, else by a new session."""
        config, applied = self._read(), self._state.applied
        if self._state.frame.live and applied is not None and config.forks_from(applied):
            self.fork(config.strategy, **config.settings)
        else:
            self._start(config)

    @action("forking", "apply")
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
        self._take(session, applied, f"Forked at iteration {session.cursor}. ")
        return session

    @action("decoding")
    def step(self) -> Step | None:
        """One iteration on; the first starts the session."""
        session = self._live()
        if self._cancelled.is_set():
            raise CancelledError("Stopped before the iteration began.")
        try:
            return session.step()
        finally:  # where it fails, what was decoded before is shown all the same
            self._show()

    @action("decoding", yields=True)
    def run(self, until: Condition | None = None) -> Step | None:
        """Iterations until the condition holds, the text ends, or it is cancelled."""
        condition = compiled(until, setting_names())  # refused before any model is loaded
        session = self._live()
        holds = stateful(condition, session.steps[session.cursor - 1] if session.cursor else None)
        drawn, reason = monotonic(), ""

        def each(step: Step) -> bool:
            nonlocal drawn, reason
            if holds(step):
                reason = "Found. "
                return True
            if monotonic() - drawn > REDRAW_SECONDS:
                self._show()
                drawn = monotonic()
            return self._cancelled.is_set()

        try:
            if not self._cancelled.is_set():
                session.run(until=each)
            if self._cancelled.is_set():
                reason = "Stopped. "
            elif session.done and not reason:
                reason = f"Ended ({session.finished}). "
        finally:  # where it fails, what was decoded before is shown all the same
            self._show(reason)
        return self._state.step

    def interrupt(self) -> None:
        """Ends the iteration under way, from any thread; everything before it stands."""
        for session in (self.session, self.other):
            if session is not None:
                session.cancel()

    # Moving through what is decoded: no model call.

    @action(key="goto")
    def goto(self, index: int) -> Step | None:
        """The text after `index` iterations."""
        count = len(self._state.trace.steps)
        if not 0 <= index <= count:
            raise SettingsError(f"There is no iteration {index}: {count} are decoded; Step or Run decodes more.")
        if self._state.frame.live and self.session is not None:
            self.session.goto(index)
        frame = self._state.frame.at(index)
        self._state.update(status=_describe(frame.step), frame=frame)
        return self._state.step

    @action(key="goto")
    def last(self) -> Step | None:
        """The newest iteration decoded."""
        return self.goto(len(self._state.trace.steps))

    @action()
    def back(self, until: Condition | None = None) -> Step | None:
        """One iteration back, or back to the last one before it for which the condition holds."""
        before = max(self._state.cursor - 1, 0)
        if until is None:
            return self.goto(before)
        # Asked from the beginning on: an expression may look at the step before.
        holds = stateful(compiled(until, setting_names()), None)
        found = [i + 1 for i, step in enumerate(self._state.trace.steps[:before]) if holds(step)]
        if found:
            return self.goto(found[-1])
        self._state.status = "No earlier iteration meets the condition."
        return None

    @action(key="phase")
    def phase(self, name: str, level: int | None = None) -> None:
        """The iteration as it stood when this phase was over, or after a level of drafting or a decision of it."""
        if name not in PHASES:
            raise SettingsError(f"There is no phase {name!r}: choose one of {', '.join(PHASES)}.")
        self._show_position(PlaybackPosition(name, level))

    @action()
    def phase_by(self, count: int) -> None:
        """The next (1) or the previous (-1) position; past the ends, of the neighbouring iteration."""
        state = self._state
        places = positions(state.step) if state.step else ()
        at = _index(places, state.position) + count
        if 0 <= at < len(places):
            self._show_position(places[at])
        elif not 0 <= state.cursor + count <= len(state.trace.steps):
            end = "This is the end of what is decoded: Step goes on."
            state.status = end if count > 0 else "This is the beginning."
        else:
            self.goto(state.cursor + count)
            if count > 0 and state.step:
                self._show_position(positions(state.step)[0])

    @action(key="select")
    def select(self, node: int | None) -> None:
        """Selects a node in every view; None selects none."""
        step = self._state.step
        if node is not None and (step is None or not 0 <= node < len(step.tree)):
            count = len(step.tree) if step else 0
            raise SettingsError(f"There is no node {node}: this tree has {count}, numbered from 0.")
        self._state.change_frame(selected=node)

    @action(key="resize")
    def resize(self, room: Mapping[str, Any]) -> None:
        """Lays the stage out for these pixels."""
        sizes = {name: int(room[name]) for name in ("tree", "mask", "height") if 0 < room.get(name, 0) < 10_000}
        self._state.change_frame(room=replace(self._state.frame.room, **sizes))

    @action()
    def pin(self) -> None:
        """Keeps the iteration shown beside those to come; once more lets it go."""
        state = self._state
        state.change_frame(pinned=None if state.pinned is state.step else state.step)

    # Runs and forks.

    @action(key="switch")
    def switch(self, number: int) -> Session:
        """Goes on with another run, at the iteration where it was left; no model call."""
        self._write(self.runs.find(number).applied)
        run = self.runs.switch(number)
        self._take(run.session, run.applied, f"Switched to run {number}. ")
        return run.session

    @action()
    def keep_beside(self, number: int) -> None:
        """Keeps a whole run beside the one shown, at the same cursor; once more lets it go."""
        beside = self._state.frame.beside
        again = beside is not None and beside.number == number
        self._state.change_frame(beside=None if again else self.runs.beside(number))

    @action()
    def drop(self, number: int) -> None:
        """Lets a run go that is not shown, its caches with it."""
        dropped, beside = self.runs.drop(number), self._state.frame.beside
        if beside is not None and beside.number == number:
            self._state.change_frame(beside=None)
        self._state.forks = self.runs.describe()
        freed = byte_count(cache_bytes(dropped.session.pair))
        self._state.status = f"Dropped run {number}, {dropped.name}: {freed} of KV caches."

    @action("comparing", yields=True)
    def compare(self, strategies: Sequence[Any], **settings: Any) -> Comparison:
        """Several strategies on the prompt of the form, one after another; `settings` change the session's."""
        config = self._read()
        given = named_strategies([config.strategy if one == CURRENT else one for one in strategies])
        if not given:
            raise SettingsError("No strategy is chosen: mark at least one to run.")
        pair = self.models.load(config.models)
        comparer = Comparer(self._state, self._cancelled, given, {**config.settings, **settings})
        try:
            return comparer.run(pair, prompt_ids(pair, config.prompt), self._at_work)
        finally:
            self.other = self._state.progress = None

    @action("measuring the baselines", yields=True)
    def measure(self) -> Comparison:
        """Decodes the text shown with each baseline of the strategy; tokens per iteration of all."""
        session = self.session
        if session is None or not session.cursor or not self._state.frame.live:
            raise SettingsError("No iteration is decoded yet: Step or Run, then measure the baselines on that text.")
        baselines = {type(strategy).__name__: strategy for strategy in session.strategy.baselines()}
        if not baselines:
            raise SettingsError("This strategy names no baselines: there is nothing to measure it against.")
        from speclab.analysis.compare import compare

        own = ComparedRun("this run", replace(session.trace, steps=session.steps[: session.cursor]))
        settings = session.settings.model_dump() | {"max_new_tokens": len(own.token_ids), "check": False}
        watch = lambda *_: self._cancelled.is_set()  # noqa: E731
        found = compare(session.pair, baselines, session.prompt_ids, watch=watch, **settings)
        if found.stopped:
            raise CancelledError("Stopped before the baselines were measured.")
        made = Comparison((own, *found.runs))
        self._state.change_frame(comparison=made)
        tokens = len(own.token_ids)
        self._state.status = f"Synergy {made.synergy:.2f} over {tokens} tokens, against {made.best_baseline.name}."
        return made

    @action("verifying both trees", "regret")
    def verify_all(self) -> Regret:
        """Both trees of the iteration shown, verified, each in a fork of its own."""
        if self.session is None or not self._state.frame.live or not self._state.cursor:
            raise SettingsError("No iteration of a live run is shown: Step decodes one, then verify its trees.")
        found = regret(self.session, self._state.cursor - 1)
        self._state.change_frame(regret=found)
        assert self._state.step is not None
        self._state.status = regret_words(self._state.step, found)
        return found

    @property
    def has_baselines(self) -> bool:
        """Whether the session's strategy names any."""
        return self.session is not None and bool(self.session.strategy.baselines())

    def lookup(self, frame: Frame, written: str) -> Lookup | None:
        """What the drafter had learned, at the position shown, of the tokens written, else of the node selected."""
        session = self.session
        if session is None or not frame.live:
            return None
        keys = token_ids(session.pair, written) if written else key_at(frame.trace, frame.cursor, frame.selected)
        at = frame.cursor if frame.position.reached("adapt") else frame.cursor - 1
        return session.lookup(keys[-1], keys[-2] if len(keys) > 1 else None, at)

    # Files.

    @action("saving")
    def save(self, what: str, path: str | os.PathLike[str]) -> Path:
        """Writes the run (`what` is "trace" or "page"), the comparison ("table"), or a view of the iteration shown."""
        if not str(path):
            raise SettingsError("No path is named: write one, such as run.json.gz.")
        written = self._written(what, path)
        self._state.status = f"Saved {written}."
        return written

    def _written(self, what: str, path: str | os.PathLike[str]) -> Path:
        frame, compared = self._state.frame, self._state.compared
        if what == TRACE:
            return frame.trace.save(path)  # type: ignore[no-any-return]
        if what == PAGE:
            return export_html(frame.trace, path, frame.cursor, frame.beside)
        if what != "table":
            return save_view(frame.trace, frame.cursor, what, path, frame.selected)
        if compared is None:
            raise SettingsError("Nothing is compared yet: Compare runs the strategies, then their table can be saved.")
        return compared.save(path)  # type: ignore[no-any-return]

    @action("opening")
    def open_trace(self, source: str | os.PathLike[str] | Callable[[], Trace], name: str = "") -> None:
        """Shows a recorded run, from a path or from what reads it; Step goes on with the session under way."""
        trace = source() if callable(source) else load_trace(source)
        ran = f"{trace.settings.get('strategy', 'a strategy')} on {trace.models.get('target', 'other models')}"
        words = f"Opened {name or source}: {plural(len(trace.steps), 'iteration')} of {ran}, recorded."
        kept = self._state.frame
        frame = Frame(trace, min(1, len(trace.steps)), pinned=kept.pinned, beside=kept.beside, room=kept.room)
        self._state.update(status=words, frame=frame, done=0, total=0)

    # What the others share.

    def _say(self, status: str) -> None:
        self._state.status = status

    def _at_work(self, session: Session) -> None:
        self.other = session

    def _start(self, config: LabConfig) -> None:
        pair = self.models.load(config.models)
        from speclab.engine.session import Session

        self.session = Session(pair, config.strategy, prompt_ids(pair, config.prompt), **config.settings)
        self.runs.begin(self.session, config)
        count = len(self.session.prompt_ids)
        words = f"{count} prompt tokens are in the caches. Step decodes the first iteration."
        self._take(self.session, config, status=words)

    def _live(self) -> Session:
        if self.session is None:
            self._start(self._read())
        assert self.session is not None
        return self.session

    def _take(self, session: Session, applied: LabConfig, reason: str = "", status: str = "") -> None:
        """Goes on with this session; what was measured of the former says nothing of it."""
        self.session, self._state.applied, self._state.forks = session, applied, self.runs.describe()
        self._show(reason, status, comparison=None, regret=None)

    def _show_position(self, position: PlaybackPosition) -> None:
        step = self._state.step
        if step is None:
            raise SettingsError("No iteration is shown: Step first, then look at its phases.")
        words = summary(step) if position == WHOLE else position_summary(step, position)
        self._state.update(status=words, frame=replace(self._state.frame, position=position))

    def _show(self, reason: str = "", status: str = "", **changes: Any) -> None:
        session, kept = self.session, self._state.frame
        assert session is not None
        changes |= {"beside": self.runs.refreshed(kept.beside), "live": True}
        frame = replace(kept.at(session.cursor, session.trace), **changes)
        self._state.update(
            status=status or reason + _describe(frame.step),
            frame=frame,
            done=len(session.token_ids),
            total=session.settings.max_new_tokens,
        )


def _describe(step: Step | None) -> str:
    return summary(step) if step else "Before the first iteration: the prompt alone."


def _index(places: tuple[PlaybackPosition, ...], position: PlaybackPosition) -> int:
    """Where a position is among all; one whose phase is over is the phase's last."""
    same = [i for i, place in enumerate(places) if place.phase == position.phase]
    exact = [i for i in same if places[i] == position]
    return (exact or same or [-1])[-1]


def token_ids(pair: ModelPair, written: str) -> list[int]:
    """Ids of a text as the views show it (`␣the`), or those written as #17 #4."""
    words = written.replace("#", " ").replace(",", " ").split()
    if all(word.isdecimal() for word in words) and words and ("#" in written or pair.tokenizer is None):
        return [int(word) for word in words]
    if pair.tokenizer is None:
        raise PromptError("This pair has no tokenizer: write token ids, such as #17.")
    text = written.replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t")
    return list(pair.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]) or pair.encode("")


def prompt_ids(pair: ModelPair, prompt: Prompt) -> Prompt:
    """Text as it is; for a pair without a tokenizer, the ids that are written in it."""
    if pair.tokenizer is not None or not isinstance(prompt, str):
        return prompt
    words = prompt.replace(",", " ").split()
    if not all(word.isdecimal() for word in words):
        raise PromptError("This pair has no tokenizer: write the prompt as token ids, such as 5 17 3.")
    return [int(word) for word in words]
