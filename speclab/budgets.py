"""How many nodes of a draft are worth verifying: those that give the most expected tokens a second.

Arithmetic on arrays alone. A node's probability is that of its whole path, so none is above its parent's, and the k
likeliest nodes always form a tree. The best tree of k nodes is therefore those k; the best k is found by trying each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from speclab.tree import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Choice:
    """The tree to verify. `keep`: `[n]` bool, by node. `expected`: tokens, the target's own included; `seconds`: of the
    iteration. `least`: the probability from which a further node would pay at this size.
    """

    keep: Bools
    expected: float
    seconds: float
    least: float

    @property
    def rate(self) -> float:
        """Expected tokens a second."""
        return self.expected / self.seconds


def rates(probabilities: Floats, seconds: Floats, spent: float) -> Floats:
    """`[n]` expected tokens a second when the first 1, 2, … n nodes are verified.

    Args:
        probabilities: `[n]` of being accepted, best first; 0 for a verified root, which gives no token of its own.
        seconds: `[n]` of a pass over the first 1, 2, … n nodes.
        spent: seconds that the iteration has taken already.
    """
    return np.asarray((1.0 + probabilities.cumsum()) / (spent + seconds), dtype=np.float64)


def choose(probabilities: Floats, seconds: Floats, spent: float, *, verified_root: bool) -> Choice:
    """The nodes that maximise (1 + Σ p) / (spent + seconds of the pass).

    Args:
        probabilities: `[n]` that a node is accepted, by node; none above its parent's. The root is always kept.
        seconds: `[n]` of a pass over 1, 2, … n nodes, never falling.
        spent: as for `rates`.
        verified_root: whether node 0 is the target's own token and no gain.
    """
    likely = probabilities.copy()
    likely[0] = np.inf
    order = np.argsort(-likely, kind="stable")
    likely[0] = 0.0 if verified_root else probabilities[0]
    by_size = rates(likely[order], seconds, spent)
    count = int(by_size.argmax()) + 1
    keep = np.zeros(len(likely), dtype=np.bool_)
    keep[order[:count]] = True
    rate, time = float(by_size[count - 1]), float(spent + seconds[count - 1])
    further = float(seconds[min(count, len(seconds) - 1)] - seconds[count - 1])
    return Choice(keep, rate * time, time, rate * further)


def sibling_ranks(parent: Ints) -> Ints:
    """`[n]` place of each node among its siblings, from 0; siblings stand together."""
    place = np.arange(len(parent))
    first = np.ones(len(parent), dtype=np.bool_)
    first[1:] = parent[1:] != parent[:-1]
    return place - np.maximum.accumulate(np.where(first, place, 0))
