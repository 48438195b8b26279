"""The state of the lab, and the changes of it that the page has yet to receive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any

from traitlets import Bool, Dict, Float, HasTraits, Instance, Int, List, Tuple, Unicode

from speclab.lab._form import (
    FORM,
    LabConfig,
    catalog,
    differences,
    missing,
    offered,
    on_screen,
)
from speclab.lab._messages import Message, to_page
from speclab.trace.records import Step, Trace
from speclab.views.run_data import run_header, step_data

if TYPE_CHECKING:
    from speclab.pair import ModelPair


class LabState(HasTraits):
    """The state of a lab. The worker's thread changes it, and the outbox sends the changes to the
    page.

    `trace`: the current run, or None; `number`: its number; `live`: whether it has a session.
    `cursor`: iterations shown. `phase`: draft, flatten, verify, accept, commit or all. `selected`:
    a node. `busy`: the running work, empty when idle; `progress`: its share that is done, None if
    unknown. `message`: its result. `errors`: sentences by place, newest last. `wanted`: the setup
    that the next Step applies; `applied`: that of the current run. `panels`: what stage and tabs
    show (preview, curve, pinned, …), empty if nothing; `posts`: messages to send once. `guess`:
    whether the user guesses before verifying. `given`: the pair that the lab was given. `named`: the
    user named models, so an opened run is checked against them. `by_hand`: whether the tree shown
    was edited.
    """

    trace = Instance(Trace, allow_none=True)
    number = Int(-1)
    live = Bool()
    cursor = Int()
    phase = Unicode("all")
    selected = Int(None, allow_none=True)
    busy = Unicode()
    progress = Float(None, allow_none=True)
    message = Unicode()
    errors = Dict()
    wanted = Instance(LabConfig)
    applied = Instance(LabConfig, allow_none=True)
    panels = Dict()
    posts = List(Tuple())
    by_hand = Bool()
    guess = Bool()
    named = Bool()
    given: ModelPair | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The decoded iterations of the current run."""
        return self.trace.steps if self.trace is not None else ()

    @property
    def step(self) -> Step | None:
        """The current iteration; None before the first."""
        return self.steps[self.cursor - 1] if 0 < self.cursor <= len(self.steps) else None

    @property
    def pending(self) -> list[str]:
        """The changes that the next Step applies."""
        return [] if self.applied is None else differences(self.applied, self.wanted)

    @property
    def new_run(self) -> bool:
        """Whether the changes need a new run."""
        return self.applied is not None and not self.wanted.forks_from(self.applied)

    @property
    def starts_over(self) -> bool:
        """Whether Step begins a new run: the changes need one, or the text shown has ended."""
        if self.trace is None or self.applied is None or not self.pending:
            return False
        longer = self.wanted.settings.max_new_tokens > self.applied.settings.max_new_tokens
        open_end = self.trace.finished in {"", "max_new_tokens" if longer else ""}
        return self.new_run or (self.cursor == len(self.steps) and not open_end)

    def fail(self, where: str, sentence: str) -> None:
        """Show an error next to its cause, in the words of the page."""
        if where != "until":  # a condition has the names of Python
            sentence = on_screen(sentence)
        self.mend([where])
        self.errors = {**self.errors, where: sentence}

    def mend(self, places: Iterable[str]) -> None:
        """Remove the errors of these places."""
        gone = set(places)
        self.errors = {where: words for where, words in self.errors.items() if where not in gone}

    def arrive(self, cursor: int) -> None:
        """Show another position, at its last phase."""
        self.cursor = cursor
        self.phase = "all"
        self.selected = None

    def moved(self) -> None:
        """Remove what belongs to the former position: its message, and errors outside the form."""
        self.message = ""
        self.mend(set(self.errors) - set(FORM))

    def show(self, panel: str, /, **fields: Any) -> None:
        """Show a panel; it stays until it is shown again or hidden."""
        self.panels = self.panels | {panel: fields}

    def hide(self, *panels: str) -> None:
        """Clear panels that were shown."""
        shown = self.panels.keys() & set(panels)
        self.panels = self.panels | {panel: {} for panel in shown}

    def post(self, name: str, /, **fields: Any) -> None:
        """Send the page a message once."""
        self.posts.append((name, fields))


