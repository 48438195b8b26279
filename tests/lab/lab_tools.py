"""What the tests of the lab share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from speclab.drafters.base import Strategy
from speclab.lab import Lab
from speclab.lab.model_picker import OWN

PROMPT = [5, 17, 3, 40, 11]


def settle(lab: Lab, seconds: float = 60) -> bool:
    """Waits until the worker has nothing to do."""
    return lab._worker.wait(seconds)


def show(lab: Lab, tab: int) -> None:
    """Opens a tab, and waits until it is drawn."""
    lab.panels.tabs.selected_index = tab
    assert settle(lab)


def decoded(make: Callable[..., Lab], tab: int, strategy: Strategy, **settings: Any) -> Lab:
    """A lab four iterations in, one tab open."""
    lab = make(strategy=strategy, **settings)
    for _ in range(4):
        lab.step()
    show(lab, tab)
    return lab


def choose_own(lab: Lab, target: object, draft: object = "", heads: str = "") -> None:
    """Names models of one's own in the picker."""
    models = lab.pickers.models
    models.name.value, models.target.value, models.draft.value = OWN, str(target), str(draft)
    models.heads.value = heads


def said_of_memory(lab: Lab) -> str:
    """What stands beside the picker, once it is known."""
    assert lab.pickers.models.memory.wait(30)
    return lab.pickers.models.memory.value


class Messages(list[dict[str, Any]]):
    """Messages from widgets to the browser."""

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return sum(len(json.dumps(message, default=str)) for message in self)

    def of(self, widget: Any) -> list[dict[str, Any]]:
        """Those of one widget."""
        return [message for message in self if message["id"] == widget.model_id]
