"""How many drafted nodes to verify: those that give the most expected tokens per second.

Arithmetic on arrays alone. A node's probability is that of its whole path, so none is above its parent's, and the k
most probable nodes always form a tree. The best tree of k nodes is therefore those k; the best k is found by trying
each. How probable it is that a node is accepted is learned from outcomes: `AcceptanceModel`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from speclab.tree import Bools, Floats, Ints

if TYPE_CHECKING:
    from speclab.drafters.base import Outcome

STATED = np.array([0.05, 0.2, 0.5, 0.9])
"""Bounds between classes of the probability that the source itself states."""
RANKS = 3
"""Classes by rank among siblings: the first child, the second, later ones."""
PRIOR = 4.0
"""Tries that the prior counts for: the square root of the stated probability for a first child, else just that."""
LEAST, SURE, MOST = 0.002, 0.8, 0.98
"""Bounds of an acceptance rate; before anything was tried none is above `SURE`."""
CONTINUATION, CONTINUATION_TRIES = 0.7, 4.0
"""How often a node that was reached and had children goes on with one of them, before anything was tried."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The tree to verify: those nodes for which `keep` (`[n]` bool) is true.

    `rate`: expected tokens per second, the target's own token included. `seconds`: of the whole iteration.
    `threshold`: the probability from which one further node would raise the rate.
    """

    keep: Bools
    rate: float
    seconds: float
    threshold: float

    @property
    def expected(self) -> float:
        """Expected tokens of the iteration, the target's own included."""
        return self.rate * self.seconds


def rates(probabilities: Floats, seconds: Floats, drafting: float) -> Floats:
    """`[n]` expected tokens per second when the first 1, 2, … n nodes are verified.

    Args:
        probabilities: `[n]` of being accepted, best first; 0 for a verified root, which gives no token of its own.
        seconds: `[n]` of a target pass over the first 1, 2, … n nodes.
        drafting: seconds that drafting took.
    """
    return np.asarray((1.0 + probabilities.cumsum()) / (drafting + seconds), dtype=np.float64)


def choose(probabilities: Floats, seconds: Floats, drafting: float, *, verified_root: bool) -> Choice:
    """The nodes that maximise (1 + Σ p) / (drafting + seconds of the pass).

    Args:
        probabilities: `[n]` that a node is accepted, by node; none above its parent's. The root is always kept.
        seconds: `[n]` of a target pass over 1, 2, … n nodes, never falling.
        drafting: seconds that drafting took.
        verified_root: whether node 0 is the target's own token and no gain.
    """
    ranked = probabilities.copy()
    ranked[0] = np.inf
    order = np.argsort(-ranked, kind="stable")
    ranked[0] = 0.0 if verified_root else probabilities[0]
    by_size = rates(ranked[order], seconds, drafting)
    best = int(by_size.argmax())
    keep = np.zeros(len(ranked), dtype=np.bool_)
    keep[order[: best + 1]] = True
    rate = float(by_size[best])
    further = float(seconds[min(best + 1, len(seconds) - 1)] - seconds[best])
    return Choice(keep, rate, float(drafting + seconds[best]), rate * further)


def sibling_ranks(parent: Ints) -> Ints:
    """`[n]` rank of each node among its siblings, from 0; siblings stand together."""
    place = np.arange(len(parent))
    first = np.ones(len(parent), dtype=np.bool_)
    first[1:] = parent[1:] != parent[:-1]
    return place - np.maximum.accumulate(np.where(first, place, 0))


@dataclass(frozen=True, slots=True, eq=False)
class AcceptanceModel:
    """How likely a drafted node is to be accepted: what its source states, corrected by earlier outcomes; immutable.

    A source's probability is no acceptance rate: a draft model that gives its first token 10% is right far more often
    where the target takes its most probable one, and a copied token has no probability at all. So outcomes are counted
    by source, rank among siblings and stated probability, from a prior that is a speclab default. Classes by depth as
    well gave nothing more over a text of some 60 tokens: too few tries for so many classes. Nothing here is random.

    `counts`: for each source `[2, RANKS, 5]` children that were tried and children that were accepted. `parents` and
    `continued`: nodes that were reached and had children, and those of them of which a child was accepted.
    """

    counts: Mapping[str, Floats] = field(default_factory=dict)
    parents: float = CONTINUATION_TRIES
    continued: float = CONTINUATION * CONTINUATION_TRIES

    @property
    def continuation_rate(self) -> float:
        """How often an accepted node with children goes on with one of them."""
        return self.continued / self.parents

    def rates(self, rank: Ints, log_prob: Floats, source: str | Sequence[str]) -> Floats:
        """`[n]` how often such a node is accepted, once its parent is; `source`: one for all, or one for each."""
        stated = np.clip(np.exp(log_prob), LEAST, MOST)
        kind, names = _classes(rank, stated), np.broadcast_to(np.asarray(source), rank.shape)
        tried, accepted = np.zeros((2, len(rank)))
        for name, counts in self.counts.items():
            of_source = names == name
            tried[of_source], accepted[of_source] = counts[:, kind[0][of_source], kind[1][of_source]]
        prior = np.minimum(np.where(rank == 0, np.sqrt(stated), stated), SURE)
        return np.clip((accepted + PRIOR * prior) / (tried + PRIOR), LEAST, MOST)

    def path_probs(self, parent: Ints, log_prob: Floats, source: str | Sequence[str], *, verified_root: bool) -> Floats:
        """`[n]` probability that each node of a tree is accepted: the product of the rates along its path."""
        probs = self.rates(sibling_ranks(parent), log_prob, source).tolist()
        if verified_root:
            probs[0] = 1.0
        for node, above in enumerate(parent.tolist()[1:], start=1):
            probs[node] *= probs[above]
        return np.asarray(probs)

    def updated(self, outcome: Outcome, *, verified_root: bool) -> AcceptanceModel:
        """With one more outcome: of every node on the accepted path, all children were tried."""
        tree, accepted = outcome.tree, set(outcome.accepted)
        reached = [0, *outcome.accepted] if verified_root else list(outcome.accepted)
        families = [tree.children[node] for node in reached if tree.children[node]]
        tried = np.array(([] if verified_root else [0]) + [child for family in families for child in family], dtype=int)
        rank, stated = sibling_ranks(tree.parent)[tried], np.clip(np.exp(tree.log_prob[tried]), LEAST, MOST)
        kind, names = _classes(rank, stated), np.asarray(tree.source)[tried]
        right = np.isin(tried, outcome.accepted)
        counts = dict(self.counts)
        for name in dict.fromkeys(names.tolist()):
            of_source = names == name
            counts[name] = counts.get(name, np.zeros((2, RANKS, len(STATED) + 1))).copy()
            for row, amount in enumerate((1.0, right[of_source])):
                np.add.at(counts[name][row], (kind[0][of_source], kind[1][of_source]), amount)
        continued = sum(any(child in accepted for child in family) for family in families)
        return replace(self, counts=counts, parents=self.parents + len(families), continued=self.continued + continued)


def _classes(rank: Ints, stated: Floats) -> tuple[Ints, Ints]:
    return np.minimum(rank, RANKS - 1), np.searchsorted(STATED, stated)