class Outbox:
    """Sends each iteration once; a new or reloaded page says hello and gets everything.

    `send`: sends one envelope to every page.
    """

    def __init__(self, state: LabState, send: Callable[[Message], None]) -> None:
        self.moves = 0  # how often the kernel moved the page; the page returns the number
        self._state = state
        self._send = send
        self._lock = RLock()
        self._busy_since = 0.0
        self._forget()
        self._steps: tuple[Step, ...] | None = None  # that the page has; None: no page

    def _forget(self) -> None:
        """Expect a page that has nothing."""
        self._steps = ()
        self._number = -1
        self.position: tuple[Any, ...] = ()  # of the page
        self._status: Message = {}
        self._panels: dict[str, Message] = {}

    @property
    def has_page(self) -> bool:
        """Whether a page has said hello."""
        return self._steps is not None

    def greet(self) -> None:
        """Send a new page everything, from any thread: it must not wait for the running work."""
        with self._lock:
            self._forget()
            self.flush(to_page("catalog", **catalog(self._state.given)))

    def flush(self, *first: Message) -> None:
        """Send the page the changes since the last flush, in one envelope."""
        with self._lock:
            messages = [*first, *self._changes()]
            self._state.posts.clear()
            if messages:
                self._send({"messages": messages})

    def _changes(self) -> Iterator[Message]:
        state = self._state
        if self._steps is None:
            return
        yield from self._run(self._steps)
        position = (state.cursor, state.phase, state.selected)
        if position != self.position and state.trace is not None:
            self.position = position
            self.moves += 1
            cursor, phase, node = position
            yield to_page("show", cursor=cursor, phase=phase, node=node, moves=self.moves)
        for name, fields in state.panels.items():
            if self._panels.get(name) is not fields:
                yield to_page(name, **fields)
        self._panels = state.panels
        if changed := self._changed_status():
            yield to_page("status", **changed)
        for name, fields in state.posts:
            yield to_page(name, **fields)

    def _run(self, former: tuple[Step, ...]) -> Iterator[Message]:
        """The iterations that the page lacks: new ones of the same run, or another run from where the two differ."""
        state = self._state
        trace = state.trace
        if trace is None or (trace.steps is former and self._number == state.number):
            return
        self._steps = steps = trace.steps
        same = 0
        while same < min(len(former), len(steps)) and former[same] is steps[same]:
            same += 1
        records = [step_data(step) for step in steps[same:]]
        if same == len(former) and self._number == state.number:
            for index, record in enumerate(records, same):
                yield to_page("step", index=index, step=record)
            return
        self._number = state.number
        self.position = ()
        yield to_page(
            "run",
            id=state.number,
            header=run_header(trace),
            keep=same,
            steps=records,
            cursor=state.cursor,
        )

    def _changed_status(self) -> Message:
        former = self._status
        self._status = status = self._current_status()
        changed = {
            name: value
            for name, value in status.items()
            if name not in former or former[name] != value
        }
        if status["busy"] and changed.keys() & {"busy", "progress"}:
            if "busy" in changed:
                self._busy_since = monotonic()
            changed["since"] = monotonic() - self._busy_since
        return changed

    def _current_status(self) -> Message:
        state = self._state
        finished = state.trace.finished if state.trace is not None else ""
        at_end = state.cursor == len(state.steps)
        ended = bool(finished) and at_end and not state.pending
        errors = [{"where": name, "sentence": words} for name, words in state.errors.items()]
        plain = ("busy", "progress", "message", "live", "pending", "guess", "by_hand")
        return {
            **{name: getattr(state, name) for name in plain},
            "error": errors[-1] if errors else None,
            "finished": finished,
            "can_step": (state.trace is None or state.live) and not ended,
            "wanted": state.wanted.data(),
            "new_run": state.starts_over,
            "missing": missing(offered(state.wanted.models, state.given)),
        }
