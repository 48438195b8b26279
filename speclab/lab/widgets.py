"""What all panels are made of: widgets changed with as few messages as can be, and views drawn only when seen."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import local
from typing import Any

from anywidget import AnyWidget
from ipywidgets import HTML, Button, DOMWidget, HBox, Widget

from speclab.trace.records import Step, Trace
from speclab.views.markup import escape, tag
from speclab.views.playback import PlaybackPosition
from speclab.views.registry import Frame

ROOM = 2**22
"""Characters a cache keeps: some hundred pictures of a tree of 60 nodes."""
_RECORDS = (Step, Trace)
_PLAIN = (int, str, float, bool, frozenset, PlaybackPosition)
_NEVER: tuple[Any, ...] = (object(),)
_batch = local()
_log = logging.getLogger(__name__)


@contextmanager
def batch_updates() -> Iterator[None]:
    """What this thread sets meanwhile is sent at the end, a message per widget; what was set first comes last.

    A browser lays out and paints for what comes in between: sent as they are drawn, five views cost it three frames.
    """
    if getattr(_batch, "held", None) is not None:
        yield
        return
    with ExitStack() as held:
        _batch.held = held
        try:
            yield
        finally:
            _batch.held = None


def set_if_changed(widget: Widget, at_once: bool = False, **values: Any) -> None:
    """Sets what differs, in one message; sends none where nothing differs.

    `at_once`: even within `batch_updates`, for what must reach the browser in this order.
    """
    for name in tuple(values):
        if getattr(widget, name) == values[name]:
            del values[name]
    if not values:
        return
    held = getattr(_batch, "held", None)
    if held is not None and not at_once:
        held.enter_context(widget.hold_sync())
    with widget.hold_sync(), widget.hold_trait_notifications():
        for name, value in values.items():
            setattr(widget, name, value)


def set_visible(widget: Widget, visible: bool) -> None:
    """Takes a widget out of the layout, or puts it back."""
    set_if_changed(widget.layout, display=None if visible else "none")


def on_change(widget: Widget, react: Callable[[Any], None], trait: str = "value") -> None:
    """Calls `react(new value)` when the trait changes."""
    widget.observe(lambda change: react(change["new"]), names=trait)


def button(name: str, description: str, tooltip: str, icon: str, click: Callable[[], Any], style: str = "") -> Button:
    """A button found by the class `speclab-name`."""
    made = Button(description=description, tooltip=tooltip, icon=icon, button_style=style)
    made.add_class(f"speclab-{name}")
    made.on_click(lambda _: click())
    return made


def heading(name: str, *controls: DOMWidget) -> HBox:
    """A view's name, and what changes how it is drawn."""
    made = HBox([HTML(tag("span", escape(name), class_="sl-h", role="heading", aria_level=3)), *controls])
    made.add_class("speclab-heading")
    return made


def caption_html(sentence: str) -> str:
    """What a picture shows, in words, below it."""
    return tag("p", escape(sentence), class_="sl-said") if sentence else ""


def placeholder(message: str) -> str:
    """What stands where there is nothing to draw yet."""
    return tag("div", escape(message), class_="sl-empty")


class RenderCache:
    """The strings drawn last, by what they depend on, so that going back and forth in a run draws nothing twice.

    Records are told apart by identity: they are immutable.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], tuple[tuple[Any, ...], str]] = OrderedDict()
        self._size = 0

    def get(self, key: tuple[Any, ...], draw: Callable[[], str]) -> str:
        """The string of `key`, drawn where it is not kept."""
        place = tuple([id(part) if isinstance(part, _RECORDS) else part for part in key])
        if place in self._kept:
            self._kept.move_to_end(place)
            return self._kept[place][1]
        drawn = draw()
        self._kept[place] = key, drawn  # with its records: while they live, no other has their id
        self._size += len(drawn)
        while self._size > ROOM and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1][1])
        return drawn


class ViewPanel:
    """A string of SVG or HTML in one HTML widget, drawn only when it is seen and only when it would differ.

    Args:
        name: the widget's class is `speclab-name`.
        draw: the view, a pure function.
        key: what of the frame the view depends on; equal keys are not drawn again.
        cached: whether what was drawn is kept: for a view that depends on its key alone.
    """

    def __init__(
        self,
        name: str,
        draw: Callable[[Frame], str],
        key: Callable[[Frame], tuple[Any, ...]],
        *,
        cached: bool = False,
    ) -> None:
        self.widget = HTML()
        self.widget.add_class(f"speclab-{name}")
        self._draw, self._key = draw, key
        self._cache = RenderCache() if cached else None
        self._drawn = _NEVER
        self._frame: Frame | None = None
        self._visible = True

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the view is seen and would differ."""
        self._frame = frame
        if not self._visible:
            return
        key = self._key(frame)
        if _same(key, self._drawn):
            return
        try:
            drawn = self._cache.get(key, lambda: self._draw(frame)) if self._cache else self._draw(frame)
        except Exception as error:  # noqa: BLE001  # one broken view must not take the others along
            _log.exception("a view failed")
            drawn = placeholder(f"This view failed: {error}")
        set_if_changed(self.widget, value=drawn)
        self._drawn = key

    def set_visible(self, visible: bool) -> None:
        """Says whether the view is on the screen; coming back, it catches up."""
        self._visible = visible
        if visible and self._frame is not None:
            self.update(self._frame)


def _same(key: tuple[Any, ...], drawn: tuple[Any, ...]) -> bool:
    """Records are compared by identity: they are immutable, and comparing a whole run would cost more than drawing."""
    if len(key) != len(drawn):
        return False
    for one, other in zip(key, drawn, strict=True):
        if one is not other and not (isinstance(one, _PLAIN) and one == other):
            return False
    return True


class Pointer(AnyWidget):
    """Hears clicks on the nodes of the views, which are strings and hear nothing themselves.

    It draws nothing: without it, as in a saved notebook, the views are there all the same.

    Args:
        clicked: called with the node that a person clicked, in the tree or in the mask.
    """

    _esm = Path(__file__).with_name("pointer.js").read_text(encoding="utf-8")

    def __init__(self, clicked: Callable[[int], Any]) -> None:
        super().__init__()
        self._clicked = clicked
        self.on_msg(self._heard)
        set_visible(self, visible=False)

    def _heard(self, _: Any, content: Any, __: Any) -> None:
        node = content.get("node") if isinstance(content, dict) else None
        if isinstance(node, int):
            self._clicked(node)
