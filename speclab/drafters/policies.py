"""Small policies that shape a drafted tree: how many children a node gets, which gate makes it a leaf, how candidates
are chosen.

A policy names the settings of the strategy that uses it, so that the reasons in the record are in the user's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, inf
from typing import Literal, NamedTuple

from speclab.drafters.base import Context, TopK
from speclab.engine.acceptance import Probabilities, Rng, draw_independent, draw_without_replacement
from speclab.trace.records import Value
from speclab.tree import CandidateSampling

BLANK = "blank"
"""The gate of a node after which whatever drafts proposes nothing."""


@dataclass(frozen=True, slots=True)
class Breadth:
    """How many children a node gets, by its most probable next tokens and their log-probabilities, best first.

    Attributes:
        most: children that no node exceeds.
        branches: the number of children.
        reason: why, in words.
    """

    most: int
    branches: Callable[[TopK], int]
    reason: Callable[[TopK], str]


def fixed_breadth(branching: int) -> Breadth:
    """The same number of children everywhere."""
    return Breadth(
        branching, lambda _: branching, lambda top: f"confidence {confidence(top):.2f}; every node gets {branching}"
    )


def confidence(top: TopK) -> float:
    """c(u), the largest next-token probability (DynaTree, section 3.3)."""
    return exp(top[0][1])


class Candidate(NamedTuple):
    """A node that may be expanded: its depth, the draft's probability of its token, and of its whole path p(u)."""

    depth: int
    prob: float
    path_prob: float


@dataclass(frozen=True, slots=True)
class Gate:
    """Makes a node a leaf where it is closed: to nodes from `depth` on whose probabilities are both below the bounds.

    Attributes:
        reason: why, with the fields of a `Candidate` in braces.
        values: the thresholds it compares with, by setting.
        depth, prob, path_prob: what a `Candidate` is compared with; by default the gate is closed to every node.
    """

    name: str
    reason: str
    values: dict[str, Value] = field(default_factory=dict)
    depth: int = 0
    prob: float = inf
    path_prob: float = inf


def closed_gates(gates: Sequence[Gate], nodes: Iterable[Candidate]) -> list[Gate | None]:
    """The first gate that is closed to each node; None where all are open."""
    found: list[Gate | None] = []
    for node in nodes:
        for gate in gates:
            if node.depth >= gate.depth and node.path_prob < gate.path_prob and node.prob < gate.prob:
                found.append(gate)
                break
        else:
            found.append(None)
    return found


def probability_gate(name: str, threshold: float) -> Gate:
    """Closed below a path probability: pruning (tau) and early stopping (rho_stop)."""
    reason = f"path probability {{path_prob:.3f}} < {name} {threshold:g}"
    return Gate(name, reason, {name: threshold}, path_prob=threshold)


def depth_gate(name: str, limit: int) -> Gate:
    """Closed from a depth on (D_max)."""
    return Gate(name, f"depth {{depth}} = {name} {limit}", {name: limit}, depth=limit)


def token_gate(name: str, threshold: float) -> Gate:
    """Closed after a token that the draft itself gave less than `threshold`; the token stays."""
    return Gate(name, f"token probability {{prob:.3f}} < {name} {threshold:g}", {name: threshold}, prob=threshold)


def closed_gate(name: str, reason: str, **values: Value) -> Gate:
    """Closed to every node."""
    return Gate(name, reason.replace("{", "{{").replace("}", "}}"), values)


COPY_GATE = closed_gate("copy", "sampled before it under the same node: this copy cannot be accepted")
BLANK_GATE = closed_gate(BLANK, "nothing is known to come next")
"""Also where the record that answers for a draft model ends."""


def budget_gate(name: str, node_budget: int) -> Gate:
    """Closed for good: the tree is full (N_max)."""
    return closed_gate(name, f"{name} {node_budget} is full", **{name: node_budget})


Candidates = Literal["top", "independent", "without_replacement"]
CANDIDATES_HELP = (
    "children of a node: the most probable tokens, as in the paper; or (not in the paper) samples: independent "
    "(SpecInfer's rule), or without replacement (EAGLE-1's and Sequoia's); at temperature 0 the most probable"
)


@dataclass(frozen=True, slots=True)
class CandidateSampler:
    """How the children of one tree are sampled: `pick(probabilities, count)` gives their tokens, in order."""

    sampling: CandidateSampling
    pick: Callable[[Probabilities, int], list[int]]


_SAMPLERS: dict[Candidates, tuple[CandidateSampling, Callable[[Probabilities, int, Rng], list[int]]]] = {
    "independent": (CandidateSampling.INDEPENDENT, draw_independent),
    "without_replacement": (CandidateSampling.WITHOUT_REPLACEMENT, draw_without_replacement),
}


def candidate_sampler(candidates: Candidates, context: Context) -> CandidateSampler | None:
    """The sampler of this iteration's tree; None where candidates are the top-k, as always at temperature 0.

    They are sampled from the draft's distribution, warped by temperature, top-k and top-p as the target's is, which the
    acceptance rules of SpecInfer, EAGLE-1 and Sequoia ask for. A sampled candidate stays in the tree whatever its
    probability; only whether it is expanded, and how many children it gets, may depend on it.
    """
    if candidates == "top" or context.sampling.temperature == 0:
        return None
    from speclab.engine.sampling import PositionalRng, RngPurpose  # brings torch, which settings do without

    sampling, draw = _SAMPLERS[candidates]
    rng = PositionalRng(context.sampling.seed, len(context.tokens) - 1, RngPurpose.DRAFTING)
    return CandidateSampler(sampling, lambda probabilities, count: draw(probabilities, count, rng))
