"""Sessions: started, stepped, run, played, forked, and taken over from a recording. All on the worker's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

from speclab.drafters import setting_names
from speclab.drafters.by_hand import ByHand, TreeEdit
from speclab.errors import CancelledError, SettingsError
from speclab.lab.actions import action
from speclab.lab.models import LoadedModels, prompt_ids
from speclab.lab.navigation import Navigator, begun, counted
from speclab.lab.runs import Runs, differences
from speclab.lab.state import LabConfig, LabState, Prompt, SetBreakpoint
from speclab.prompts import Message, checked_messages, is_conversation
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.records import Step, Trace
from speclab.views.explain import plural, prompt_words, summary
from speclab.views.export import describe
from speclab.views.registry import Frame

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair
    from speclab.tree import DraftTree

REDRAW_SECONDS = 0.4
"""During a run the pictures follow at this pace: a browser that falls behind hears Stop late."""


class Decoder(Navigator):
    """Loads models, starts, steps, runs and forks the session, and shows in the state what came of it.

    A recording is walked through as what is decoded is. Where it ends the models take over, in the same place if it is
    a run of what the form says. What the form says and is not in force is applied before anything is decoded.
    `cancelled`, `stopped`: as those of a `Worker`. `read`, `write`: of the form with the configuration.
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
        super().__init__(state)
        self.runs = Runs()
        self.other: Session | None = None  # at work besides the session shown: Stop ends it too
        self.models = LoadedModels(pair, stopped, partial(setattr, state, "status"))
        self._cancelled, self._read, self._write = cancelled, read, write

    # Sessions.

    def begin(self, recording: Trace) -> None:
        """Shows a recording before there is a session, if it is a run of what the form says."""
        config = self._read()
        if recording.steps and self._is_run_of(recording, config):
            frame = self._state.frame.at(1, recording)
            self._state.update(applied=config, frame=frame, status=summary(recording.steps[0]))

    @action("loading", "prepare")
    def prepare(self) -> None:
        """Loads the models that the form names, before they are asked for; a recording can be walked meanwhile."""
        models = self._read().models
        if self.asking.whole(self._state.frame).steps and not self._state.frame.live:
            self.models.expect(models)
        else:
            self.models.load(models)

    @action("loading", "apply")
    def start(self, fault: str | None = None) -> None:
        """A new session of what the form says, before its first iteration; with this fault of the clinic, "" for none.

        By default with that of the session there was.
        """
        self._start(self._read(), fault)

    @property
    def fault(self) -> str:
        """The fault that is injected into the session (`speclab.analysis.clinic`); empty where it is healthy."""
        return "" if self.session is None else getattr(self.session.pair, "fault", "")

    @action("loading", "live")
    def live(self) -> None:
        """The models take over from a recording, at the same iteration where it is a run of what the form says."""
        if self._state.frame.live:
            self._state.status = "The models decode already: Step goes on."
        elif not self._apply_pending():
            self._live(leave=True)

    @action("loading", "apply")
    def apply(self) -> None:
        """Brings about what the form says from the next iteration on: by a fork where that is enough, else anew."""
        config, applied, frame = self._read(), self._state.applied, self._state.frame
        continues = applied is not None and config.forks_from(applied)
        if continues and (frame.live or self._is_run_of(frame.trace, applied)):
            self.fork(config.strategy, **config.settings)
        else:
            self._start(config)

    @action("forking", "apply")
    def fork(self, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Goes on from the cursor with other settings, in a session of its own."""
        at = self._state.cursor
        session, applied = self._forked(at, strategy, settings)
        self.runs.fork(session, applied, at)
        self._take(session, applied, f"Forked at iteration {at}. ")
        return session

    @action("forking", "apply")
    def restart(self, strategy: Strategy) -> Session:
        """A fork at the beginning. The prompt is run again, for there are strategies that learn from it."""
        applied = self._state.applied
        if self.session is None or applied is None:
            raise SettingsError("No run has begun: Step decodes the first iteration.")
        config = replace(applied, strategy=strategy)
        session = self._new(config)
        self.runs.fork(session, config, 0)
        self._write(config)
        self._take(session, config, "Forked at the beginning. ")
        return session

    @action("decoding", "apply")
    def redo(self) -> Step | None:
        """Decodes the iteration shown anew with what the form says, in a fork, and shows both."""
        self.leave_edit()
        config, applied, old, at = self._read(), self._state.applied, self._state.step, self._state.cursor - 1
        if self._state.frame.asked or old is None or applied is None or not config.forks_from(applied):
            return self.step()
        session, config = self._forked(at, config.strategy, config.settings)
        with self._working(session):
            new = session.step()
        self.runs.fork(session, config, at)
        nodes = _instead(plural(len(new.tree), "node"), len(new.tree), len(old.tree))
        accepted = _instead(f"{len(new.accepted)} accepted", len(new.accepted), len(old.accepted))
        changed = "; ".join(differences(applied, config)) or "the same settings"
        words = f"Iteration {at + 1} decoded anew with {changed}: {nodes}, {accepted}."
        self._take(session, config, status=words, redone=old)
        return new

    @action("verifying", "apply")
    def verify(self, tree: DraftTree | TreeEdit, at: int | None = None) -> Step:
        """Verifies a tree built by hand after `at` iterations (by default those shown), beside what was decoded there.

        In a run of its own, unless it goes on with one of trees by hand. A root that is not the text's is forced.
        """
        edit = tree if isinstance(tree, TreeEdit) else TreeEdit(tree)
        config, state = self._read(), self._state
        at, applied = state.cursor if at is None else at, state.applied
        if applied is not None and not config.forks_from(applied):
            raise SettingsError("The models or the prompt above are changed: apply that or set it back, then Verify.")
        old = state.trace.steps[at] if at < len(state.trace.steps) else None
        root, session = int(edit.tree.token[0]), self.session
        forced = {} if root == state.trace.token_ids(at)[-1] else {"token": root}
        own = state.frame.live and session is not None and session.strategy.by_hand and at == len(session.steps)
        if own and not forced and session is not None and applied is not None and config.settings == applied.settings:
            session.goto(at)
            config, step = applied, session.verify(edit)
        else:
            session, config = self._forked(at, ByHand(), {**config.settings, **forced})
            with self._working(session):
                step = session.verify(edit)
            self.runs.fork(session, config, at)
            self._write(config)
        self._take(session, config, redone=old)
        return step

    @action("decoding")
    def step(self) -> Step | None:
        """Goes on by one iteration: in what is recorded or decoded, else by decoding; the step, None where it failed.

        What the form says and is not in force is applied first.
        """
        if self._state.frame.asked:
            self.reveal()
            return self._state.step  # type: ignore[no-any-return]
        applied, state = self._apply_pending(), self._state
        if not state.frame.live and state.cursor < len(self.asking.whole(state.frame).steps):
            return self._show_at(state.cursor + 1)
        ended = "The recording ends here; the models go on. " if not state.frame.live and state.cursor else ""
        session = self._live()
        if self._cancelled.is_set():
            raise CancelledError("Stopped before the iteration began.")
        try:
            made = session.step()
        finally:  # where it fails, what was decoded before is shown all the same
            self._show(applied or ended)
        return None if state.frame.asked else made

    @action("decoding", yields=True)
    def run(self, until: Condition | None = None) -> Step | None:
        """Decodes until `until` holds, the text ends, or `stop`; the last step.

        `until`: a function of a step, or an expression such as `accepted < 2` (see `speclab.trace.conditions`).
        """
        if until is None:
            return self._run(())
        condition = compiled(until, setting_names())  # refused before any model is loaded
        return self._run((SetBreakpoint(str(getattr(condition, "text", "the condition holds")), condition),))

    @action("decoding", yields=True)
    def run_until(self) -> Step | None:
        """Iterations until any breakpoint holds, the text ends, or it is cancelled."""
        self._needs_breakpoints()
        return self._run(self._state.breakpoints)

    @action("playing", yields=True)
    def play(self, speed: float = 1.0) -> None:
        """Shows moment after moment, `speed` of them in a second, decoding where none is left, until the text ends."""
        if speed <= 0:
            raise SettingsError(f"The speed is {speed:g} moments per second: choose one above 0.")
        self._apply_pending()
        while self._moved(1) or (not self._state.frame.asked and self._decoded()):
            if self._cancelled.wait(1 / speed):
                return

    def _decoded(self) -> bool:
        """Whether there was an iteration to decode; its first moment is shown."""
        session = self._live()
        if self._cancelled.is_set() or session.done:
            self._show(self._why((), 0, ()))
            return False
        try:
            session.step()
        finally:
            self._show(begins=True)
        return True

    def _run(self, points: tuple[SetBreakpoint, ...]) -> Step | None:
        self._apply_pending()
        with self._unasked():
            return self._run_on(points)

    def _run_on(self, points: tuple[SetBreakpoint, ...]) -> Step | None:
        state, drawn = self._state, monotonic()
        asked = [(point, stateful(point.condition, state.step)) for point in points]
        held: list[SetBreakpoint] = []

        def each(step: Step) -> bool:
            nonlocal drawn
            held.extend([point for point, holds in asked if holds(step)])  # all are asked: some remember
            if not held and session is not None and monotonic() - drawn > REDRAW_SECONDS:
                self._show()
                drawn = monotonic()
            return bool(held) or self._cancelled.is_set()

        session: Session | None = None
        if not state.frame.live:
            ahead = enumerate(state.trace.steps[state.cursor :], state.cursor + 1)
            found = next((index for index, step in ahead if each(step)), None)
            if found is not None:
                return self._show_at(found, self._why(held, found, state.trace.steps))
            self._show_frame(state.frame.at(len(state.trace.steps)))
        session = self._live()
        try:
            if not self._cancelled.is_set():
                session.run(until=each)
        finally:  # where it fails, what was decoded before is shown all the same
            self._show(self._why(held, session.cursor, session.steps))
        return state.step  # type: ignore[no-any-return]

    def _why(self, held: Sequence[SetBreakpoint], iteration: int, steps: tuple[Step, ...]) -> str:
        """Why a run ended at this iteration."""
        if held:
            return f"Stopped: {counted([point.over(steps) for point in held], iteration)}. "
        session = self.session
        ended = f"Ended ({session.finished}). " if session is not None and session.done else ""
        return "Stopped. " if self._cancelled.is_set() else ended

    def interrupt(self) -> None:
        """Ends the iteration under way, from any thread; everything before it stands."""
        for session in (self.session, self.other):
            if session is not None:
                session.cancel()

    # Runs and forks.

    @action(key="switch")
    def switch(self, number: int) -> Session:
        """Goes on with another run, at the iteration where it was left; no model call."""
        self._write(self.runs.find(number).applied)
        run = self.runs.switch(number)
        self._take(run.session, run.applied, f"Switched to run {number}. ")
        return run.session

    @action()
    def pin(self, number: int | None = None) -> None:
        """Keeps the iteration shown, or all of run `number`, beside what comes; once more lets it go."""
        state, beside = self._state, self._state.frame.beside
        if number is None:
            self.leave_edit()
            state.change_frame(pinned=None if state.pinned is state.step else state.step)
        else:
            again = beside is not None and beside.number == number
            state.change_frame(beside=None if again else self.runs.beside(number))

    # What the others share.

    @property
    def loaded(self) -> ModelPair | None:
        """The models, once there are any."""
        return self.models.pair if self.session is None else self.session.pair

    @contextmanager
    def _working(self, session: Session) -> Iterator[None]:
        """A session at work that is not shown: Stop ends it too."""
        self.other = session
        try:
            yield
        finally:
            self.other = None
        if self._cancelled.is_set():
            raise CancelledError("Stopped: everything stays as it was.")

    def _new(self, config: LabConfig, fault: str | None = None) -> Session:
        pair = self.models.load(config.models)
        if fault := self.fault if fault is None else fault:
            from speclab.analysis.clinic import broken

            pair = broken(pair, fault)
        from speclab.engine.session import Session

        return Session(pair, config.strategy, prompt_ids(pair, config.prompt), **config.settings)

    def _start(self, config: LabConfig, fault: str | None = None) -> None:
        session = self._new(config, fault)
        self.runs.begin(session, config)
        held = prompt_words(session.trace)
        self._take(session, config, status=f"The caches hold {held}. Step decodes the first iteration.")

    def _apply_pending(self) -> str:
        """Applies what the form says and is not in force; says what that was."""
        config, applied = self._read(), self._state.applied
        changes = differences(applied, config) if applied is not None and applied is not config else []
        if not changes:
            return ""
        self.apply()
        return f"Applied: {'; '.join(changes)}. "

    def _live(self, *, leave: bool = False) -> Session:
        """The session, shown: where a recording is shown of the same run, at the same iteration.

        `leave`: whether a recording of another run is left for it.
        """
        state, shown = self._state, self._state.frame
        if shown.live and self.session is not None:
            return self.session
        config = state.applied or self._read()
        same = self._is_run_of(shown.trace, config)
        if shown.trace.steps and not same and not leave:
            raise CancelledError("The recording ends here, and it is of another run: Run live decodes the one above.")
        if self.session is None and not (same and shown.cursor):
            self._start(config)
            return self._live()
        session, words = self.session or self._new(config), "Live. "
        if same:
            words = self._caught_up(session, shown)
        if self.session is None:
            self.runs.begin(session, config)
        self._take(session, config, words)
        return session

    def _caught_up(self, session: Session, shown: Frame) -> str:
        """Brings the session to the iteration of a recording; says what the models made of it."""
        session.goto(min(shown.cursor, len(session.steps)))
        if session.cursor < shown.cursor:
            with self._working(session):
                session.run(until=lambda step: step.index + 1 >= shown.cursor or self._cancelled.is_set())
        again = plural(session.cursor, "iteration")
        # With settings changed on its way, the recording may have come further in as many iterations.
        texts = zip(session.token_ids, shown.trace.token_ids(shown.cursor), strict=False)
        text = "the same text" if all(one == other for one, other in texts) else "another text than the recording's"
        return f"Live: the models decoded {again} again, to {text}. "

    def _is_run_of(self, trace: Trace, config: LabConfig) -> bool:
        """Whether a recording is of these models, this prompt, this strategy and these settings, as far as it says."""
        session, pair = self.session, self.loaded
        prompt: Prompt = config.prompt if session is None else session.prompt_ids
        if is_conversation(prompt):
            same = checked_messages(prompt) == [Message(one.role, one.content) for one in trace.messages]
        elif isinstance(prompt, str):
            same = prompt == "".join([trace.texts.get(token, "") for token in trace.prompt_ids])
        else:
            same = tuple(prompt) == trace.prompt_ids
        models = pair.describe() if pair is not None else {"pair": config.models.name if config.models else ""}
        named = all(trace.models.get(key) == models[key] for key in ("pair", "target", "draft") if key in models)
        own = {**config.strategy.describe(), **config.settings, "check": trace.settings.get("check")}
        if len(trace.token_ids()) <= config.settings.get("max_new_tokens", 0):  # a longer text begins in the same way
            own["max_new_tokens"] = trace.settings.get("max_new_tokens")
        return bool(trace.steps) and same and named and all(own.get(k, v) == v for k, v in trace.settings.items())

    def _forked(self, at: int, strategy: Strategy | None, settings: Mapping[str, Any]) -> tuple[Session, LabConfig]:
        """A fork of the session after `at` iterations, not shown yet, and what it is made of."""
        state = self._state
        recorded = bool(state.trace.steps) and not state.frame.live
        if recorded and not self._is_run_of(state.trace, state.applied or self._read()):
            raise SettingsError(
                "A recording of another run holds no models, and a fork needs them: Run live decodes the run above, "
                "and what is decoded there can be forked."
            )
        session = self._live().fork(at, strategy=strategy, **settings)
        return session, replace(state.applied, strategy=session.strategy, settings=session.settings.model_dump())

    def _take(self, session: Session, applied: LabConfig, reason: str = "", status: str = "", **changes: Any) -> None:
        """Goes on with this session; what was measured of the former, or kept of another prompt, says nothing of it."""
        state, prompt = self._state, tuple(session.prompt_ids)
        self.session, state.applied, state.forks = session, applied, self.runs.describe()
        compared = state.compared.runs if state.compared is not None else ()
        if any(run.trace.prompt_ids != prompt for run in compared if run.trace):
            state.compared = None
        if state.trace.prompt_ids != prompt:
            changes |= {"pinned": None, "beside": None}
        self._show(reason, status, **{"regret": None, **changes})

    def _show(self, reason: str = "", status: str = "", *, begins: bool = False, **changes: Any) -> None:
        session, kept = self.session, self._state.frame
        assert session is not None
        changes = {"beside": kept.beside and self.runs.refreshed(kept.beside), "live": True, **changes}
        frame = kept.at(session.cursor, session.trace, **changes)
        self._show_frame(
            begun(frame) if begins else frame,
            status=status or reason + describe(frame),
            done=len(session.token_ids),
            total=session.settings.max_new_tokens,
        )


def _instead(words: str, now: int, was: int) -> str:
    """`14 nodes instead of 24`."""
    return words if now == was else f"{words} instead of {was}"
