"""The tree shapes of Sequoia (Chen et al. 2024): the best one for a budget."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from speclab.theory.yields import Count, Rates, checked
from speclab.tree import Floats, Ints


@dataclass(frozen=True, slots=True)
class TreeShape:
    """`parents[i]` is the parent of node i, breadth-first, -1 for the root; siblings stand in order of rank."""

    parents: tuple[int, ...]
    expected_tokens: float


@dataclass(frozen=True, slots=True)
class _Level:
    """Best trees of one depth, by budget m = 0…M: the subtree under a node that is accepted, itself not counted.

    `gain[m]`: expected accepted tokens; `children[m]`: how many children; `taken[b, m]`: nodes that the child of rank b
    (1 is the first) takes of m, itself included, when the node has exactly b children.
    """

    gain: Floats
    children: Ints
    taken: Ints


@checked
def sequoia_shape(rank_acceptance: Rates, node_budget: Count, depth: Count) -> TreeShape:
    """The tree with the largest `tree_yield` under positional acceptance (Sequoia, tree construction).

    Dynamic programming over T[m][l][b], the best tree of m nodes, l levels and b children at its root: the last child
    takes j nodes, of which it is one, and T[m][l][b] = max_j T[m−j][l][b−1] + p_b (1 + max_b' T[j−1][l−1][b']). Ranks
    are filled from the first, also where a later rate is higher. Where rates never rise with rank, this is the
    tree of the `node_budget` most probable paths; the programme needs no such order. Time grows with
    depth · ranks · budget².

    Args:
        rank_acceptance: `[r]` rates 0…1: how often the child of that rank is accepted, once its parent is.
        node_budget: most drafted nodes, the root not counted; nodes that add nothing are left out.
        depth: most levels under the root.
    """
    levels = _levels(np.asarray(rank_acceptance), node_budget, depth)
    parents = [-1]
    open_nodes = deque([(0, depth, node_budget)])
    while open_nodes:
        node, level, room = open_nodes.popleft()
        for nodes in _child_sizes(levels[level], room):
            open_nodes.append((len(parents), level - 1, nodes - 1))
            parents.append(node)
    return TreeShape(tuple(parents), 1.0 + float(levels[depth].gain[node_budget]))


def _child_sizes(level: _Level, room: int) -> list[int]:
    """Nodes for each child, first rank first."""
    sizes = []
    for rank in range(int(level.children[room]), 0, -1):
        sizes.append(int(level.taken[rank, room]))
        room -= sizes[-1]
    return sizes[::-1]


def _levels(rates: Floats, budget: int, depth: int) -> list[_Level]:
    """Best trees of 0…`depth` levels."""
    nothing = np.zeros(budget + 1, dtype=np.int64)
    levels = [_Level(np.zeros(budget + 1), nothing, nothing[None])]
    # left[m, j - 1] = m - j: the budget of the earlier ranks when this one takes j; -1, the last entry, where j > m.
    left = np.maximum(np.arange(budget + 1)[:, None] - np.arange(1, budget + 1), -1)
    for _ in range(depth):
        levels.append(_deepen(levels[-1].gain, rates[:budget], left))
    return levels


def _deepen(below: Floats, rates: Floats, left: Ints) -> _Level:
    """One level more, where a child with m nodes under it gains `below[m]`."""
    gains = [np.zeros(len(below))]
    taken = [np.zeros(len(below), dtype=np.int64)]
    for rate in rates.tolist():
        totals = np.append(gains[-1], -np.inf)[left] + rate * (1.0 + below[:-1])
        best = totals.argmax(axis=1)
        gains.append(np.take_along_axis(totals, best[:, None], axis=1)[:, 0])
        taken.append(best + 1)
    table = np.stack(gains)
    return _Level(table.max(axis=0), table.argmax(axis=0), np.stack(taken))
