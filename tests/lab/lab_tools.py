"""What the tests of the lab share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ipywidgets import Widget

from speclab.drafters.base import Strategy
from speclab.lab import Lab
from speclab.lab.models import OWN
from speclab.lab.screen import Slot

PROMPT = [5, 17, 3, 40, 11]
PATIENCE = 300
"""Seconds, for what ends as soon as it can: only a failing test waits so long, however busy the machine."""


def every(widget: Widget) -> list[Widget]:
    """A widget and all below it."""
    return [widget, *(found for child in getattr(widget, "children", ()) for found in every(child))]


def settle(lab: Lab, seconds: float = PATIENCE) -> bool:
    """Waits until the worker has nothing to do."""
    return lab._worker.wait(seconds)


def click(lab: Lab, button: Widget) -> None:
    """Presses a button, and waits until what it asks for is done."""
    button.click()
    assert settle(lab)


def ask(lab: Lab, method: str, *arguments: Any) -> Any:
    """Asks the controller, as a button does, and waits for the answer."""
    return lab._actions.ask(getattr(lab._controller, method), *arguments).result(PATIENCE)


def show(lab: Lab, tab: str) -> None:
    """Opens a tab by its title, and waits until it is drawn."""
    lab.panels.tabs.show_tab(tab)
    assert settle(lab)


def decoded(make: Callable[..., Lab], tab: str, strategy: Strategy, **settings: Any) -> Lab:
    """A lab four iterations in, one tab open."""
    lab = make(strategy=strategy, **settings)
    for _ in range(4):
        lab.step()
    show(lab, tab)
    return lab


def choose_own(lab: Lab, target: object, draft: object = "", heads: str = "") -> None:
    """Names models of one's own in the picker."""
    models = lab.config.models
    models.name.value, models.target.value, models.draft.value = OWN, str(target), str(draft)
    models.heads.value = heads


def said_of_memory(lab: Lab) -> str:
    """What stands beside the picker, once it is known."""
    assert lab.config.models.memory._worker.wait(PATIENCE)
    return lab.config.models.memory.value


def html(slot: Slot) -> str:
    """The HTML parts of what a slot shows."""
    return "".join(part for part in json.loads(slot.drawing or "[]") if isinstance(part, str))


class Messages(list[dict[str, Any]]):
    """Messages from widgets to the browser."""

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return sum(len(json.dumps(message, default=str)) for message in self)

    def of(self, widget: Any) -> list[dict[str, Any]]:
        """Those of one widget, or those of the screen that fill one slot."""
        if isinstance(widget, Slot):
            return [message for message in self if widget.name in message["data"].get("state", {})]
        return [message for message in self if message["id"] == widget.model_id]
