"""What an expression may ask of a Step: a name, its kind, what it means, and how it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from speclab.trace import Step

Kind = Literal["number", "text", "truth", "numbers", "texts", "setting", "nothing"]
PHASES = ("draft", "verify", "accept", "commit", "adapt")


@dataclass(frozen=True, slots=True)
class Fact:
    """One named field. `of` gives None where a step has no such thing, such as a route of a strategy without routes."""

    kind: Kind
    meaning: str
    of: Callable[[Step], Any]


def _route(step: Step) -> str | None:
    return next((str(event.values.get("route", event.reason)) for event in step.events if event.kind == "route"), None)


def _confidence(step: Step) -> Any:
    found = (event.values.get("confidence") for event in step.events if event.kind == "expand")
    return next((value for value in found if value is not None), None)


def _text(step: Step) -> str:
    return "".join(step.texts.get(token, "") for token in step.committed)


def _width(step: Step) -> int:
    return max(Counter(step.tree.depth.tolist()).values())


def _corrected(step: Step) -> bool:
    end = step.accepted[-1] if step.accepted else -1 if step.root_choice is not None else 0
    refused = (node for node in step.nodes if node.verdict == "rejected")
    return step.bonus is not None and any(step.tree.parent[node.index] == end for node in refused)


def _changed(step: Step) -> tuple[str, ...]:
    before, after = step.adaptation.before, step.adaptation.after
    return tuple(name for name in {**before, **after} if before.get(name) != after.get(name))


def _gates(step: Step) -> tuple[str, ...]:
    return tuple(str(event.values["gate"]) for event in step.events if "gate" in event.values)


FACTS: dict[str, Fact] = {
    "iteration": Fact("number", "the iteration, counted from 1 as the lab counts", lambda step: step.index + 1),
    "index": Fact("number", "the iteration, counted from 0", lambda step: step.index),
    "prefix": Fact("number", "entries in the target's cache before the pass", lambda step: step.prefix_length),
    "nodes": Fact("number", "nodes of the tree, root included", lambda step: len(step.tree)),
    "depth": Fact("number", "the deepest level of the tree; the root is 0", lambda step: int(step.tree.depth.max())),
    "width": Fact("number", "nodes on the tree's widest level", _width),
    "drafted": Fact("number", "drafted tokens verified", lambda step: step.counts.drafted),
    "accepted": Fact("number", "drafted tokens accepted", lambda step: step.counts.accepted),
    "rejected": Fact(
        "number",
        "nodes rejected: the walk reached their parent, and the target chose otherwise",
        lambda step: sum(node.verdict == "rejected" for node in step.nodes),
    ),
    "committed": Fact("number", "tokens committed, the target's own included", lambda step: len(step.committed)),
    "acceptance": Fact(
        "number",
        "accepted / drafted, 0 to 1; nothing where nothing was drafted",
        lambda step: step.counts.accepted / step.counts.drafted if step.counts.drafted else None,
    ),
    "entropy": Fact(
        "number",
        "the largest entropy of the target's law on the committed path, root included; nats",
        lambda step: max(step.nodes[node].entropy for node in (0, *step.accepted)),
    ),
    "confidence": Fact("number", "the draft's confidence at the first node expanded, 0 to 1", _confidence),
    "target_calls": Fact("number", "forward passes of the target", lambda step: step.counts.target_calls),
    "draft_calls": Fact("number", "forward passes of draft models and heads", lambda step: step.counts.draft_calls),
    "seconds": Fact(
        "number", "seconds of all phases; seconds.verify: of one of them", lambda step: sum(step.seconds.values())
    ),
    "text": Fact("text", "the text committed", _text),
    "bonus": Fact(
        "text",
        "the target's own token, as text",
        lambda step: None if step.bonus is None else step.texts.get(step.bonus, ""),
    ),
    "route": Fact("text", "which way the drafter went", _route),
    "note": Fact("text", "what the record notes, such as a tie", lambda step: step.note),
    "tokens": Fact("numbers", "the token ids committed", lambda step: step.committed),
    "verdicts": Fact(
        "texts",
        "verdicts of the nodes: root, accepted, rejected, not reached",
        lambda step: tuple(node.verdict for node in step.nodes),
    ),
    "sources": Fact("texts", "which parts of the drafter proposed the nodes", lambda step: step.tree.source),
    "gates": Fact("texts", "gates that stopped drafting, such as node_budget", _gates),
    "changed": Fact("texts", "settings that the drafter changed for the next iteration", _changed),
    "adapted": Fact("truth", "whether it changed any", lambda step: bool(_changed(step))),
    "corrected": Fact("truth", "whether the target replaced a rejected candidate by its own token", _corrected),
    "mask_differs": Fact(
        "truth",
        "whether the target was given another mask than the ancestor closure",
        lambda step: bool((step.mask != step.tree.ancestor_mask()).any()),
    ),
}
"""Every name, in the order in which help shows it."""
