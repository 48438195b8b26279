"""Expected yields of chains, isotropic trees and trees of any shape, from acceptance rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from speclab.errors import SettingsError
from speclab.theory._checks import check_count, check_rate, check_rates

if TYPE_CHECKING:
    from speclab.tree import DraftTree


@dataclass(frozen=True, slots=True)
class IsotropicShape:
    """A full tree: `branching` children (b) under every node, `depth` levels under the root."""

    branching: int
    depth: int
    expected_tokens: float

    @property
    def nodes(self) -> int:
        """Drafted nodes: b + b² + … + b^depth."""
        return sum(self.branching**level for level in range(1, self.depth + 1))


def chain_yield(acceptance: float, length: int) -> float:
    """Expected yield of a chain of `length` tokens, each accepted at the rate `acceptance`: 1 + Σ_{i=1..length} p^i.

    Leviathan et al. 2023, equation 1, whose closed form loses digits near p = 1. From 1 (rate 0) to length + 1
    (rate 1).

    Raises:
        SettingsError: `acceptance` is outside 0…1, or `length` is not a whole number of at least 0.
    """
    check_rate("acceptance", acceptance)
    check_count("length", length)
    return 1.0 + float(np.sum(acceptance ** np.arange(1, length + 1)))


def isotropic_yield(acceptance: float, branching: int, depth: int) -> float:
    """Expected yield of a full tree whose siblings are accepted independently (GOOSE, section 3 and appendix E.3).

    1 + Σ_{d=1..depth} (1 − (1 − p)^b)^d: a level is passed when at least one of b siblings is right, and then the walk
    goes down *one* of those. Independent siblings are the paper's model. Siblings that carry different tokens
    exclude one another; `tree_yield` is exact for them.

    Args:
        acceptance: p, 0…1, the same for every token.
        branching: b, children of every node, at least 1.
        depth: levels under the root, at least 0.

    Raises:
        SettingsError: an argument is out of its range.
    """
    check_rate("acceptance", acceptance)
    check_count("branching", branching, least=1)
    check_count("depth", depth)
    return chain_yield(1.0 - (1.0 - acceptance) ** branching, depth)


def best_isotropic(acceptance: float, node_budget: int) -> IsotropicShape:
    """The branching and depth with the largest `isotropic_yield` whose full tree has at most `node_budget` nodes.

    Only full trees compete, so part of the budget may stay unused. Among equals the narrowest is given.

    Raises:
        SettingsError: `acceptance` is outside 0…1, or `node_budget` is not a whole number of at least 1.
    """
    check_count("node_budget", node_budget, least=1)
    shapes = []
    for branching in range(1, node_budget + 1):
        depth = _full_levels(branching, node_budget)
        shapes.append(IsotropicShape(branching, depth, isotropic_yield(acceptance, branching, depth)))
    return max(shapes, key=lambda shape: shape.expected_tokens)


def _full_levels(branching: int, node_budget: int) -> int:
    levels, level, left = 0, branching, node_budget
    while level <= left:
        levels, left, level = levels + 1, left - level, level * branching
    return levels


def tree_yield(tree: DraftTree, rank_acceptance: Sequence[float]) -> float:
    """Expected yield of a tree under positional acceptance: 1 + Σ_v Π_{u on the path to v} p(rank of u).

    Sequoia (Chen et al. 2024), positional acceptance; the root adds the 1. Exact where siblings exclude one another,
    as different tokens under one parent do: then the rates of the ranks add up to at most 1. Rates that add up to
    more can only be those of independent siblings, and the figure is an upper bound.

    Args:
        tree: only its shape is read; rank 0 is a parent's first child.
        rank_acceptance: `[r]` rates 0…1: how often the child of that rank is accepted, once its parent is.

    Raises:
        SettingsError: a rate is outside 0…1, or the tree has a rank without a rate.
    """
    rates = check_rates("rank_acceptance", rank_acceptance)
    widest = max(len(children) for children in tree.children)
    if widest > len(rates):
        raise SettingsError(
            f"A node of the tree has {widest} children and rank_acceptance has {len(rates)} rates: give one for each "
            "rank, 0 where none was measured."
        )
    reach = np.ones(len(tree))
    for node, children in enumerate(tree.children):
        reach[list(children)] = reach[node] * rates[: len(children)]
    return float(reach.sum())
