"""Opens traces of format 2, whose records contained sentences beside their numbers."""

from __future__ import annotations

from typing import Any

from speclab.trace.records import UNKNOWN, VERSION

_GATES = {
    "depth": "max_depth",
    "draft_tokens": "max_depth",
    "confidence_stop": "token_probability",
    "children": "best",
    "the context": "context",
}
"""What strategies called a gate."""
_NO_SETTING = (None, "the context", "copy", "blank")


def from_format_2(raw: Any) -> dict[str, Any] | None:
    """The same trace in today's format; None if it means something else: where candidates were
    tried one by one, only the last of them are in it as numbers.
    """
    try:
        steps = [_step(step) for step in raw["steps"]]
    except (KeyError, TypeError, AttributeError, ValueError):
        return None
    return {**raw, "steps": steps, "version": VERSION}


def _step(step: dict[str, Any]) -> dict[str, Any]:
    if "draws" in step["rule"]:
        raise ValueError
    if step["residual"] is not None:
        del step["residual"]["trials"]
    return {
        **step,
        "nodes": [_node(node) for node in step["nodes"]],
        "events": [_event(event) for event in step["events"]],
        "adaptation": {name: step["adaptation"][name] for name in ("before", "after")},
    }


def _node(node: dict[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in node.items() if name != "reason"}
    choice = node["target_choice"]
    top = dict(map(tuple, node["target_top"]))
    return known | {"choice_prob": None if choice == UNKNOWN else top.get(choice)}


def _event(event: dict[str, Any]) -> dict[str, Any]:
    values = dict(event["values"])
    name = values.get("gate")
    if name in values:
        values["threshold"] = values.pop(name)
    if name is not None:
        values["gate"] = _GATES.get(name, name)
    if name not in _NO_SETTING:
        values["setting"] = name
    return {"kind": event["kind"], "node": event["node"], "values": values}
