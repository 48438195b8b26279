"""The papers' formulas: expected yields and best shapes of draft trees from acceptance rates.

An *expected yield* is the mean number of tokens that one verification pass commits, the bonus token
included: plain decoding has 1. Every function counts only drafted nodes, as the papers do: the root
is free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from speclab.errors import SettingsError
from speclab.tree import Floats, Ints

__all__ = [
    "ChainShape",
    "IsotropicShape",
    "SpineShape",
    "TreeShape",
    "best_chain",
    "best_isotropic",
    "best_spine",
    "chain_yield",
    "isotropic_yield",
    "optimal_widths",
    "sequoia_shape",
    "spine_yield",
]

Values = Sequence[float] | Floats
LARGE = 1e9
"""More than any amount."""
Formula = TypeVar("Formula", bound=Callable[..., Any])
COUNTS = {"length", "depth", "node_budget", "branching", "spine_length", "branch_depth"}
"""Arguments that are whole numbers."""
FROM_ONE = {"branching", "spine_length", "branch_depth"}
"""Those of them that are 1 or more; all other numbers are 0 or more."""
RATES = {"acceptance", "spine_acceptance", "branch_acceptance", "rank_acceptance", "hazards"}
"""Arguments that are numbers up to 1."""


def _checked(formula: Formula) -> Formula:
    """Checks arguments before the formula runs.

    Raises:
        SettingsError: a number is outside its bounds, or is no number.
    """

    @wraps(formula)
    def call(*arguments: Any, **named: Any) -> Any:
        for name, value in signature(formula).bind(*arguments, **named).arguments.items():
            kinds = "iuf"
            what = "numbers"
            least = 0
            most = LARGE
            if name in COUNTS:
                kinds = "iu"
                what = "whole numbers"
            if name in FROM_ONE:
                least = 1
            if name in RATES:
                most = 1
            numbers = np.asarray(value)
            shaped = numbers.ndim == 0 or "Values" in formula.__annotations__[name]
            right = shaped and numbers.dtype.kind in kinds
            if not right or not ((numbers >= least) & (numbers <= most)).all():
                raise SettingsError(
                    f"{name} takes {what} from {least} to {most:g}, got {value!r:.40}."
                )
        return formula(*arguments, **named)

    return cast("Formula", call)


class ChainShape(NamedTuple):
    """A chain of `length` tokens (K) that commits `expected_tokens` per pass. `rates[k]`: expected
    tokens per unit of time of a chain of k tokens, from plain decoding (0) on; `rates[length]` is
    the largest."""

    length: int
    expected_tokens: float
    rates: tuple[float, ...]


class IsotropicShape(NamedTuple):
    """A full tree: `branching` children (b) under every node, `depth` levels under the root."""

    branching: int
    depth: int
    expected_tokens: float


@_checked
def chain_yield(acceptance: float | Values, length: int) -> float:
    """Expected yield of a chain of `length` tokens: 1 + Σ_{i=1..length} Π_{j=1..i} p_j.

    With one rate p for every token it is Leviathan et al. 2023, equation 1, whose closed form loses
    digits near p = 1. From 1 (rate 0) to length + 1 (rate 1).

    >>> round(chain_yield([0.70, 0.69, 0.65], 3), 3)
    2.497

    Args:
        acceptance: 0…1, of every token; or the hazard at each depth: the share of tokens that are
            accepted where the target looked, as engines and `clinic.report` give it.
    """
    hazards = np.asarray(acceptance)
    if hazards.ndim == 0:
        hazards = np.repeat(hazards, length)
    if len(hazards) < length:
        raise SettingsError(
            f"A chain of {length} tokens needs as many hazards, got {len(hazards)}: measure longer "
            "drafts, or ask for a shorter chain."
        )
    return 1.0 + float(np.cumprod(hazards[:length]).sum())


@_checked
def best_chain(hazards: Values, cost: Values) -> ChainShape:
    """Which K, before a deployment: the chain of 0 to `len(hazards)` tokens with the most expected
    tokens per unit of time.

    A chain of K takes fixed + per_row · (K + 1) + per_draft_pass · K: one target pass of K + 1 rows
    and K draft passes, as measured on the engine, in any unit.

    >>> best = best_chain([0.70, 0.69, 0.65, 0.60], cost=(20.0, 0.5, 4.0))
    >>> best.length, round(best.rates[best.length] / best.rates[0], 2)
    (2, 1.52)

    Args:
        hazards: `[k]` 0…1, by depth, as in `chain_yield`; for one rate p at all depths [p] * k.
        cost: (fixed, per_row, per_draft_pass). The one pass of a head that drafts all tokens at once
            belongs into `fixed`.
    """
    if np.size(cost) != 3 or sum(cost[:2]) == 0:
        raise SettingsError(
            f"Expected cost=(fixed, per_row, per_draft_pass) of passes that take time, got {cost}."
        )
    lengths = np.arange(np.size(hazards) + 1)
    tokens = np.array([chain_yield(hazards, length) for length in lengths.tolist()])
    rates = tokens / (cost[0] + cost[1] * (lengths + 1) + cost[2] * lengths)
    best = int(rates.argmax())
    return ChainShape(best, float(tokens[best]), tuple(rates.tolist()))


@_checked
def isotropic_yield(acceptance: float, branching: int, depth: int) -> float:
    """Expected yield of a full tree whose siblings are accepted independently (GOOSE, section 3 and
    appendix E.3).

    1 + Σ_{d=1..depth} (1 − (1 − p)^b)^d: a level is passed when at least one of b siblings is
    right, and then the path goes down *one* of those. Independent siblings are the paper's model;
    siblings that carry different tokens exclude one another.

    Args:
        acceptance: p, 0…1, the same for every token.
        branching: b, children of every node, at least 1.
        depth: levels under the root, at least 0.
    """
    return chain_yield(1.0 - (1.0 - acceptance) ** branching, depth)


@_checked
def best_isotropic(acceptance: float, node_budget: int) -> IsotropicShape:
    """The branching and depth with the largest `isotropic_yield` whose full tree has at most
    `node_budget` nodes.

    Only full trees compete, so part of the budget may stay unused. Among equals the narrowest tree
    is returned.
    """
    shapes = [IsotropicShape(1, 0, 1.0)]
    for branching in range(1, node_budget + 1):
        depth = _full_levels(branching, node_budget)
        shapes.append(
            IsotropicShape(branching, depth, isotropic_yield(acceptance, branching, depth))
        )
    return max(shapes, key=lambda shape: shape.expected_tokens)


def _full_levels(branching: int, node_budget: int) -> int:
    levels = 0
    left = node_budget - branching
    while left >= 0:
        levels += 1
        left -= branching ** (levels + 1)
    return levels


class SpineShape(NamedTuple):
    """A spine of `spine_length` nodes (L) with `widths[i]` branches (k_i, real-valued) at spine node i, 0 the root."""

    spine_length: int
    widths: tuple[float, ...]
    expected_tokens: float


@_checked
def spine_yield(
    spine_acceptance: float, branch_acceptance: float, widths: Values, branch_depth: int
) -> float:
    """Expected yield of a spine tree (GOOSE, Proposition 1, equation 1).

    Σ_{i=1..L} p_s^i + Σ_{i=0..L−1} p_s^i (1 − p_s) q_i (1 + E) + 1: the spine, its continuation
    where it breaks (synergy), and the bonus token; with q_i = 1 − (1 − p_t)^{k_i} and E =
    Σ_{j=1..D−1} p_t^j.

    It is the exact mean where verification tries the spine first, then *one* right branch, and goes
    on along a chain of transition tokens. It is a lower bound where more is drafted: branches that
    branch, branches after the last spine node, or several right siblings of which the longest
    counts. (So it is not tight for k_i > 1 independent chains, as the proposition says, unless
    verification follows one of them.) The paper's siblings are independent.

    Args:
        spine_acceptance: p_s, 0…1, rate of each context-matched token.
        branch_acceptance: p_t, 0…1, rate of each transition token.
        widths: `[L]` k_i, branches at spine node i (0 is the root), at least 0, whole or not.
            Empty: no spine, yield 1.
        branch_depth: D, tokens of a branch with its extension, at least 1. A branch is then D nodes
            of a real tree, though the paper's budget counts one.
    """
    branches = np.atleast_1d(np.asarray(widths, dtype=np.float64))
    breaks = spine_acceptance ** np.arange(len(branches)) * (1.0 - spine_acceptance)
    saved = 1.0 - (1.0 - branch_acceptance) ** branches
    synergy = float(np.sum(breaks * saved)) * chain_yield(branch_acceptance, branch_depth - 1)
    return chain_yield(spine_acceptance, len(branches)) + synergy


@_checked
def optimal_widths(
    spine_acceptance: float, branch_acceptance: float, spine_length: int, branch_budget: float
) -> Floats:
    """The widths that maximise `spine_yield` for one spine and one number of branches (GOOSE,
    Proposition 2).

    Equal marginals p_s^i (1 − p_t)^{k_i} give k_i = k_0 − i · ln(p_s) / ln(1 − p_t), a straight
    line that falls with depth, clipped at 0; k_0 makes them add up to the budget. A rate of 0 or 1
    means the limit: everything at the root where p_s or p_t is 0 (the line is infinitely steep),
    else equal widths where one is 1 (it is level).

    Args:
        spine_acceptance: p_s, 0…1.
        branch_acceptance: p_t, 0…1.
        spine_length: L, at least 1.
        branch_budget: Σ k_i, at least 0.

    Returns:
        `[L]` float64, never rising, adding up to `branch_budget`; the caller rounds them.
    """
    with np.errstate(all="ignore"):  # infinite or NaN at a rate of 0
        # how much narrower each node is than the one before
        slope = np.log(spine_acceptance) / np.log1p(-branch_acceptance)
    widths = np.zeros(spine_length)
    if not slope < branch_budget:  # the second node would get less than nothing
        widths[0] = branch_budget
        return widths
    place = np.arange(spine_length)
    # Node i is open when the triangle that the line leaves above it costs less than the budget.
    opened = slope * place * (place + 1) / 2 < branch_budget
    line = place[opened]
    widths[: len(line)] = branch_budget / len(line) + slope * (line[-1] / 2 - line)
    return np.maximum(widths, 0.0)


@_checked
def best_spine(
    spine_acceptance: float, branch_acceptance: float, node_budget: int, branch_depth: int
) -> SpineShape:
    """The spine length, with its optimal widths, that gives the largest `spine_yield` within L + Σ
    k_i = N.

    The extension of a branch costs nothing, as in the paper. Widths are real-valued, so a tree of
    whole branches yields a little less. Among equals the shortest spine wins.

    GOOSE's Proposition 3 says that this tree yields more than `best_isotropic` of p_t wherever
    p_s > p_t. It holds for N = 60 and D = 6 on a grid of 0.05, but not for every budget: the
    isotropic yield grows with N without end, and the spine's does not. At p_t = 0.20 and
    p_s = 0.201 the isotropic tree is ahead from N = 72.

    Args:
        spine_acceptance: p_s, 0…1.
        branch_acceptance: p_t, 0…1.
        node_budget: N, at least 0.
        branch_depth: D, at least 1.
    """
    shapes = [SpineShape(0, (), 1.0)]
    for length in range(1, node_budget + 1):
        budget = node_budget - length
        widths = optimal_widths(spine_acceptance, branch_acceptance, length, budget)
        tokens = spine_yield(spine_acceptance, branch_acceptance, widths, branch_depth)
        shapes.append(SpineShape(length, tuple(widths.tolist()), tokens))
    return max(shapes, key=lambda shape: shape.expected_tokens)


class TreeShape(NamedTuple):
    """`parents[i]` is the parent of node i, breadth-first, -1 for the root; siblings are in order of rank."""

    parents: tuple[int, ...]
    expected_tokens: float


class _Level(NamedTuple):
    """Best subtrees of one depth below an accepted node, by budget m = 0…M.

    `gain[m]`: expected accepted tokens; `children[m]`: number of children; `taken[b, m]`: nodes
    that the child of rank b (1 is the first) gets out of m, itself included, if the node has
    exactly b children.
    """

    gain: Floats
    children: Ints
    taken: Ints


@_checked
def sequoia_shape(rank_acceptance: Values, node_budget: int, depth: int) -> TreeShape:
    """The tree with the largest expected yield under positional acceptance (Sequoia, tree
    construction): 1 + Σ_v Π_{u on the path to v} p(rank of u).

    Dynamic programming over T[m][l][b], the best tree of m nodes, l levels and b children at its
    root: the last child takes j nodes, of which it is one, and T[m][l][b] = max_j T[m−j][l][b−1] +
    p_b (1 + max_b' T[j−1][l−1][b']). Ranks are filled from the first, also where a later rate is
    higher. Where rates never rise with rank, this is the tree of the `node_budget` most probable
    paths; the programme needs no such order. Time grows with depth · ranks · budget².

    Args:
        rank_acceptance: `[r]` rates 0…1: how often the child of that rank is accepted, once its
            parent is.
        node_budget: most drafted nodes, the root not counted; nodes that add nothing are left out.
        depth: most levels under the root.
    """
    levels = _levels(np.atleast_1d(rank_acceptance), node_budget, depth)
    parents = [-1]
    open_nodes = deque([(0, depth, node_budget)])
    while open_nodes:
        node, level, room = open_nodes.popleft()
        for nodes in _child_sizes(levels[level], room):
            open_nodes.append((len(parents), level - 1, nodes - 1))
            parents.append(node)
    return TreeShape(tuple(parents), 1.0 + float(levels[depth].gain[node_budget]))


def _child_sizes(level: _Level, room: int) -> list[int]:
    sizes: list[int] = []
    for rank in range(int(level.children[room]), 0, -1):
        size = int(level.taken[rank, room])
        sizes.insert(0, size)
        room -= size
    return sizes


def _levels(rates: Floats, budget: int, depth: int) -> list[_Level]:
    nothing = np.zeros(budget + 1, dtype=np.int64)
    levels = [_Level(np.zeros(budget + 1), nothing, nothing[None])]
    # left[m, j - 1] = m - j: the budget of the earlier ranks when this one takes j; -1, the last
    # entry, where j > m.
    left = np.maximum(np.arange(budget + 1)[:, None] - np.arange(1, budget + 1), -1)
    for _ in range(depth):
        levels.append(_deepen(levels[-1].gain, rates[:budget], left))
    return levels


def _deepen(below: Floats, rates: Floats, left: Ints) -> _Level:
    """Add a level, where a child with m nodes below it gains `below[m]`."""
    gains = [np.zeros(len(below))]
    taken = [np.zeros(len(below), dtype=np.int64)]
    for rate in rates.tolist():
        totals = np.append(gains[-1], -np.inf)[left] + rate * (1.0 + below[:-1])
        best = totals.argmax(axis=1)
        gains.append(np.take_along_axis(totals, best[:, None], axis=1)[:, 0])
        taken.append(best + 1)
    table = np.stack(gains)
    return _Level(table.max(axis=0), table.argmax(axis=0), np.stack(taken))


def __dir__() -> list[str]:
    return __all__
