"""How many drafted nodes to verify: those that give the most expected tokens per second.

Arithmetic on plain numbers, in a few microseconds a node: it runs in every iteration. A node's probability is that of
its whole path, so none is above its parent's, and the k most probable nodes always form a tree. The best tree of k
nodes is therefore those k; the best k is found by trying each. How probable it is that a node is accepted is learned
from outcomes: `AcceptanceModel`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import TYPE_CHECKING

import numpy as np

from speclab.tree import Floats, Ints

if TYPE_CHECKING:
    from speclab.drafters.base import Outcome

Numbers = tuple[float, ...]

STATED = tuple(map(log, (0.05, 0.2, 0.5, 0.9)))
"""Bounds between classes of the log-probability that the source itself states."""
TYPICAL = tuple(map(log, (0.02, 0.1, 0.33, 0.72, 0.97)))
"""A log-probability that is typical of each class."""
DEPTHS = (1, 2, 3, 6)
"""Bounds between classes of a copied token, which has no probability: by how many copies before it were right."""
COPIED = frozenset({"context"})
"""Sources whose tokens are copies."""
RANKS = 3
"""Classes by rank among siblings: the first child, the second, later ones."""
CLASSES = len(STATED) + 1
KINDS = RANKS * CLASSES
PRIOR = 4.0
"""Tries that a prior counts for."""
LEAST, MOST = 0.002, 0.98
"""Bounds of an acceptance rate."""
DRAFTED = (0.20, 0.34, 0.54, 0.82, 0.97, 0.05, 0.13, 0.24, 0.30, 0.40, 0.02, 0.07, 0.10, 0.20, 0.30)
COPIES = (0.45, 0.70, 0.82, 0.88, 0.92, *DRAFTED[CLASSES:])
LOOKED_UP = (0.25, 0.33, 0.45, 0.65, 0.77, 0.06, 0.11, 0.20, 0.20, 0.20, 0.02, 0.05, 0.08, 0.10, 0.10)
RETRIEVED = (0.03, 0.05, 0.10, 0.35, 0.30, 0.03, 0.05, 0.08, 0.20, 0.20, 0.02, 0.04, 0.05, 0.10, 0.10)
CREDIT, FADING = 2.0, 0.95
"""Tokens that drafting may lose before it is given up, and what an iteration counts for in the next."""
TRYING, LEAST_WAIT, MOST_WAIT = 0.05, 4, 256
"""Share of the time for trying whether drafting pays again, and bounds of the iterations in between."""
PRIORS: Mapping[str, Numbers] = {"context": COPIES, "transition": LOOKED_UP, "retrieved": RETRIEVED, "pool": LOOKED_UP}
"""How often a child is accepted once its parent is, by rank and class, before anything was tried: rounded from what
the shipped families do on the shipped prompts. `DRAFTED` is for draft models, heads and sources of a user's own."""
CONTINUATION = (0.65, 0.70, 0.75, 0.78, 0.86, 0.88)
"""The same of going on: how often an accepted node with children has one accepted; the root, then by class."""


SLACK = 0.04
"""Of all sizes of a tree whose rate is within this share of the best the largest is taken: estimates are no better
than that, and a table learns from every row. Trees of transitions measured faster so on the mini family."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The tree to verify: those nodes for which `keep`, one for each node, is true.

    `rate`: expected tokens per second, the target's own token included. `seconds`: of the whole iteration.
    `threshold`: the probability from which one further node would raise the rate.
    """

    keep: tuple[bool, ...]
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


def best_size(
    gains: Sequence[float], seconds: Sequence[float], drafting: float, slack: float = 0.0
) -> tuple[int, float]:
    """How many nodes give the most tokens per second, and how many that are; arguments as of `rates`.

    `slack`: the largest size within this share of the best rate is taken.
    """
    tokens, best, most = 1.0, 0, 0.0
    found = []
    for size, (gain, spent) in enumerate(zip(gains, seconds, strict=False), start=1):
        tokens += gain
        found.append(rate := tokens / (drafting + spent))
        if rate > most:
            best, most = size, rate
    if slack:
        best = max(size for size, rate in enumerate(found, start=1) if rate >= (1 - slack) * most)
        most = found[best - 1]
    return best, most


