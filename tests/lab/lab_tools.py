"""A page as the browser's script has it: it holds the run, says where the person is, and asks the kernel."""

from __future__ import annotations

import json
from typing import Any

from ipywidgets import Widget

from speclab.lab import Lab
from speclab.views.run_data import iteration

PROMPT = [5, 17, 3, 40, 11]
PATIENCE = 300
"""Seconds, for what ends as soon as it can: only a failing test waits so long, however busy the machine."""


def settle(lab: Lab) -> None:
    """Waits until the worker has nothing to do."""
    assert lab._worker.wait(PATIENCE)


class Page:
    """Says hello to a lab and takes over what it sends, as views/page.js does."""

    def __init__(self, lab: Lab, sent: list[dict[str, Any]]) -> None:
        self.lab = lab
        self._sent = sent
        self.iterations: list[dict[str, Any]] = []
        self.header: dict[str, Any] = {}
        self.place: tuple[Any, ...] = ()
        self.status: dict[str, Any] = {}
        self.parts: dict[str, list[Any]] = {}
        self.preview: Any = None
        self.others: list[dict[str, Any]] = []
        self.say(do="hello")

    def say(self, **message: Any) -> list[dict[str, Any]]:
        """Sends a message as the page does, and waits; what came back, by the messages it came in."""
        self._sent.clear()
        self.lab._screen.comm.handle_msg(
            {"content": {"data": {"method": "custom", "content": message}}, "buffers": []}
        )
        return self.hear()

    def hear(self) -> list[dict[str, Any]]:
        """Waits, and takes over what came since."""
        settle(self.lab)
        envelopes = self.envelopes()
        for envelope in envelopes:
            for message in envelope["messages"]:
                self._handle(message)
        self._sent.clear()
        return envelopes

    def envelopes(self) -> list[dict[str, Any]]:
        """What the screen sent, not yet taken over."""
        own = [one["data"] for one in self._sent if one["id"] == self.lab._screen.model_id]
        return [data["content"] for data in own if "messages" in data.get("content", {})]

    def size(self) -> int:
        """Bytes of everything that was sent and not yet taken over."""
        return sum(len(json.dumps(one["data"])) for one in self._sent)

    def _handle(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "run":
                self.header = message["header"]
                assert message["keep"] <= len(self.iterations)
                self.iterations[message["keep"] :] = message["iterations"]
            case "iteration":
                assert message["index"] == len(self.iterations), "each once, in order"
                self.iterations.append(message["data"])
            case "show":
                self.place = (message["cursor"], message["phase"], message["node"])
            case "status":
                self.status.update(message)
            case "preview":
                self.preview = message["preview"]
            case "parts":
                self.parts[message["place"]] = message["parts"]
            case _:
                self.others.append(message)

    def holds_the_run(self) -> bool:
        """Whether the page has just what the kernel decoded, at the kernel's place."""
        state = self.lab.state
        run = [iteration(step, state.trace) for step in state.trace.steps]
        at = (state.cursor, state.phase, state.selected)
        return json.dumps(self.iterations) == json.dumps(run) and self.place == at

    def go(
        self, cursor: int, phase: str = "all", node: int | None = None, tab: str = "caches"
    ) -> None:
        """The person goes somewhere, and the page says so."""
        self.place = (cursor, phase, node)
        self.say(do="shown", cursor=cursor, phase=phase, node=node, tab=tab)


def every(widget: Widget) -> list[Widget]:
    """A widget and all below it."""
    return [widget, *(below for child in getattr(widget, "children", ()) for below in every(child))]


def html(parts: list[Any]) -> str:
    """The HTML among the parts of a place."""
    return "".join(part for part in parts if isinstance(part, str))
