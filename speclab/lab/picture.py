"""A string of SVG or HTML that follows the frame, drawn only when it is seen and only when it would differ."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ipywidgets import HTML, DOMWidget, HBox

from speclab.lab.recent import Recent
from speclab.lab.state import Frame
from speclab.lab.sync import assign
from speclab.views.markup import tag
from speclab.views.tokens import escape
from speclab.views.walk import Moment

_log = logging.getLogger(__name__)
_NEVER = object()


class Picture:
    """One view in one HTML widget.

    Args:
        name: the widget's class is `speclab-name`.
        draw: the view, a pure function.
        key: what of the frame the view depends on; equal keys are not drawn again.
        recent: where what was drawn is kept, for a view that depends on its key alone.
    """

    def __init__(
        self,
        name: str,
        draw: Callable[[Frame], str],
        key: Callable[[Frame], tuple[Any, ...]],
        recent: Recent | None = None,
    ) -> None:
        self.widget = HTML()
        self.widget.add_class(f"speclab-{name}")
        self._draw, self._key, self._recent = draw, key, recent
        self._drawn: Any = _NEVER
        self._frame: Frame | None = None
        self._seen = True

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the picture is seen and would differ."""
        self._frame = frame
        key = self._key(frame)
        if not self._seen or _same(key, self._drawn):
            return
        try:
            kept = self._recent
            assign(self.widget, value=kept.get(key, lambda: self._draw(frame)) if kept else self._draw(frame))
        except Exception as error:  # noqa: BLE001  # one broken picture must not take the others along
            _log.exception("a view failed")
            assign(self.widget, value=tag("div", f"This view failed: {escape(error)}", class_="sl-empty"))
        self._drawn = key

    def redraw(self) -> None:
        """Draws again: something besides the frame has changed."""
        self._drawn = _NEVER
        if self._recent is not None:
            self._recent.forget()
        if self._frame is not None:
            self.update(self._frame)

    def see(self, seen: bool) -> None:  # reads as `see(True)`
        """Says whether the picture is on the screen; coming back, it catches up."""
        self._seen = seen
        if seen and self._frame is not None:
            self.update(self._frame)


def _same(key: Any, drawn: Any) -> bool:
    """Records are compared by identity: they are immutable, and comparing a whole run would cost more than drawing."""
    if not isinstance(key, tuple) or not isinstance(drawn, tuple) or len(key) != len(drawn):
        return False
    return all(a is b or (isinstance(a, _PLAIN) and a == b) for a, b in zip(key, drawn, strict=True))


_PLAIN = (int, str, float, bool, frozenset, Moment)


def heading(name: str, *controls: DOMWidget) -> HBox:
    """A view's name, and what changes how it is drawn."""
    made = HBox([HTML(tag("span", escape(name), class_="sl-h", role="heading", aria_level=3)), *controls])
    made.add_class("speclab-heading")
    return made


def said(sentence: str) -> str:
    """What a picture shows, in words, below it."""
    return tag("p", escape(sentence), class_="sl-said")


def empty(message: str) -> str:
    """What stands where there is nothing to draw yet."""
    return tag("div", escape(message), class_="sl-empty")
