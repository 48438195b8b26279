"""Changing widgets with as few messages as can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import local
from typing import Any

from ipywidgets import Widget

_here = local()


@contextmanager
def together() -> Iterator[None]:
    """What this thread assigns meanwhile is sent at the end, a message a widget; what was assigned first comes last.

    A browser lays out and paints for what comes in between: sent as they are drawn, five views cost it three frames.
    """
    if getattr(_here, "held", None) is not None:
        yield
        return
    with ExitStack() as held:
        _here.held = held
        try:
            yield
        finally:
            _here.held = None


def assign(widget: Widget, **values: Any) -> None:
    """Sets what differs, in one message; sends none where nothing differs."""
    held = getattr(_here, "held", None)
    if held is not None and _differs(widget, values):
        held.enter_context(widget.hold_sync())
    at_once(widget, **values)


def at_once(widget: Widget, **values: Any) -> None:
    """As `assign`, and never later: for what must reach the browser in this order."""
    changed = _differs(widget, values)
    if not changed:
        return
    with widget.hold_sync(), widget.hold_trait_notifications():
        for name, value in changed.items():
            setattr(widget, name, value)


def _differs(widget: Widget, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if getattr(widget, name) != value}


def show(widget: Widget, visible: bool) -> None:  # reads as `show(panel, True)`
    """Takes a widget out of the layout, or puts it back."""
    assign(widget.layout, display=None if visible else "none")


def on_change(widget: Widget, react: Callable[[Any], None], trait: str = "value") -> None:
    """Calls `react(new value)` when the trait changes."""
    widget.observe(lambda change: react(change["new"]), names=trait)
