"""The spine tree of GOOSE: its yield, the best widths of its branches, and the best length of its spine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speclab.theory._checks import check_amount, check_amounts, check_count, check_rate
from speclab.theory.yields import best_isotropic, chain_yield
from speclab.tree import Floats


@dataclass(frozen=True, slots=True)
class SpineShape:
    """A spine of `spine_length` nodes (L) with `widths[i]` branches (k_i, real-valued) at spine node i, 0 the root."""

    spine_length: int
    widths: tuple[float, ...]
    expected_tokens: float


def spine_yield(
    spine_acceptance: float, branch_acceptance: float, widths: Sequence[float] | Floats, branch_depth: int
) -> float:
    """Expected yield of a spine tree (GOOSE, Proposition 1, equation 1).

    Σ_{i=1..L} p_s^i + Σ_{i=0..L−1} p_s^i (1 − p_s) q_i (1 + E) + 1: the spine, its continuation where it breaks
    (synergy), and the bonus token; with q_i = 1 − (1 − p_t)^{k_i} and E = Σ_{j=1..D−1} p_t^j.

    It is the exact mean of a walk that tries the spine first, then *one* right branch, and on along a chain of
    transition tokens. It is a lower bound where more is drafted: branches that branch, branches after the last spine
    node, or several right siblings of which the longest counts. (So it is not tight for k_i > 1 independent
    chains, as the proposition says, unless the walk follows one of them.) Independent siblings are the paper's model.

    Args:
        spine_acceptance: p_s, 0…1, rate of each context-matched token.
        branch_acceptance: p_t, 0…1, rate of each transition token.
        widths: `[L]` k_i, branches at spine node i (0 is the root), at least 0, whole or not. Empty: no spine, yield 1.
        branch_depth: D, tokens of a branch with its extension, at least 1. A branch is then D nodes of a real tree,
            though the paper's budget counts one.

    Raises:
        SettingsError: an argument is out of its range.
    """
    check_rate("spine_acceptance", spine_acceptance)
    check_rate("branch_acceptance", branch_acceptance)
    check_count("branch_depth", branch_depth, least=1)
    branches = check_amounts("widths", widths)
    breaks = spine_acceptance ** np.arange(len(branches)) * (1.0 - spine_acceptance)
    saved = 1.0 - (1.0 - branch_acceptance) ** branches
    synergy = float(np.sum(breaks * saved)) * chain_yield(branch_acceptance, branch_depth - 1)
    return chain_yield(spine_acceptance, len(branches)) + synergy


def optimal_widths(
    spine_acceptance: float, branch_acceptance: float, spine_length: int, branch_budget: float
) -> Floats:
    """The widths that maximise `spine_yield` for one spine and one number of branches (GOOSE, Proposition 2).

    Equal marginals p_s^i (1 − p_t)^{k_i} give k_i = k_0 − i · ln(p_s) / ln(1 − p_t), a straight line that falls with
    depth, clipped at 0; k_0 makes them add up to the budget. A rate of 0 or 1 means the limit: everything at the root
    where p_s or p_t is 0 (the line is infinitely steep), else equal widths where one is 1 (it is level).

    Args:
        spine_acceptance: p_s, 0…1.
        branch_acceptance: p_t, 0…1.
        spine_length: L, at least 1.
        branch_budget: Σ k_i, at least 0.

    Returns:
        `[L]` float64, never rising, adding up to `branch_budget`; rounding them is left to who builds the tree.

    Raises:
        SettingsError: an argument is out of its range.
    """
    check_rate("spine_acceptance", spine_acceptance)
    check_rate("branch_acceptance", branch_acceptance)
    check_count("spine_length", spine_length, least=1)
    check_amount("branch_budget", branch_budget)
    slope = _slope(spine_acceptance, branch_acceptance)
    widths = np.zeros(spine_length)
    if slope >= branch_budget:  # the second node would get less than nothing
        widths[0] = branch_budget
        return widths
    place = np.arange(spine_length)
    # Node i is open when the triangle that the line leaves above it costs less than the budget.
    line = place[slope * place * (place + 1) / 2 < branch_budget]
    widths[: len(line)] = branch_budget / len(line) + slope * (line[-1] / 2 - line)
    return np.maximum(widths, 0.0)


def _slope(spine_acceptance: float, branch_acceptance: float) -> float:
    """How much narrower each node is than the one before: ln(p_s) / ln(1 − p_t), or its limit."""
    if spine_acceptance == 0 or branch_acceptance == 0:
        return math.inf
    if spine_acceptance == 1 or branch_acceptance == 1:
        return 0.0
    return math.log(spine_acceptance) / math.log1p(-branch_acceptance)


def best_spine(
    spine_acceptance: float,
    branch_acceptance: float,
    node_budget: int,
    branch_depth: int,
    *,
    nodes_per_branch: float = 1.0,
) -> SpineShape:
    """The spine length, with its optimal widths, that gives the largest `spine_yield` within L + c · Σ k_i = N.

    Widths are real-valued, so a tree of whole branches yields a little less. Among equals the shortest spine is given.

    Args:
        spine_acceptance: p_s, 0…1.
        branch_acceptance: p_t, 0…1.
        node_budget: N, at least 1.
        branch_depth: D, at least 1.
        nodes_per_branch: c, at least 1. 1 is the paper's count, in which the extension of a branch costs nothing;
            `branch_depth` counts every node that a real tree needs for the yield it is given.

    Raises:
        SettingsError: an argument is out of its range.
    """
    check_count("node_budget", node_budget, least=1)
    check_amount("nodes_per_branch", nodes_per_branch, least=1)
    shapes = []
    for length in range(1, node_budget + 1):
        budget = (node_budget - length) / nodes_per_branch
        widths = optimal_widths(spine_acceptance, branch_acceptance, length, budget)
        tokens = spine_yield(spine_acceptance, branch_acceptance, widths, branch_depth)
        shapes.append(SpineShape(length, tuple(widths.tolist()), tokens))
    return max(shapes, key=lambda shape: shape.expected_tokens)


def dominance_gap(
    spine_acceptance: float,
    branch_acceptance: float,
    node_budget: int,
    branch_depth: int = 6,
    *,
    nodes_per_branch: float = 1.0,
) -> float:
    """Tokens that the best spine tree yields above the best isotropic tree of p_t with the same budget.

    GOOSE, Proposition 3: above 0 whenever p_s > p_t, growing with p_s − p_t (p_t fixed), vanishing with it.
    Measured here on the yield of Proposition 1 with D = 6, for p_s > p_t on a grid of 0.05 (171 pairs):

    - Negative for 0 pairs at N = 60, 4 at 120, 16 at 250, 46 at 1,000. No spine tree passes
      1 + p_s / (1 − p_s) + (1 + E), while the isotropic yield grows with N without end: for any p_s < 1 and p_t > 0
      some budget turns the gap. We found the first at N = 72, p_t = 0.20, p_s = 0.201: b = 8 with 2 levels is ahead.
    - It does not vanish: at p_s = p_t and N = 60 it is 0.03 to 3.84. The shapes differ where the rates do not.
    - The extensions of the branches cost no nodes. With every node counted (`nodes_per_branch=branch_depth`) the gap
      is negative for 28 pairs at N = 60, low rates such as p_s = 0.3, p_t = 0.05 among them, and −0.51 to 2.35 at
      equal rates; with the best D of 1…6 for each pair it is negative for 2.
    - It grows with p_s on that grid for N = 10 to 1,000, but not everywhere for N = 2 and 5.

    The proof (E.3) takes an isotropic tree, raises one path to p_s, and calls it a tree of Proposition 1; but its
    branches branch, and those do not. That raised tree does beat the isotropic one for every p_s > p_t.

    Args: as for `best_spine`.

    Raises:
        SettingsError: an argument is out of its range.
    """
    spine = best_spine(
        spine_acceptance, branch_acceptance, node_budget, branch_depth, nodes_per_branch=nodes_per_branch
    )
    return spine.expected_tokens - best_isotropic(branch_acceptance, node_budget).expected_tokens
