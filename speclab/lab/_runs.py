"""The runs of a lab: their sessions, decoding, moving along them, forks, and which one is shown.

All of it runs on the
worker's thread, and nothing else touches a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, NotRequired
from weakref import WeakValueDictionary

from typing_extensions import TypedDict  # pydantic asks for this one before Python 3.12

from speclab.drafters import cost, setting_names
from speclab.errors import SettingsError
from speclab.lab._commands import command
from speclab.lab._form import FORM, LabConfig, ModelChoice, short_name
from speclab.lab._state import LabState
from speclab.lab._worker import Worker
from speclab.trace.conditions import Condition, compiled
from speclab.trace.records import Step, Trace
from speclab.views.drawing import Phase, position

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.lab._parts import Part
    from speclab.pair import ModelPair

UNTIL = {"accepts_fewer": "accepted < {}", "nodes_more": "nodes > {}", "expression": "{}"}
"""The conditions that the page can run until."""


_LOADED: WeakValueDictionary[str, ModelPair] = WeakValueDictionary()
"""The presets that labs of this process have loaded, by device and name: a cell that is run again
takes them, since the lab that it showed before keeps its own until it is closed."""
_LOADING = Lock()


class Until(TypedDict):
    """When a run stops, as the page's field says: a name of `WORDS.until`, and its value."""

    kind: str
    value: NotRequired[str | int | float | None]


@dataclass
class Run:
    """A run of this lab.

    `family`: a letter or two, the same for all forks of a run. A fork shares the first `at` iterations of
    the run that it was made from; other runs have -1. A file has no session.
    """

    number: int
    name: str
    family: str
    trace: Trace
    cursor: int = 0
    config: LabConfig | None = None
    session: Session | None = None
    at: int = -1


def letters(number: int) -> str:
    """The name of a family by its number, from 0: A, B, … Z, AA, AB, …"""
    rest, last = divmod(number, 26)
    before = letters(rest - 1) if rest else ""
    return before + chr(ord("A") + last)


