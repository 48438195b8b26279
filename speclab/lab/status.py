"""What happened, in words: a status line, and an error panel that stays until it is dismissed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipywidgets import HTML, Button, HBox, IntProgress, VBox

from speclab.lab.state import LabState
from speclab.lab.sync import assign, show
from speclab.views.lossy import step_words, warning
from speclab.views.markup import tag
from speclab.views.tokens import escape


class Status(VBox):
    """Shows `status`, `busy`, progress and `error` of the state, and memory in use.

    `usage` tells the memory; it is asked when another line is on its way anyway.
    """

    def __init__(self, state: LabState, usage: Callable[[], str]) -> None:
        self._state, self._usage = state, usage
        self._said = self._used = ""
        self.line = HTML()
        self.line.add_class("speclab-status")
        self.progress = IntProgress(tooltip="tokens generated, of those asked for")
        self.progress.add_class("speclab-progress")
        self.count = HTML()
        self.message = HTML()
        dismiss = Button(description="Dismiss", tooltip="close this message", icon="times")
        dismiss.on_click(lambda _: self.dismiss())
        dismiss.add_class("speclab-dismiss")
        self.error = HBox([self.message, dismiss])
        self.error.add_class("speclab-error")
        self.bar = HBox([self.line, HBox([self.progress, self.count])])
        self.bar.add_class("speclab-statusbar")
        super().__init__([self.bar, self.error])
        self.add_class("speclab-says")
        state.observe(self._draw, names=["status", "busy", "frame", "done", "total"])
        state.observe(self._draw_error, names=["error", "details"])
        self._draw()
        self._draw_error()

    def dismiss(self) -> None:
        """Closes the error panel."""
        self._state.error = self._state.details = ""

    def _draw(self, _: Any = None) -> None:
        state = self._state
        if state.status != self._said:
            self._said, self._used = state.status, self._usage()
        badge = tag(
            "span", "live" if state.frame.live else "recorded", class_="sl-badge", title=_BADGES[state.frame.live]
        )
        spinner = tag("span", class_="sl-spinner", title=escape(state.busy)) if state.busy else ""
        said = tag("span", escape(state.status), role="status", aria_live="polite")
        words = step_words(state.frame.step)
        warned = tag("span", warning(words)) if words else ""
        used = tag("span", escape(self._used), class_="sl-muted sl-usage") if self._used else ""
        assign(self.line, value=tag("div", badge, spinner, said, warned, used, class_="sl-line"))
        assign(self.progress, max=max(state.total, 1), value=state.done)
        assign(
            self.count,
            value=tag("span", f"{state.done} of {state.total} tokens", class_="sl-muted") if state.total else "",
        )

    def _draw_error(self, _: Any = None) -> None:
        state = self._state
        folded = tag("details", tag("summary", "details"), tag("pre", escape(state.details))) if state.details else ""
        sentence = tag("div", tag("b", "Error. "), escape(state.error), role="alert")
        assign(self.message, value=sentence + folded if state.error else "")
        show(self.error, bool(state.error))


_BADGES = {
    True: "decoded by the models in this session",
    False: "a run recorded earlier, without its models; Step decodes live",
}
