"""The runs of a lab: sessions, their forks and opened files; and the models they run on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from speclab.errors import SettingsError
from speclab.lab.messages import to_page
from speclab.lab.state import FORM, LabConfig, LabState, ModelChoice, differences, prompt_of
from speclab.lab.worker import Worker
from speclab.trace.records import Trace

if TYPE_CHECKING:
    from speclab.engine.session import Session
    from speclab.pair import ModelPair


@dataclass
class Run:
    """A run of this lab.

    A fork has a `parent` and shares its iterations up to `at`. A file has no session.
    """

    number: int
    name: str
    trace: Trace
    config: LabConfig | None = None
    session: Session | None = None
    parent: int | None = None
    at: int = 0
    cursor: int = 0


class Runs:
    """All runs of a lab, of which one is shown.

    `given`: the pair that the lab was given; None: models are loaded by name. `named`: the user
    named models, so an opened run is checked against them.
    """

    def __init__(
        self, state: LabState, worker: Worker, given: ModelPair | None, *, named: bool
    ) -> None:
        self.state = state
        self.worker = worker
        self.pair = given
        self.session: Session | None = None
        self.shown: Run | None = None
        self.working: Session | None = None  # runs, but is not shown
        self._given = given
        self._named = named
        self._loaded = None if given else ModelChoice("")
        self._all: list[Run] = []

    # Models.

    def load(self, choice: ModelChoice | None) -> ModelPair:
        """Load the models of a choice once, None for the given pair; if loading fails, the former models stay."""
        if choice is None:
            if self._given is None:
                raise SettingsError("No models were given in Python: choose some from the list.")
            self.pair = self._given
            self._loaded = None
        elif choice != self._loaded or self.pair is None:
            busy = self.state.busy
            self.pair = self._load(choice)
            self._loaded = choice
            self.worker.report(busy)
        assert self.pair is not None
        return self.pair

    def _load(self, choice: ModelChoice) -> ModelPair:
        reports = 0

        def report(_: str) -> None:
            nonlocal reports
            self.worker.check()
            reports += 1
            # a share of an unknown number of reports: each takes a quarter of what is left
            self.worker.report(f"Loading {choice}", 0.95 - 0.85 * 0.75**reports)

        self.worker.report(f"Loading {choice}", 0.02)
        from speclab.pair import load_pair

        self.worker.report(f"Loading {choice}", 0.1)
        return load_pair(**choice.arguments(), report=report)

    def models_of_check(self) -> ModelPair | None:
        """The models that a check of the run shown compares with."""
        assert self.shown is not None
        if self.shown.session is not None:
            return self.shown.session.pair
        return self.load(self.state.wanted.models) if self._named else None

    # Sessions.

    def wanted(self) -> LabConfig:
        """The setup of the form; raises while one of its parts is refused."""
        for where in FORM:
            if sentence := self.state.errors.get(where):
                raise SettingsError(sentence)
        return self.state.wanted

    def start(self) -> Session:
        """A new session with the form's setup, before its first iteration."""
        config = self.wanted()
        pair = self.load(config.models)
        from speclab.drafters import cost
        from speclab.engine.session import Session

        prompt = prompt_of(pair, config)
        busy = self.state.busy
        self.worker.report("Timing the models", 0.97)
        cost.prepare(config.strategy, pair)
        self.worker.report(busy)
        session = Session(pair, config.strategy, prompt, **config.settings.model_dump())
        self.take(session, config)
        return session

    def ready(self, start: str = "here") -> Session:
        """The session at the cursor with all changes applied, or a new one if `start` is "start"."""
        self._decodes()
        state = self.state
        wanted = self.wanted()
        if self.session is None or state.applied is None or start == "start":
            return self.start()
        if wanted == state.applied:
            self.session.goto(state.cursor)
            return self.session
        if wanted.forks_from(state.applied):
            return self.fork(state.cursor, wanted)
        return self.start()

    def fork(self, at: int, config: LabConfig) -> Session:
        """Fork the session after `at` iterations, and show the fork."""
        self._decodes()
        assert self.session is not None
        session = self.session.fork(at, strategy=config.strategy, **config.settings.model_dump())
        changes = differences(self.state.applied or config, config)
        self.take(session, config, at, "; ".join(changes) or "the same settings")
        return session

    def _decodes(self) -> None:
        if self.state.trace is not None and not self.state.live:
            raise SettingsError(
                "This run was opened from a file: switch to one of your own runs to decode."
            )

    def take(
        self, session: Session, config: LabConfig, at: int | None = None, name: str = ""
    ) -> None:
        """Show a new session; a fork continues the run shown after `at` iterations."""
        name = name or type(config.strategy).__name__
        run = Run(len(self._all), name, session.trace, config, session, cursor=session.cursor)
        if at is not None and self.shown is not None:
            run.parent = self.shown.number
            run.at = at
        self._add(run)

    def open(self, trace: Trace, name: str) -> None:
        """Show a recorded run."""
        self._add(Run(len(self._all), name, trace, cursor=min(1, len(trace.steps))))

    def switch(self, run: int) -> None:
        """Show another run, by its number, at its last position."""
        other = self.numbered(run)
        self._leave()
        self._show(other)

    def numbered(self, run: int) -> Run:
        """A run by its number."""
        if not 0 <= run < len(self._all):
            raise SettingsError(f"There is no run {run}: {len(self._all)} exist.")
        return self._all[run]

    def update(self, session: Session) -> None:
        """Show what a session has decoded."""
        state = self.state
        state.trace = session.trace
        state.cursor = session.cursor
        state.phase = "all"
        state.selected = None
        state.hide("preview", "diffed")
        self._tell()

    def trace(self) -> Trace:
        """The run shown; raises if there is none."""
        if self.state.trace is None:
            raise SettingsError("There is no run yet: Step decodes the first iteration.")
        return self.state.trace

    def cancel(self) -> None:
        """Stop the running iteration, from any thread; earlier iterations are kept."""
        for session in (self.session, self.working):
            if session is not None:
                session.cancel()

    def free(self) -> None:
        """Release sessions, caches and models."""
        self.session = self.pair = self.shown = self._given = self.working = None
        self._all.clear()

    def _add(self, run: Run) -> None:
        self._leave()
        self._all.append(run)
        self._show(run)

    def _leave(self) -> None:
        if self.shown is not None:
            self.shown.cursor = self.state.cursor
            self.shown.trace = self.trace()

    def _show(self, run: Run) -> None:
        state = self.state
        self.shown = run
        if run.session is not None and run.config is not None:
            self.session = run.session
            state.applied = run.config
            state.wanted = run.config
        state.number = run.number
        state.live = run.session is not None
        state.trace = run.trace
        state.cursor = run.cursor
        state.phase = "all"
        state.selected = None
        if run.session is not None:
            run.session.goto(run.cursor)
        state.hide("preview", "redone", "curve", "diffed")
        self._tell()

    def _tell(self) -> None:
        rows = [
            {
                "number": run.number,
                "parent": run.parent,
                "at": run.at,
                "name": run.name,
                "iterations": len(run.session.steps if run.session else run.trace.steps),
                "shown": run is self.shown,
            }
            for run in self._all
        ]
        self.state.show(to_page("runs", runs=rows))