def choose(probabilities: Sequence[float], seconds: Sequence[float], drafting: float, *, verified_root: bool) -> Choice:
    """The nodes that maximise (1 + Σ p) / (drafting + seconds of the pass).

    Args:
        probabilities: that a node is accepted, by node; none above its parent's. The root is always kept.
        seconds: of a target pass over 1, 2, … n nodes, never falling.
        drafting: seconds that drafting took.
        verified_root: whether node 0 is the target's own token and no gain.
    """
    order = sorted(range(1, len(probabilities)), key=probabilities.__getitem__, reverse=True)
    gains = [0.0 if verified_root else probabilities[0], *(probabilities[node] for node in order)]
    best, rate = best_size(gains, seconds, drafting, slack=SLACK)
    kept = {0, *order[: best - 1]}
    further = seconds[min(best, len(seconds) - 1)] - seconds[best - 1]
    keep = tuple([node in kept for node in range(len(probabilities))])
    return Choice(keep, rate, drafting + seconds[best - 1], rate * further)


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
    by source, rank among siblings and class (of the stated probability, or of a copy's depth), from priors that are
    speclab defaults. Nothing here is random, and nothing is carried from one text to another.

    `counts`: for each source how many children were tried, `KINDS` numbers, how many of them were accepted, as many;
    how many nodes that were reached had children, by class, the root first, and of how many one was accepted.
    """

    counts: Mapping[str, Numbers] = field(default_factory=dict)
    _known: dict[str, tuple[Numbers, Numbers]] = field(default_factory=dict, init=False)

    def rates(self, source: str) -> tuple[Numbers, Numbers]:
        """How often its children are accepted, by kind; and how often a node goes on, by class, the root first."""
        if (known := self._known.get(source)) is None:
            counts = self.counts.get(source, (0.0,) * (2 * KINDS + 2 * CLASSES + 2))
            tried, right = counts[:KINDS], counts[KINDS : 2 * KINDS]
            parents, on = counts[2 * KINDS : -CLASSES - 1], counts[-CLASSES - 1 :]
            known = self._known[source] = (
                _corrected(PRIORS.get(source, DRAFTED), tried, right),
                _corrected(CONTINUATION, parents, on),
            )
        return known

    def path_probs(
        self, parent: Sequence[int], log_prob: Sequence[float], source: str | Sequence[str], *, verified_root: bool
    ) -> list[float]:
        """The probability that each node of a tree is accepted: the product of the rates along its path."""
        return Paths(self, verified_root=verified_root).extended(parent, log_prob, source)

    def updated(self, outcome: Outcome, *, verified_root: bool) -> AcceptanceModel:
        """With one more outcome: of every node on the accepted path, all children were tried."""
        tree, accepted = outcome.tree, set(outcome.accepted)
        log_prob, depth, source, counts = tree.log_prob, tree.depth, tree.source, dict[str, list[float]]()

        def count(name: str, place: int, right: bool) -> None:
            held = counts.get(name)
            if held is None:
                held = counts[name] = list(self.counts.get(name, (0.0,) * (2 * KINDS + 2 * CLASSES + 2)))
            held[place] += 1.0
            held[place + (KINDS if place < KINDS else CLASSES + 1)] += right

        if not verified_root:
            count(source[0], class_of(source[0], float(log_prob[0]), 1), 0 in accepted)
        for node in [0, *outcome.accepted] if verified_root else outcome.accepted:
            children = tree.children[node]
            if not children:
                continue
            for rank, child in enumerate(children):
                name = source[child]
                kind = class_of(name, float(log_prob[child]), int(depth[child]))
                count(name, min(rank, RANKS - 1) * CLASSES + kind, child in accepted)
            name, goes_on = source[children[0]], any(child in accepted for child in children)
            at = 1 + class_of(name, float(log_prob[node]), int(depth[node])) if node else 0
            count(name, 2 * KINDS + at, goes_on)
        return replace(self, counts={**self.counts, **{name: tuple(held) for name, held in counts.items()}})


@dataclass(frozen=True, slots=True)
class Worth:
    """Whether drafting pays, by what came of it lately.

    `gain`: tokens beyond plain decoding's one an iteration; `cost`: time beyond its pass, in tokens that plain decoding
    would have given meanwhile; `weight`: iterations. All are sums in which older iterations fade. Where the cost is
    more, nothing is drafted, and it is tried again after `wait` iterations, of which `waited` are over: each time after
    more of them, and seldom enough that trying takes a small share of the time.
    """

    gain: float = CREDIT
    cost: float = 0.0
    weight: float = 0.0
    wait: int = 0
    waited: int = 0

    @property
    def drafts(self) -> bool:
        """Whether the next iteration drafts."""
        return self.gain >= self.cost or not self.rest

    @property
    def rest(self) -> int:
        """Iterations until it is tried again."""
        return max(self.wait - self.waited, 0)

    @property
    def mean_gain(self) -> float:
        """Tokens of an iteration that drafted, beyond the first."""
        return self.gain / max(self.weight, 1.0)

    @property
    def mean_cost(self) -> float:
        """What such an iteration cost beyond a pass of plain decoding, in tokens of that."""
        return self.cost / max(self.weight, 1.0)

    def after(self, gain: float, cost: float, *, drafted: bool) -> Worth:
        """With one more iteration."""
        if not drafted:
            return replace(self, waited=self.waited + 1)
        now = Worth(FADING * self.gain + gain, FADING * self.cost + cost, FADING * self.weight + 1)
        if now.gain >= now.cost:
            return now
        return replace(now, wait=min(max(2 * self.wait, LEAST_WAIT, round(cost / TRYING)), MOST_WAIT))


class Paths:
    """The probabilities of a growing tree's nodes, each worked out once."""

    def __init__(self, model: AcceptanceModel, *, verified_root: bool) -> None:
        self._model, self._verified_root = model, verified_root
        self._depth, self._children = list[int](), list[int]()
        self.probs = list[float]()

    def extended(self, parent: Sequence[int], log_prob: Sequence[float], source: str | Sequence[str]) -> list[float]:
        """`probs` with those of the nodes that came to the tree since; `source`: one for all, or one for each."""
        probs, depth, children = self.probs, self._depth, self._children
        first, new = len(probs), len(parent) - len(probs)
        probs += [1.0] * new
        depth += [0] * new
        children += [0] * new
        name, rates = "", Numbers()
        for node in range(first, len(parent)):
            above, rank, before = parent[node], 0, 1.0
            if above >= 0:
                depth[node], rank, before = depth[above] + 1, children[above], probs[above]
                children[above] = min(rank + 1, RANKS - 1)
            elif self._verified_root:
                continue
            own = source if isinstance(source, str) else source[node]
            if own != name:
                name, rates = own, self._model.rates(own)[0]
            probs[node] = before * _rate(rates, rank * CLASSES, own, log_prob[node], depth[node])
        return probs

    def going_on(self, nodes: Sequence[int], log_prob: Sequence[float], source: str) -> list[float]:
        """For each of `nodes` how often it goes on with a child, once it is accepted."""
        rates = self._model.rates(source)[1]
        return [_rate(rates, 1, source, log_prob[node], self._depth[node]) if node else rates[0] for node in nodes]


def class_of(source: str, log_prob: float, depth: int) -> int:
    """The class of a node: of its stated probability, or where it is a copy of its depth."""
    return bisect_left(DEPTHS, depth) if source in COPIED else bisect_left(STATED, log_prob)


def _rate(rates: Numbers, first: int, source: str, log_prob: float, depth: int) -> float:
    """The rate of a node among those of the classes, which begin at `first`: between two typical ones on a line."""
    if source in COPIED:
        return rates[first + bisect_left(DEPTHS, depth)]
    above = bisect_left(TYPICAL, log_prob)
    if above in {0, CLASSES}:
        return rates[first + min(above, CLASSES - 1)]
    low, high = TYPICAL[above - 1 : above + 1]
    share, at = (log_prob - low) / (high - low), first + above
    return rates[at - 1] + share * (rates[at] - rates[at - 1])


def _corrected(prior: Numbers, tried: Numbers, right: Numbers) -> Numbers:
    rows = zip(prior, tried, right, strict=True)
    return tuple([min(max((hit + PRIOR * before) / (count + PRIOR), LEAST), MOST) for before, count, hit in rows])
