"""What all panels are made of: widgets changed with as few messages as can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import RLock, local
from typing import Any

from ipywidgets import HTML, Button, DOMWidget, HBox, ToggleButton, Widget

from speclab.views.markup import escape, tag

_batch = local()
_guard = RLock()
_holds: dict[Widget, tuple[AbstractContextManager[None], int]] = {}
"""Widgets that send nothing now, and how many times that is asked for."""


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


@contextmanager
def _held(widget: Widget) -> Iterator[None]:
    """`hold_sync` for several threads: by itself it forgets what one of them sets while another's hold is being sent.

    So the last to leave sends, and nobody enters meanwhile.
    """
    with _guard:
        hold, count = _holds.get(widget) or (widget.hold_sync(), 0)
        if not count:
            hold.__enter__()
        _holds[widget] = hold, count + 1
    try:
        yield
    finally:
        with _guard:
            hold, count = _holds.pop(widget)
            if count > 1:
                _holds[widget] = hold, count - 1
            else:
                hold.__exit__(None, None, None)


def set_if_changed(widget: Widget, **values: Any) -> None:
    """Sets what differs, in one message; sends none where nothing differs."""
    for name in tuple(values):
        if getattr(widget, name) == values[name]:
            del values[name]
    if not values:
        return
    held = getattr(_batch, "held", None)
    if held is not None:
        held.enter_context(_held(widget))
    with _held(widget), widget.hold_trait_notifications():
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


def toggle(name: str, description: str, tooltip: str, show: Callable[[bool], Any]) -> ToggleButton:
    """A button that stays down, found by the class `speclab-name`."""
    made = ToggleButton(description=description, tooltip=tooltip)
    made.add_class(f"speclab-{name}")
    on_change(made, show)
    return made


def heading(name: str, *controls: DOMWidget) -> HBox:
    """A view's name, and what changes how it is drawn."""
    made = HBox([HTML(tag("span", escape(name), class_="sl-h", role="heading", aria_level=3)), *controls])
    made.add_class("speclab-heading")
    return made
