"""What the page still has to hear: the changes of the state since the last flush, in one envelope."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any

from speclab.lab import catalog
from speclab.lab.messages import Message, to_page
from speclab.lab.state import LabConfig, LabState
from speclab.trace.records import Step
from speclab.views.run_data import run_header, step_data

if TYPE_CHECKING:
    from speclab.pair import ModelPair

_UNSENT = object()


class Outbox:
    """Sends each iteration once; a new or reloaded page says hello and gets everything.

    `send`: sends one envelope to every page. `given`: the pair that the lab was given.
    """

    def __init__(
        self, state: LabState, given: ModelPair | None, send: Callable[[Message], None]
    ) -> None:
        self.moves = 0  # how often the kernel moved the page; the page returns the number
        self._state = state
        self._given = given
        self._send = send
        self._lock = RLock()
        self._greeted = False
        self._steps: tuple[Step, ...] | None = None  # that the page has; None: no page
        self._number = -1
        self._position: tuple[Any, ...] = ()
        self._status: Message = {}
        self._panels: Message = {}
        self._busy_since = 0.0

    @property
    def has_page(self) -> bool:
        """Whether a page has said hello."""
        return self._greeted or self._steps is not None

    def greet(self) -> None:
        """Send a new page everything, from any thread: it must not wait for the running work."""
        self._greeted = True
        self.flush()

    def reported(self, cursor: int, phase: str, node: Any) -> None:
        """Remember the position that the page reported, so it is not sent back."""
        self._position = (cursor, phase, node)

    def flush(self) -> None:
        """Send the page the changes since the last flush."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        messages: list[Message] = []
        if self._greeted:
            self._greeted = False
            self._steps = ()
            self._number = -1
            self._position = ()
            self._status = {}
            self._panels = {}
            messages.append(to_page("catalog", **catalog.catalog(self._given)))
        if self._steps is None:
            self._state.posts.clear()
            return
        messages += [*self._run(), *self._moved(), *self._changed_panels(), *self._changed_status()]
        messages += self._state.posts
        self._state.posts.clear()
        if messages:
            self._send({"messages": messages})

    def _run(self) -> list[Message]:
        """The iterations that the page lacks: new ones of the same run, or another run from where the two differ."""
        state = self._state
        trace = state.trace
        if trace is None or (trace.steps is self._steps and self._number == state.number):
            return []
        former = self._steps or ()
        steps = trace.steps
        same = 0
        while same < min(len(former), len(steps)) and former[same] is steps[same]:
            same += 1
        self._steps = steps
        records = [step_data(step) for step in steps[same:]]
        if same == len(former) and self._number == state.number:
            return [
                to_page("step", index=same + index, step=data) for index, data in enumerate(records)
            ]
        self._number = state.number
        self._position = ()
        run = to_page(
            "run",
            id=state.number,
            header=run_header(trace),
            keep=same,
            steps=records,
            cursor=state.cursor,
        )
        return [run]

    def _moved(self) -> list[Message]:
        state = self._state
        position = (state.cursor, state.phase, state.selected)
        if position == self._position or state.trace is None:
            return []
        self._position = position
        self.moves += 1
        cursor, phase, node = position
        return [to_page("show", cursor=cursor, phase=phase, node=node, moves=self.moves)]

    def _changed_panels(self) -> list[Message]:
        panels = self._state.panels
        changed = [
            message for name, message in panels.items() if self._panels.get(name) is not message
        ]
        self._panels = dict(panels)
        return changed

    def _changed_status(self) -> list[Message]:
        status = self._current()
        changed = {
            name: value
            for name, value in status.items()
            if self._status.get(name, _UNSENT) != value
        }
        self._status = status
        if status["busy"] and ("busy" in changed or "progress" in changed):
            if "busy" in changed:
                self._busy_since = monotonic()
            changed["since"] = monotonic() - self._busy_since
        return [to_page("status", **changed)] if changed else []

    def _current(self) -> Message:
        state = self._state
        finished = state.trace.finished if state.trace is not None else ""
        at_end = state.cursor == len(state.steps)
        ended = bool(finished) and at_end and not state.pending
        error = None
        if state.errors:
            where, sentence = list(state.errors.items())[-1]
            error = {"where": where, "sentence": sentence}
        return {
            "busy": state.busy or None,
            "progress": state.progress,
            "message": state.message or None,
            "error": error,
            "finished": finished,
            "can_step": (state.trace is None or state.live) and not ended,
            "live": state.live,
            "wanted": self._form(state.wanted),
            "applied": self._form(state.applied),
            "pending": state.pending,
            "new_run": state.new_run,
            "missing": catalog.missing(state.wanted.models, self._given),
            "by_hand": state.edited,
            "guess": state.guess,
        }

    def _form(self, config: LabConfig | None) -> Message | None:
        return None if config is None else config.data()
