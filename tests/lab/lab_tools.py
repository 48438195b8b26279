"""What the tests of the lab share."""

from __future__ import annotations

import json
from typing import Any

from speclab.lab import Lab

PROMPT = [5, 17, 3, 40, 11]


def settle(lab: Lab, seconds: float = 60) -> bool:
    """Waits until the worker has nothing to do."""
    return lab._worker.wait(seconds)


class Messages(list[dict[str, Any]]):
    """Messages from widgets to the browser."""

    @property
    def size(self) -> int:
        """Bytes, roughly."""
        return sum(len(json.dumps(message, default=str)) for message in self)

    def of(self, widget: Any) -> list[dict[str, Any]]:
        """Those of one widget."""
        return [message for message in self if message["id"] == widget.model_id]
