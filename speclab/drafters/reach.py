"""How likely a drafted node is to be accepted: what its source says, corrected by what became of its like.

A source's probability is no rate of acceptance: a draft model that gives its first token 10% is right far more often
where the target takes its likeliest, and a copied token has no probability at all. So outcomes are counted by source,
rank among siblings and stated probability, and a rate starts from a prior of ours. Classes by depth as well told no
more over a text of some 60 tokens: there are too few tries for so many classes. Nothing here is random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from speclab.budgets import sibling_ranks
from speclab.drafters.base import Outcome
from speclab.tree import Floats, Ints

STATED = np.array([0.05, 0.2, 0.5, 0.9])
"""Bounds between classes of stated probability."""
RANKS = 3
"""Classes by rank: the first child, the second, later ones."""
PRIOR = 4.0
"""Tries that the prior is worth: the square root of the stated probability for a first child, and else just that."""
LEAST, SURE, MOST = 0.002, 0.8, 0.98
"""Bounds of a rate; before anything was tried none is above `SURE`."""
ONWARD, ONWARD_TRIES = 0.7, 4.0
"""How often a node that was reached and had children goes on with one of them, before anything was tried."""

_CLASSES = (RANKS, len(STATED) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Tried:
    """Of one source: `[rank, stated]` children that the walk came to, and those of them that were accepted."""

    tried: Floats = field(default_factory=lambda: np.zeros(_CLASSES))
    accepted: Floats = field(default_factory=lambda: np.zeros(_CLASSES))


_NOTHING = _Tried()


@dataclass(frozen=True, slots=True)
class Columns:
    """Nodes to be judged: place among siblings, stated log-probability, and source, one for all or for each."""

    rank: Ints
    log_prob: Floats
    source: str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Reach:
    """What outcomes have taught so far; immutable. `reached`, `went_on`: nodes with children, as for `ONWARD`."""

    sources: Mapping[str, _Tried] = field(default_factory=dict)
    reached: float = ONWARD_TRIES
    went_on: float = ONWARD * ONWARD_TRIES

    @property
    def onward(self) -> float:
        """How often a node that is reached goes on with one of its children."""
        return self.went_on / self.reached

    def rates(self, nodes: Columns) -> Floats:
        """`[n]` how often such a node is accepted, once its parent is."""
        if not isinstance(nodes.source, str):
            return self._by_source(nodes)
        known = self.sources.get(nodes.source, _NOTHING)
        stated = np.clip(np.exp(nodes.log_prob), LEAST, MOST)
        kind = _classes(nodes.rank, stated)
        prior = np.minimum(np.where(nodes.rank == 0, np.sqrt(stated), stated), SURE)
        rates = (known.accepted[kind] + PRIOR * prior) / (known.tried[kind] + PRIOR)
        return np.asarray(np.clip(rates, LEAST, MOST), dtype=np.float64)

    def _by_source(self, nodes: Columns) -> Floats:
        rates, names = np.empty(len(nodes.rank)), np.asarray(nodes.source)
        for name in dict.fromkeys(nodes.source):
            own = np.flatnonzero(names == name)
            rates[own] = self.rates(Columns(nodes.rank[own], nodes.log_prob[own], name))
        return rates

    def of(self, parent: Ints, log_prob: Floats, source: Sequence[str], *, verified_root: bool) -> Floats:
        """`[n]` that each node of a tree is accepted: the product of the rates along its path."""
        first = int(verified_root)
        rank, names = sibling_ranks(parent)[first:], source[first:]
        own = Columns(rank, log_prob[first:], names[0] if len(set(names)) == 1 else names)
        reach = [1.0] * first + self.rates(own).tolist()
        for node, above in enumerate(parent.tolist()[1:], start=1):
            reach[node] *= reach[above]
        return np.asarray(reach)

    def after(self, outcome: Outcome, *, verified_root: bool) -> Reach:
        """With one more outcome: the children of every node that the walk came to were tried."""
        tree, accepted = outcome.tree, set(outcome.accepted)
        came_to = [0, *outcome.accepted] if verified_root else list(outcome.accepted)
        families = [tree.children[node] for node in came_to if tree.children[node]]
        tried = np.array(([] if verified_root else [0]) + [child for family in families for child in family], dtype=int)
        if not len(tried):
            return self
        right = np.array([node in accepted for node in tried.tolist()], dtype=np.float64)
        rank = sibling_ranks(tree.parent)
        sources, names = dict(self.sources), np.asarray(tree.source)[tried]
        for name in dict.fromkeys(names.tolist()):
            own = tried[names == name]
            nodes = Columns(rank[own], tree.log_prob[own], name)
            sources[name] = _with(sources.get(name, _NOTHING), nodes, right[names == name])
        went_on = sum(any(child in accepted for child in family) for family in families)
        return replace(self, sources=sources, reached=self.reached + len(families), went_on=self.went_on + went_on)


def _classes(rank: Ints, stated: Floats) -> tuple[Ints, Ints]:
    return np.minimum(rank, RANKS - 1), np.searchsorted(STATED, stated)


def _with(known: _Tried, nodes: Columns, right: Floats) -> _Tried:
    tried, accepted = known.tried.copy(), known.accepted.copy()
    place = _classes(nodes.rank, np.clip(np.exp(nodes.log_prob), LEAST, MOST))
    np.add.at(tried, place, 1.0)
    np.add.at(accepted, place, right)
    return _Tried(tried, accepted)
