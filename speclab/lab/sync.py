"""Changing widgets with as few messages as can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipywidgets import Widget


def assign(widget: Widget, **values: Any) -> None:
    """Sets what differs, in one message; sends none where nothing differs."""
    changed = {name: value for name, value in values.items() if getattr(widget, name) != value}
    if not changed:
        return
    with widget.hold_sync(), widget.hold_trait_notifications():
        for name, value in changed.items():
            setattr(widget, name, value)


def show(widget: Widget, visible: bool) -> None:  # reads as `show(panel, True)`
    """Takes a widget out of the layout, or puts it back."""
    assign(widget.layout, display=None if visible else "none")


def on_change(widget: Widget, react: Callable[[Any], None], trait: str = "value") -> None:
    """Calls `react(new value)` when the trait changes."""
    widget.observe(lambda change: react(change["new"]), names=trait)
