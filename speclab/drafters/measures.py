"""What a step recorded that a setting is a threshold on: the type of its field says which, so no strategy is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic.fields import FieldInfo

from speclab.trace.records import NodeRecord, Step

Measure = Literal["confidence", "path probability", "token probability", "depth", "nodes"]


@dataclass(frozen=True, slots=True)
class _Against:
    measure: Measure


Confidence = Annotated[float, _Against("confidence")]
PathProbability = Annotated[float, _Against("path probability")]
TokenProbability = Annotated[float, _Against("token probability")]
Depth = Annotated[int, _Against("depth")]
NODES = _Against("nodes")
Nodes = Annotated[int, NODES]


def measure_of(field: FieldInfo) -> Measure | None:
    """What a field is a threshold on; None where it is no threshold."""
    return next((mark.measure for mark in field.metadata if isinstance(mark, _Against)), None)


def small_matters(field: FieldInfo) -> bool:
    """Whether a probability is one of a path or a token, of which most are small; a confidence lies anywhere."""
    measure = measure_of(field)
    small = isinstance(field.default, float) and field.default <= 0.1
    return measure in {"path probability", "token probability"} or (measure is None and small)


def measured(step: Step, measure: Measure) -> tuple[float, ...]:
    """The values of one step: of its drafted nodes, and of what was pruned as far as that is recorded.

    "confidence": the largest next-token probability, of every expanded node. "path probability", "token probability",
    0…1: of every drafted node. "depth": of every drafted node, in edges from node 0. "nodes": how many there are;
    of several proposed trees, in each.
    """
    return _MEASURED[measure](step)


def _drafted(step: Step) -> list[NodeRecord]:
    return [node for node in step.nodes if node.verdict != "root"]


def _paths(step: Step) -> tuple[float, ...]:
    pruned = (event.values.get("path_prob") for event in step.events if event.kind == "prune")
    return (*(node.path_prob for node in _drafted(step)), *(prob for prob in pruned if isinstance(prob, float)))


_MEASURED: dict[Measure, Callable[[Step], tuple[float, ...]]] = {
    "confidence": lambda step: tuple(node.draft_top[0][1] for node in step.nodes if node.draft_top),
    "path probability": _paths,
    "token probability": lambda step: tuple(node.draft_prob for node in _drafted(step)),
    "depth": lambda step: tuple(float(step.tree.depth[node.index]) for node in _drafted(step)),
    "nodes": lambda step: tuple(float(len(one.tree)) for one in step.proposals) or (float(len(step.tree)),),
}
