"""The result of routing between two draft trees, and the result that the other tree would have had.

Dual-Draft Routing (2026), section 5, verifies the tree with the larger mean confidence. Records
contain both proposals, so the statistics need no model.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean

from speclab.trace.metrics import ratio
from speclab.trace.records import Proposal, Step, Trace

__all__ = [
    "Part",
    "Routing",
    "followed",
    "statistics",
]


@dataclass(frozen=True)
class Part:
    """One of the two parts, over all iterations in which both proposed.

    `chosen`: iterations in which its tree was verified. `accepted`, `committed`: tokens of these
    iterations, the second with bonus tokens. `confidence`: mean of its trees' mean confidence.
    `share`: mean share of its trees' nodes that the text followed, chosen or not; a calibrated part
    has equal confidence and share. `expected`, `followed`: confidence and share in tokens per
    iteration, summed over nodes.
    """

    name: str
    chosen: int
    accepted: int
    committed: int
    confidence: float
    share: float
    expected: float
    followed: float


@dataclass(frozen=True)
class Routing:
    """`iterations`: those with two proposals.

    `margin`: mean difference of their scores. `parts`: first and second.
    """

    iterations: int
    margin: float
    parts: tuple[Part, ...]


def statistics(trace: Trace) -> Routing | None:
    """Statistics of each part; None if no iteration had two proposals."""
    indices = [index for index, step in enumerate(trace.steps) if step.proposals]
    if not indices:
        return None
    steps = [trace.steps[index] for index in indices]
    margins = [abs(step.proposals[0].score - step.proposals[1].score) for step in steps]
    lengths = [followed(trace, index) for index in indices]
    parts = []
    for number in range(len(steps[0].proposals)):
        proposals = [(step, step.proposals[number]) for step in steps]
        parts.append(_part(proposals, [by_part[number] for by_part in lengths]))
    return Routing(len(steps), mean(margins), tuple(parts))


def _part(proposals: list[tuple[Step, Proposal]], followed: list[int]) -> Part:
    chosen = [step for step, proposal in proposals if proposal.chosen]
    nodes = [len(proposal.tree) - 1 for _, proposal in proposals]
    confidences = [proposal.confidence for _, proposal in proposals]
    return Part(
        name=proposals[0][1].name,
        chosen=len(chosen),
        accepted=sum(len(step.accepted) for step in chosen),
        committed=sum(len(step.committed) for step in chosen),
        confidence=mean(confidences),
        share=mean(ratio(length, count) for length, count in zip(followed, nodes, strict=True)),
        expected=mean(share * count for share, count in zip(confidences, nodes, strict=True)),
        followed=mean(followed),
    )


def followed(trace: Trace, index: int) -> tuple[int, ...]:
    """For each proposal of an iteration, the number of its tokens that the text continued with.

    Verification would have accepted as many, unless candidates were sampled or the text ended.
    """
    trees = [proposal.tree for proposal in trace.steps[index].proposals]
    # an iteration commits at least one token
    longest = 1 + max((int(tree.depth.max()) for tree in trees), default=0)
    following: list[int] = []
    for step in trace.steps[index : index + longest]:
        following += step.committed
    return tuple(len(tree.follow(following)) for tree in trees)


def __dir__() -> list[str]:
    return __all__
