"""What a step recorded that a setting is a threshold on: the type of its field says which, so no strategy is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic.fields import FieldInfo

from speclab.trace.records import Step

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
    """Whether most values of a probability are small: of paths and tokens, and of a threshold that is small itself."""
    measure = measure_of(field)
    small = isinstance(field.default, float) and field.default <= 0.1
    return measure in {"path probability", "token probability"} or (measure is None and small)


def measured(step: Step, measure: Measure) -> tuple[float, ...]:
    """The values of one step.

    "confidence": the largest next-token probability of every expanded node. "path probability", "token probability",
    0…1, and "depth", in edges from node 0: of every drafted node, and the paths of pruned ones. "nodes": how many there
    are; of several proposed trees, in each.
    """
    if measure == "confidence":
        return tuple(node.draft_top[0][1] for node in step.nodes if node.draft_top)
    if measure == "nodes":
        return tuple(float(len(proposal.tree)) for proposal in step.proposals) or (float(len(step.tree)),)
    drafted = [node for node in step.nodes if node.verdict != "root"]
    if measure == "token probability":
        return tuple(node.draft_prob for node in drafted)
    if measure == "depth":
        return tuple(float(step.tree.depth[node.index]) for node in drafted)
    pruned = [float(event.values["path_prob"] or 0) for event in step.events if event.kind == "prune"]
    return (*(node.path_prob for node in drafted), *pruned)
