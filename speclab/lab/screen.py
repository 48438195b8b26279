"""The widget that contains the page: it sends the changes in one message and receives the page's messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from anywidget import AnyWidget

from speclab.lab.state import LabState
from speclab.trace.records import Step
from speclab.views.run_data import header, iteration, plotly_js, read

_HERE = Path(__file__).parent


class Screen(AnyWidget):
    """The page in the notebook. Each iteration is sent once; a new or reloaded page says hello and
    gets everything.

    `heard`: called with each message of a page. `setup`: the text of the set-up line. `seconds`:
    since the work began.
    """

    _esm = read("page.js") + (_HERE / "screen.js").read_text(encoding="utf-8")
    _css = read("page.css") + (_HERE / "style.css").read_text(encoding="utf-8")

    def __init__(
        self,
        state: LabState,
        heard: Callable[[dict[str, Any]], None],
        setup: Callable[[], str],
        began: Callable[[], float],
    ) -> None:
        super().__init__()
        self._state = state
        self._heard = heard
        self._setup = setup
        self._began = began
        self.greeted = False
        # the iterations that the page has; None: there is no page
        self._steps: tuple[Step, ...] | None = None
        self._number = -1
        self._place: tuple[Any, ...] = ()
        # how often the kernel moved the page; the page echoes the number in its messages
        self.moves = 0
        self._status: dict[str, Any] = {}
        self._panels: dict[str, Any] = {}
        self._posted: list[dict[str, Any]] = []
        self.on_msg(lambda _, content, buffers: self._hear(content))

    def post(self, message: dict[str, Any]) -> None:
        """Send an extra message with the next update."""
        self._posted.append(message)

    def update(self) -> None:
        """Send the page the changes since the last update."""
        if self.greeted:
            self.greeted = False
            self._steps = ()
            self._number = -1
            self._place = ()
            self._status = {}
            self._panels = {}
        if self._steps is None:
            self._posted.clear()
            return
        messages = [*self._run(), *self._moved(), *self._said(), *self._shown(), *self._posted]
        self._posted.clear()
        if messages:
            self.send({"messages": messages})

    def _run(self) -> list[dict[str, Any]]:
        """The iterations that the page lacks: new ones of the same run, or another run from where the two differ."""
        trace = self._state.trace
        if trace is None or (trace.steps is self._steps and self._number == self._state.number):
            return []
        had = self._steps or ()
        steps = trace.steps
        same = 0
        while same < min(len(had), len(steps)) and had[same] is steps[same]:
            same += 1
        self._steps = steps
        if same == len(had) and self._number == self._state.number:
            return [
                {"type": "iteration", "index": step.index, "data": iteration(step, trace)}
                for step in steps[same:]
            ]
        self._number = self._state.number
        self._place = ()
        iterations = [iteration(step, trace) for step in steps[same:]]
        run = {
            "type": "run",
            "id": self._number,
            "header": header(trace),
            "keep": same,
            "iterations": iterations,
        }
        return [run]

    def _moved(self) -> list[dict[str, Any]]:
        state = self._state
        place = (state.cursor, state.phase, state.selected)
        if place == self._place or state.trace is None:
            return []
        self._place = place
        self.moves += 1
        show = {
            "type": "show",
            "cursor": state.cursor,
            "phase": state.phase,
            "node": state.selected,
        }
        return [{**show, "moves": self.moves}]

    def _said(self) -> list[dict[str, Any]]:
        state = self._state
        finished = state.trace.finished if state.trace is not None else ""
        at_end = state.trace is not None and state.cursor == len(state.trace.steps)
        status: dict[str, Any] = {
            "setup": self._setup(),
            "busy": state.busy or None,
            "progress": None,
            "sentence": state.sentence,
            "error": {"where": state.where, "sentence": state.error} if state.error else None,
            "pending": state.pending or None,
            "finished": finished,
            "can_step": (state.trace is None or state.live)
            and not (finished and at_end and not state.pending),
            "predict": state.predict,
        }
        if state.trace is not None and state.busy.startswith("Decoding"):
            most = state.trace.settings.get("max_new_tokens")
            status["progress"] = (
                len(state.trace.token_ids()) / most if isinstance(most, int) and most else None
            )
        changed = {
            name: value for name, value in status.items() if self._status.get(name, self) != value
        }
        self._status = status
        if "busy" in changed:
            changed["since"] = monotonic() - self._began()
        return [{"type": "status", **changed}] if changed else []

    def _shown(self) -> list[dict[str, Any]]:
        panels = self._state.panels
        changed = [
            message for name, message in panels.items() if self._panels.get(name) is not message
        ]
        self._panels = dict(panels)
        return changed

    def at(self, cursor: int, phase: str, node: int | None) -> None:
        """Remember the position that the page reported, so it is not sent back."""
        self._place = (cursor, phase, node)

    def _hear(self, content: Any) -> None:
        if not isinstance(content, dict):
            return
        if content.get("do") == "plotly":
            self.send({"plotly": True}, [plotly_js()])
        else:
            self._heard(content)
