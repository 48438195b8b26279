"""Hears clicks on the nodes of the lab's pictures, which are strings and hear nothing themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anywidget import AnyWidget

from speclab.lab.sync import show


class Pointer(AnyWidget):
    """Draws nothing: without it, as in a saved notebook, the pictures are there all the same.

    Args:
        clicked: called with the node that a person clicked, in the tree or in the mask.
    """

    _esm = Path(__file__).with_name("pointer.js").read_text(encoding="utf-8")

    def __init__(self, clicked: Callable[[int], Any]) -> None:
        super().__init__()
        self._clicked = clicked
        self.on_msg(self._heard)
        show(self, visible=False)

    def _heard(self, _: Any, content: Any, __: Any) -> None:
        node = content.get("node") if isinstance(content, dict) else None
        if isinstance(node, int):
            self._clicked(node)
