"""What the lab says in words: what happened, what would be, how far a run is, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipywidgets import HTML, Button, HBox, VBox

from speclab.lab.screen import Screen, Slot
from speclab.lab.state import LabState
from speclab.lab.widgets import set_if_changed, set_visible
from speclab.views.explain import fault_words, linked, step_words, warning
from speclab.views.markup import escape, tag
from speclab.views.registry import Frame


class Status(VBox):
    """Shows `status`, `busy`, progress and `error` of the state, what a pending change would do, and memory in use.

    The line goes out in one message with the pictures it speaks of. `usage` tells the memory; it is asked when another
    line is on its way anyway. `would_be`: what a pending change would have done; empty where there is none.
    """

    def __init__(self, state: LabState, screen: Screen, usage: Callable[[], str], would_be: Callable[[], str]) -> None:
        self._state, self._usage, self._would_be = state, usage, would_be
        self._shown = self._used = ""
        self.line = Slot(screen, "status", self._words, self._key)
        self.message = HTML()
        dismiss = Button(description="Dismiss", tooltip="close this message", icon="times")
        dismiss.on_click(lambda _: self.dismiss())
        dismiss.add_class("speclab-dismiss")
        self.error = HBox([self.message, dismiss]).add_class("speclab-error")
        super().__init__([self.line, self.error], _dom_classes=["speclab-says"])
        state.observe(lambda _: self.update(), names=["status", "busy", "frame", "done", "total", "change"])
        state.observe(self._draw_error, names=["error", "details"])
        self.update()
        self._draw_error()

    def dismiss(self) -> None:
        """Closes the error panel."""
        self._state.error = self._state.details = ""

    def update(self) -> None:
        """Draws the line anew where it differs."""
        self.line.update(self._state.frame)

    def _key(self, frame: Frame) -> tuple[Any, ...]:
        state = self._state
        return state.status, state.busy, frame.live, frame.step, state.done, state.total, self._would_be()

    def _words(self, frame: Frame) -> str:
        state = self._state
        if state.status != self._shown:
            self._shown, self._used = state.status, self._usage()
        name = "live" if frame.live else "recorded" if frame.trace.steps or frame.asked else "ready"
        badge = tag("span", name, class_="sl-badge", title=_BADGES[name])
        spinner = tag("span", class_="sl-spinner", title=escape(state.busy)) if state.busy else ""
        said = tag("span", linked(state.status), role="status", aria_live="polite")
        would_be, warnings = self._would_be(), (fault_words(frame.trace), step_words(frame.step))
        warned = "".join([tag("span", warning(words)) for words in warnings if words])
        done = f"{state.done} of {state.total} tokens" if state.total else ""
        aside = tag("span", escape(" · ".join(filter(None, [done, self._used]))), class_="sl-muted sl-usage")
        what_if = tag("p", tag("b", "Not applied. "), escape(would_be), class_="sl-preview") if would_be else ""
        return tag("div", badge, spinner, said, warned, aside, class_="sl-line") + what_if

    def _draw_error(self, _: Any = None) -> None:
        state = self._state
        folded = tag("details", tag("summary", "details"), tag("pre", escape(state.details))) if state.details else ""
        sentence = tag("div", tag("b", "Error. "), escape(state.error), role="alert")
        set_if_changed(self.message, value=sentence + folded if state.error else "")
        set_visible(self.error, bool(state.error))


_BADGES = {
    "live": "decoded by the models in this session",
    "recorded": "a run recorded earlier, without its models: Run live lets them take over",
    "ready": "no model has run yet: Step decodes the first iteration",
}
