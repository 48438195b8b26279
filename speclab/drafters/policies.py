"""Small policies that shape a drafted tree: how many children a node gets, and which gate makes it a leaf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from speclab.trace.records import Value

BLANK = "blank"
"""The gate of a node after which whatever drafts proposes nothing."""


class Candidate(NamedTuple):
    """A node that may be expanded: its depth, the draft's probability of its token, and of its whole path p(u)."""

    depth: int
    prob: float
    path_prob: float


@dataclass(frozen=True, slots=True)
class Breadth:
    """Children by the draft's confidence c(u), its largest next-token probability (DynaTree, section 3.3, B(u)).

    Attributes:
        few, some, many: children where the draft is sure, in between, unsure (B_min, B_mid, B_max).
        low, high: sure is from `high` on (tau_h), unsure is below `low` (tau_l).
    """

    few: int
    some: int
    many: int
    low: float
    high: float

    @classmethod
    def fixed(cls, branching: int) -> Breadth:
        """The same number of children everywhere."""
        return cls(branching, branching, branching, 0.0, 1.0)

    def branches(self, confidence: float) -> int:
        """How many children a node of this confidence gets."""
        if confidence >= self.high:
            return self.few
        return self.some if confidence >= self.low else self.many

    def reason(self, confidence: float) -> str:
        """Why, in words."""
        if self.few == self.many:
            return f"confidence {confidence:.2f}; every node gets {self.few}"
        if confidence >= self.high:
            return f"confidence {confidence:.2f} ≥ high_confidence {self.high:.2f}"
        if confidence >= self.low:
            return f"confidence {confidence:.2f} between {self.low:.2f} and {self.high:.2f}"
        return f"confidence {confidence:.2f} < low_confidence {self.low:.2f}"


@dataclass(frozen=True, slots=True)
class Gate:
    """Makes a node a leaf where it is closed. `values`: the thresholds it compares with, by setting."""

    name: str
    closed: Callable[[Candidate], bool]
    reason: Callable[[Candidate], str]
    values: dict[str, Value]


def probability_gate(name: str, threshold: float) -> Gate:
    """Closed below a path probability: pruning (tau) and early stopping (rho_stop)."""
    return Gate(
        name,
        lambda node: node.path_prob < threshold,
        lambda node: f"path probability {node.path_prob:.3f} < {name} {threshold:g}",
        {name: threshold},
    )


def depth_gate(name: str, limit: int) -> Gate:
    """Closed from a depth on (D_max)."""
    return Gate(
        name,
        lambda node: node.depth >= limit,
        lambda node: f"depth {node.depth} = {name} {limit}",
        {name: limit},
    )


def deep_gate(base_depth: int, deep_probability: float) -> Gate:
    """Closed from the base depth D_0 on, but for paths of at least rho_deep."""
    return Gate(
        "deep_probability",
        lambda node: node.depth >= base_depth and node.path_prob < deep_probability,
        lambda node: f"at base_depth {base_depth} path probability {node.path_prob:.3f} < {deep_probability:g}",
        {"base_depth": base_depth, "deep_probability": deep_probability},
    )


def confidence_gate(threshold: float) -> Gate:
    """Closed after a token that the draft itself gave less than `threshold`; the token stays."""
    return Gate(
        "confidence_stop",
        lambda node: node.prob < threshold,
        lambda node: f"token probability {node.prob:.3f} < confidence_stop {threshold:g}",
        {"confidence_stop": threshold},
    )


def copy_gate() -> Gate:
    """Closed at a token that was drawn before among the same children: the walk never comes to it."""
    return Gate("copy", lambda _: True, lambda _: "drawn before it under the same node: this copy cannot stand", {})


def blank_gate() -> Gate:
    """Closed where nothing is proposed: the record that answers for a draft model may end here."""
    return Gate(BLANK, lambda _: True, lambda _: "nothing is known to come next", {})


def budget_gate(node_budget: int) -> Gate:
    """Closed for good: the tree is full (N_max)."""
    return Gate(
        "node_budget",
        lambda _: True,
        lambda _: f"node_budget {node_budget} is full",
        {"node_budget": node_budget},
    )
