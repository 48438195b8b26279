"""The spine tree of GOOSE (section 4.1, Algorithm 1): a chain of copied tokens, and branches of transitions along it.

The paper gives each branching point a share of the budget and extends branches breadth-first, and says of widths only
that they follow the scores. Not in the paper, and the default: a share is spent best-first by the product of the scores
on the path, so that better scores get more of it, in width and in depth; what a share cannot spend goes to the best
candidates anywhere. `grow_by_levels` is breadth-first, with the widths of the authors' code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil, inf
from sys import float_info

from speclab.sources.trie import LookedUp, Trie

LookUp = Callable[[Trie, int, float], LookedUp]

Candidate = tuple[float, int, int, int, int, int, LookedUp]
"""Minus the probability of its path, age; parent, rank among its successors; level in its branch, branching point;
the successors that it is one of."""

ROUNDING = 1e-9
"""Below a whole number by less than this, a share is that number."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`node_budget` counts the root (N); branches are at most `branch_depth` long (D), the tree `max_depth`.

    `from_root`: D is the depth in the tree at which a branch stops; one that leaves the spine there has one token.
    """

    node_budget: int
    branch_depth: int
    max_depth: int
    score_threshold: float
    from_root: bool = False


class Branches:
    """Grows branches of transitions on a tree whose spine is laid.

    Beside a copied token that is right with probability p, a transition of score s has probability (1 − p) s.
    """

    def __init__(self, trie: Trie, look_up: LookUp, limits: Limits) -> None:
        self._trie, self._look_up, self._limits = trie, look_up, limits
        self._reach = [1.0]
        for node in range(1, len(trie)):
            self._reach.append(self._reach[trie.parent[node]] * trie.prob[node])
        self._least = max(limits.score_threshold, float_info.min)  # a score of 0 is no successor
        self._open: list[Candidate] = []
        self._age = 0

    def grow(self, points: Sequence[int], shares: Sequence[float]) -> None:
        """Adds branches at the nodes `points`, to each so many nodes as its share; then what is left, best first."""
        trie = self._trie
        for place, point in enumerate(points):
            copied = sum(trie.prob[child] for child in trie.children[point].values())
            self._expand(point, 0, place, 1.0 - copied)
        self._spend(list(shares))
        self._spend([inf] * len(points))

    def grow_by_levels(self, points: Sequence[int], shares: Sequence[float]) -> None:
        """Adds to each of `points` so many alternatives as its share, as far as the table has them; then extends them.

        Of the nodes that are left then, a branch takes its score's share as children, level by level, but no more than
        the table's width over its depth, and one at least.
        """
        trie, budget = self._trie, self._limits.node_budget
        fresh = deque[tuple[int, float, int]]()
        for point, width in zip(points, _whole(shares), strict=True):
            copied = sum(trie.prob[child] for child in trie.children[point].values())
            fresh += self._attach(point, width, 1, 1.0 - copied)
        while fresh and len(trie) < budget:
            node, score, level = fresh.popleft()
            if self._may_grow(node, level):
                kept = len(self._look_up(trie, node, 1.0)[0])
                width = min(ceil((budget - len(trie)) * score), max(1, kept // trie.depth[node]))
                fresh += self._attach(node, width, level + 1, 1.0)

    def _attach(self, node: int, width: int, level: int, weight: float) -> list[tuple[int, float, int]]:
        """The first `width` successors that the node lacks: their nodes, scores, and level in the branch."""
        trie, limits, added = self._trie, self._limits, list[tuple[int, float, int]]()
        if width < 1 or trie.depth[node] >= limits.max_depth:
            return added
        tokens, scores, weight = self._look_up(trie, node, weight)
        for token, score in zip(tokens, scores, strict=True):
            count = len(trie)
            if len(added) == width or count == limits.node_budget or score < self._least:
                break
            if trie.add(node, token, score * weight, "transition") == count:  # else the spine has it
                added.append((count, score, level))
        return added

    def _may_grow(self, node: int, level: int) -> bool:
        """Whether a node at this level of its branch, 0 on the spine, may have (more) children."""
        depth = self._trie.depth[node]
        within = depth if self._limits.from_root and level else level
        return within < self._limits.branch_depth and depth < self._limits.max_depth

    def _spend(self, left: list[float]) -> None:
        """Takes candidates, best first, while their branching point has something left; keeps the others."""
        kept, tokens, budget = [], self._trie.token, self._limits.node_budget
        while self._open and len(tokens) < budget:
            candidate = heappop(self._open)
            point = candidate[5]
            if left[point] < 1:
                kept.append(candidate)
            else:
                left[point] -= self._take(candidate)
        self._open += kept
        heapify(self._open)

    def _take(self, candidate: Candidate) -> int:
        """Adds a candidate, and puts its next sibling and its first successor up; how many nodes that took."""
        _, _, parent, rank, level, point, successors = candidate
        self._offer(parent, rank + 1, level, point, successors)
        tokens, scores, weight = successors
        prob = scores[rank] * weight
        node = self._trie.add(parent, tokens[rank], prob, "transition")
        if node < len(self._reach):
            return 0  # the spine has it already
        self._reach.append(self._reach[parent] * prob)
        self._expand(node, level + 1, point, 1.0)
        return 1

    def _expand(self, node: int, level: int, point: int, weight: float) -> None:
        if self._may_grow(node, level):
            self._offer(node, 0, level, point, self._look_up(self._trie, node, weight))

    def _offer(self, parent: int, rank: int, level: int, point: int, successors: LookedUp) -> None:
        _, scores, weight = successors
        if rank < len(scores) and (score := scores[rank]) >= self._least:
            self._age += 1
            badness = -self._reach[parent] * weight * score
            heappush(self._open, (badness, self._age, parent, rank, level, point, successors))


def _whole(shares: Sequence[float]) -> list[int]:
    """Shares as whole numbers that add up to no more: along the spine at least one each while there are any."""
    rest, along = round(sum(shares)), sum(shares[1:])
    whole = min(rest, max(1, int(along + ROUNDING))) if along else 0
    widths, left = [rest - whole], whole
    for share in shares[1:]:
        width = min(left, max(1, int(whole * share / along + ROUNDING))) if along else 0
        widths.append(width)
        left -= width
    return widths