class Runs:
    """All runs of a lab, one of which is shown.

    `session`: of the run shown, None for a file. `all`: the runs that were not closed. `working`: a
    session that decodes but is not shown. `parts`: what else the lab consists of, which is told
    when a run is shown, decoded or left.
    """

    def __init__(self, state: LabState, worker: Worker) -> None:
        self.state = state
        self.worker = worker
        self.session: Session | None = None
        self.all: tuple[Run, ...] = ()
        self.working: Session | None = None
        self.parts: Sequence[Part] = ()
        self.pair: ModelPair | None = None
        self._loaded: ModelChoice | None = None  # the choice that `pair` was loaded for
        self._models: ModelPair | None = None  # what other labs may take
        self._made: tuple[str, ...] = ()  # the family of every run, also of closed ones
        self._shown: Run | None = None

    def ready_setup(self) -> LabConfig:
        """The setup of the form; raises while one of its parts is refused."""
        for part in FORM:
            if sentence := self.state.errors.get(part):
                raise SettingsError(sentence)
        return self.state.wanted

    # Models and sessions

    def load(self, choice: ModelChoice | None) -> ModelPair:
        """Load the models of a choice once, None for the given pair; if loading fails, the former models stay."""
        if choice is None:
            self.pair = self.state.given
        elif choice != self._loaded or self.pair is None:
            name = f"{choice.device} {choice.name}"
            with _LOADING:  # a second lab waits for the first one's
                models = _LOADED.get(name) or self._load(choice)
                if choice.name:  # a folder of one's own may have changed
                    _LOADED[name] = models
            self._models = models
            # what strategies learn belongs to one lab
            self.pair = replace(models, shared_state={}, budgets={})
        self._loaded = choice
        assert self.pair is not None
        return self.pair

    def _load(self, choice: ModelChoice) -> ModelPair:
        """Load the models of a choice, and tell the page how far that is."""
        self.worker.report(f"Loading {choice}", 0.02)
        from speclab.pair import load_pair

        def report(_: str) -> None:
            self.worker.check()
            # a share of an unknown number of reports: each takes a quarter of what is left
            done = self.state.progress or 0.0
            self.worker.report(f"Loading {choice}", done + (0.95 - done) / 4)

        named: dict[str, Any] = {name: value or None for name, value in asdict(choice).items()}
        return load_pair(**named, report=report)

    def start(self) -> Session:
        """A new session with the form's setup, before its first iteration."""
        config = self.ready_setup()
        busy = self.state.busy
        pair = self.load(config.models)
        from speclab.engine.session import Session

        self.worker.report("Timing the models", 0.97)
        cost.with_node_budget(config.strategy, pair)
        self.worker.report(busy)
        session = Session(pair, config.strategy, config.prompt, **config.settings.model_dump())
        name = type(config.strategy).__name__
        self.add(name, session.trace, session=session, config=config)
        return session

    def _ready(self, start: str = "here") -> Session:
        """The session at the cursor with all changes applied, or a new one if `start` is "start"."""
        wanted = self.ready_setup()
        if self._shown is None:
            return self.start()
        session, applied = self.live()
        if start == "start" or self.state.starts_over:
            return self.start()
        if wanted != applied:
            return self._fork(self.state.cursor, wanted.strategy, **wanted.settings.model_dump())
        session.goto(self.state.cursor)
        return session

    def _fork(self, at: int, strategy: Strategy | None, **settings: Any) -> Session:
        """Fork the session after `at` iterations, and show the fork."""
        session, old = self.live()
        fork = session.fork(at, strategy, **settings)
        config = replace(old, strategy=fork.strategy, settings=fork.settings)
        name = short_name(old, config)
        self.add(name, fork.trace, at, session=fork, config=config, cursor=fork.cursor)
        return fork

    # Decode and move

    @command("Decoding")
    def on_step(self, start: str = "here") -> Step:
        """Apply pending changes of the form, then decode one iteration; "start" begins a new run."""
        session = self._ready(start)
        try:
            return session.step()
        finally:
            self._update(session)

    @command("Decoding", where="until")
    def on_run(self, until: Until) -> None:
        """Decode until what the page's field says."""
        self.run(self._condition(self._ready(), **until))

    def run(self, until: Condition | None = None) -> Step | None:
        """Decode until `until` holds, the text ends or Stop is pressed; returns the last step.

        `until`: a function of a step, or an expression such as `accepted < 2` (see
        `speclab.trace.conditions`).
        """
        session = self._ready()
        condition = compiled(until, setting_names())
        reason = getattr(condition, "text", "the condition holds")

        def each(step: Step) -> bool:
            if condition(step):
                self.state.message = f"Stopped: {reason}."
                return True
            if self.worker.due():
                self._update(session)
                share = len(session.token_ids) / session.settings.max_new_tokens
                self.worker.report(self.state.busy, share)
            return self.worker.cancelled.is_set()

        self.state.message = ""
        try:
            session.run(until=each)
        finally:
            self._update(session)
        if not session.done and not self.state.message:
            self.state.message = "Stopped."
        return self.state.step

    def _condition(self, session: Session, kind: str, value: Any = "") -> Condition | None:
        """A condition of the page; None for the end of the text."""
        if kind != "token":
            return UNTIL[kind].format(value) if kind in UNTIL else None
        start = max(0, len(session.text) - len(value) + 1)
        # a match may span two iterations
        return lambda _: value in session.text[start:]

    def back(self) -> Step | None:
        """Show the previous iteration; None at the beginning. No model call."""
        return self.goto(max(0, self.state.cursor - 1))

    def goto(self, index: int) -> Step | None:
        """Show the text after `index` iterations; no model call."""
        count = len(self.state.steps)
        if not 0 <= index <= count:
            raise SettingsError(f"There is no iteration {index}: {count} are decoded.")
        self.state.arrive(index)
        self.place()
        return self.state.step

    def place(self) -> None:
        """Move the session to the current iteration, and drop what belongs to another one."""
        if self.session is not None and self.state.live:
            self.session.goto(self.state.cursor)
        for part in self.parts:
            part.moved()
        self.state.moved()

    def show_phase(self, name: Phase) -> None:
        """Show a phase of the iteration: draft, flatten, verify, accept, commit or all."""
        position(name, level=None)  # raises if there is no such phase
        self.state.phase = name

    def select(self, node: int | None) -> None:
        """Select a node of the current tree, or none."""
        step = self.state.step
        if node is not None and (step is None or not 0 <= node < len(step.tree)):
            raise SettingsError(f"There is no node {node} in the iteration shown.")
        self.state.selected = node

    def fork(self, /, strategy: Strategy | None = None, **settings: Any) -> Session:
        """Fork at the cursor with other settings; the former session stays unchanged."""
        if self._shown is None:
            self._ready()
        return self._fork(self.state.cursor, strategy, **settings)

    @command("Decoding again")
    def on_redo(self) -> Step:
        """Decode the current iteration again in a fork with the form's settings, the old one pinned."""
        old = self.state.step
        wanted = self.ready_setup()
        if old is None or self.state.new_run:
            return self.on_step()
        if not self.state.pending:
            raise SettingsError("No setting has changed: change one, then apply it.")
        self._fork(self.state.cursor - 1, wanted.strategy, **wanted.settings.model_dump())
        step = self.on_step()
        for part in self.parts:
            part.decoded_again(old)
        return step

    # The run shown

    def open_trace(self, trace: Trace, name: str) -> None:
        """Show a recorded run."""
        self.add(name, trace, cursor=min(1, len(trace.steps)))

    def cancel(self) -> None:
        """Stop the running iteration, from any thread; earlier iterations are kept."""
        for session in (self.session, self.working):
            if session is not None:
                session.cancel()

    def free(self) -> None:
        """Release sessions, caches and models."""
        self.session = self.pair = self._models = self._shown = self.working = None
        self.state.given = None
        self.all = ()
        self.state.panels = {}
        for part in self.parts:
            part.free()

    def add(self, name: str, trace: Trace, at: int = -1, **fields: Any) -> None:
        """Show a new run, such as `B Goose`; with `at` a fork of the run shown, such as
        `A2 τ_ℓ 0.75 from 5`."""
        family = letters(len({*self._made})) if at < 0 else self.shown().family
        self._made = (*self._made, family)
        count = self._made.count(family)
        label = family if count == 1 else f"{family}{count}"
        words = [label, name, f"from {at + 1}" if at >= 0 else ""]
        number = len(self._made) - 1
        run = Run(number, " ".join(filter(None, words)), family, trace, at=at, **fields)
        self.all = (*self.all, run)
        self.show(run)

    def numbered(self, number: int) -> Run:
        """A run by its number; raises if it was closed."""
        for run in self.all:
            if run.number == number:
                return run
        raise SettingsError(f"There is no run {number}: it was closed.")

    def forget(self, run: Run) -> None:
        """Forget a run, unless it is shown."""
        if run is not self._shown:
            self.all = tuple([other for other in self.all if other is not run])

    def show(self, run: Run) -> None:
        """Show a run at its last position."""
        if self._shown is not None:
            self._shown.cursor = self.state.cursor
        self._shown = run
        if run.session is not None and run.config is not None:
            self.session = run.session
            self.session.goto(run.cursor)
            self.state.applied = run.config
            self.state.wanted = run.config
        self.state.number = run.number
        self.state.live = run.session is not None
        self.state.trace = run.trace
        self._settle(run.cursor)

    def _update(self, session: Session) -> None:
        """Show what the session shown has decoded."""
        assert self._shown is not None
        self.state.trace = self._shown.trace = session.trace
        self._settle(session.cursor)

    def _settle(self, cursor: int) -> None:
        self.state.arrive(cursor)
        for part in self.parts:
            part.decoded()

    def shown(self) -> Run:
        """The run shown; raises if there is none."""
        if self._shown is None:
            raise SettingsError("There is no run yet: Step decodes the first iteration.")
        return self._shown

    def live(self) -> tuple[Session, LabConfig]:
        """The session shown and its setup; raises if a file is shown."""
        run = self.shown()
        if run.session is None or run.config is None:
            raise SettingsError(
                "This run was opened from a file: switch to one of your own runs to decode."
            )
        return run.session, run.config
