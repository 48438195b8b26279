"""A page as the browser has it: it holds the run, says where the person is, and asks the kernel."""

from __future__ import annotations

import json
from typing import Any

from speclab.lab import Lab
from speclab.lab._messages import to_page
from speclab.views.run_data import step_data

PROMPT = [5, 17, 3, 40, 11]
PATIENCE = 300
"""Seconds, for what ends as soon as it can: only a failing test waits so long."""


class Page:
    """Says hello to a lab and takes over what it sends, as the page's script does."""

    def __init__(self, lab: Lab, sent: list[dict[str, Any]]) -> None:
        self.lab = lab
        self._sent = sent
        self.steps: list[dict[str, Any]] = []
        self.header: dict[str, Any] = {}
        self.place: tuple[Any, ...] = ()
        self.moves = 0
        self.status: dict[str, Any] = {}
        self.panels: dict[str, dict[str, Any]] = {}
        assert lab.wait(PATIENCE)
        self.do("hello")

    def do(self, name: str, /, **fields: Any) -> list[dict[str, Any]]:
        """Sends a message as the page does, and waits; the envelopes that came back."""
        self.hear()
        self.ask(do=name, **fields)
        return self.hear()

    def run_until(self, value: Any = None, kind: str = "expression") -> None:
        """Runs until what the page's field says."""
        self.do("run", until={"kind": kind, "value": value})

    def ask(self, **message: Any) -> None:
        """Sends a message and does not wait."""
        if message["do"] == "shown":
            message.setdefault("moves", self.moves)
        self.lab.comm.handle_msg(
            {"content": {"data": {"method": "custom", "content": message}}, "buffers": []}
        )

    def hear(self) -> list[dict[str, Any]]:
        """Waits, and takes over what came since."""
        assert self.lab.wait(PATIENCE)
        envelopes = self.envelopes()
        for envelope in envelopes:
            for message in json.loads(json.dumps(envelope["messages"])):
                self._handle(message)
        self._sent.clear()
        return envelopes

    def envelopes(self) -> list[dict[str, Any]]:
        """What the lab sent and the page has not yet taken over."""
        data = [one["data"] for one in self._sent if one["id"] == self.lab.model_id]
        return [one["content"] for one in data if "messages" in one.get("content", {})]

    def size(self) -> int:
        """Bytes of everything that was sent and not yet taken over."""
        return sum(len(json.dumps(one["data"])) for one in self._sent)

    def _handle(self, message: dict[str, Any]) -> None:
        fields = {name: value for name, value in message.items() if name != "type"}
        assert to_page(message["type"], **fields) == message
        match message["type"]:
            case "run":
                self.header = message["header"]
                assert message["keep"] <= len(self.steps)
                self.steps[message["keep"] :] = message["steps"]
            case "step":
                assert message["index"] == len(self.steps), "each once, in order"
                self.steps.append(message["step"])
            case "show":
                self.place = (message["cursor"], message["phase"], message["node"])
                self.moves = message["moves"]
            case "status":
                self.status.update(fields)
            case _:
                self.panels[message["type"]] = fields

    @property
    def preview(self) -> dict[str, Any] | None:
        """The tree that lies over the step's own."""
        return self.panels.get("preview", {}).get("what_if")

    @property
    def error(self) -> dict[str, Any] | None:
        return self.status["error"]

    def holds_the_run(self) -> bool:
        """Whether the page has just what the kernel decoded, at the kernel's position."""
        state = self.lab.state
        run = [step_data(step) for step in state.steps]
        position = (state.cursor, state.phase, state.selected)
        return self.steps == json.loads(json.dumps(run)) and self.place == position

    def go(
        self, cursor: int, phase: str = "all", node: int | None = None, tab: str = "caches"
    ) -> None:
        """The person goes somewhere, and the page says so."""
        self.place = (cursor, phase, node)
        self.do("shown", cursor=cursor, phase=phase, node=node, tab=tab)

    def want(self, **parts: Any) -> list[dict[str, Any]]:
        """The person changes parts of the form."""
        return self.do("want", **parts)

    def set(self, **settings: Any) -> list[dict[str, Any]]:
        """The person changes settings of the form's strategy."""
        name = self.status["wanted"]["strategy"]["name"]
        return self.want(strategy={"name": name, "settings": settings})
