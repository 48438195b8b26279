"""How many nodes of a draft are worth verifying: those that give the most expected tokens a second.

Arithmetic on arrays alone. A node's probability is that of its whole path, so none is above its parent's, and the k
likeliest nodes always form a tree. The best tree of k nodes is therefore those k; the best k is found by trying each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np

from speclab.drafters.base import Draft, Outcome
from speclab.drafters.policies import Gate
from speclab.trace.records import Event
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


@dataclass(frozen=True, slots=True)
class Worth:
    """What a node and a pass are worth in one iteration; times are seconds, measured on this machine.

    `verify`: of a target pass over so many nodes, from 0. `next_pass`: of a draft pass over so many rows. `spent`: of
    the draft passes of this iteration so far.
    """

    verify: Callable[[int], Floats]
    next_pass: Callable[[int], float]
    spent: Callable[[], float]
    reach: Reach


class Grown(Protocol):
    """The columns of a tree under construction; children of a node stand together, behind their parent."""

    @property
    def parent(self) -> Sequence[int]: ...

    @property
    def log_prob(self) -> Sequence[float]: ...


class Prospect:
    """Follows one tree while it grows.

    Args:
        source: what its nodes will be said to come from.
        verified_root: whether node 0 is the target's own token.
    """

    def __init__(self, worth: Worth, source: str, *, verified_root: bool = True) -> None:
        self._worth, self._source, self._verified_root = worth, source, verified_root
        self._reach: list[float] = []

    def gate(self, tree: Grown, nodes: Sequence[int]) -> Gate | None:
        """A gate that is closed to all of `nodes` where asking for their children cannot raise tokens a second.

        It looks one level ahead: each node is taken to go on as often as nodes did so far. The first level is always
        drafted, or nothing would be learned.
        """
        if len(tree.parent) == 1:
            return None
        self._follow(tree)
        worth, reach = self._worth, np.asarray(self._reach)
        likely = reach.copy()
        likely[0] = np.inf
        further = np.concatenate([likely, reach[list(nodes)] * worth.reach.onward])
        spent, asked = worth.spent(), worth.next_pass(len(nodes))
        now, then = self._best(likely, spent), self._best(further, spent + asked)
        return None if then[0] > now[0] else _cost_gate(now, then)

    def _best(self, likely: Floats, spent: float) -> tuple[float, float]:
        """The highest rate, and its expected tokens."""
        seconds = self._worth.verify(len(likely))[1 : len(likely) + 1]
        ordered = np.sort(likely)[::-1]
        ordered[0] = 0.0 if self._verified_root else self._reach[0]
        by_size = rates(ordered, seconds, spent)
        count = int(by_size.argmax())
        return float(by_size[count]), float(by_size[count] * (spent + seconds[count]))

    def _follow(self, tree: Grown) -> None:
        """Takes over the nodes that came since."""
        start = len(self._reach)
        parent = np.asarray(tree.parent[start:])
        log_prob = np.asarray(tree.log_prob[start:], dtype=np.float64)
        nodes = Columns(sibling_ranks(parent), log_prob, self._source)
        for above, rate in zip(parent.tolist(), self._worth.reach.rates(nodes).tolist(), strict=True):
            root = above < 0
            self._reach.append((1.0 if self._verified_root else rate) if root else rate * self._reach[above])


def _cost_gate(now: tuple[float, float], then: tuple[float, float]) -> Gate:
    tokens = max(then[1] - now[1], 0.0)
    cost = then[1] / then[0] - now[1] / now[0]
    reason = (
        f"another level may bring {tokens:.2f} tokens for {1000 * cost:.2f} ms, and at {now[0]:.0f} tokens/s it would "
        f"have to bring {now[0] * cost:.2f}"
    )
    values = {"level_tokens": tokens, "level_seconds": cost, "tokens_per_second": now[0]}
    return Gate("cost", lambda _: True, lambda _: reason, dict(values))


T = TypeVar("T")


def trimmed(draft: Draft, choice: Choice, reach: Floats) -> tuple[Draft, dict[int, int]]:
    """The draft of the nodes that are kept, and the new place of each of them.

    A "prune" event stands for all that is left out below one node, its likeliest first.
    """
    kept = np.flatnonzero(choice.keep).tolist()
    place = {node: index for index, node in enumerate(kept)}
    events = tuple(
        event if event.node is None or event.node == place[event.node] else replace(event, node=place[event.node])
        for event in draft.events
        if event.node is None or event.node in place
    )
    made = replace(
        draft,
        tree=draft.tree.select(choice.keep.tolist()),
        events=(*events, *_dropped(draft, choice, reach, place)),
        topk=Renumbered(draft.topk, place),
        draft_probs=Renumbered(draft.draft_probs, place),
    )
    return made, place


def told(choice: Choice, drafted: int) -> Event:
    """What was chosen, in one sentence with its numbers."""
    verified = int(choice.keep.sum())
    what = f"trimmed to {verified} of {drafted} nodes" if verified < drafted else f"all {drafted} nodes"
    reason = f"{what}: expected {choice.expected:.1f} tokens in {1000 * choice.seconds:.1f} ms"
    values = {
        "verified": verified,
        "drafted": drafted,
        "expected_tokens": choice.expected,
        "expected_seconds": choice.seconds,
        "tokens_per_second": choice.rate,
        "least_kept": choice.least,
    }
    return Event("budget", None, reason, values)


def untrimmed(drafted: int) -> Event:
    """Why a tree of draws is verified whole."""
    reason = f"all {drafted} nodes: to drop drawn candidates by their probability would bend their law"
    return Event("budget", None, reason, {"verified": drafted, "drafted": drafted})


def _dropped(draft: Draft, choice: Choice, reach: Floats, place: Mapping[int, int]) -> Iterator[Event]:
    """One event for each node that lost something: its likeliest lost child, and how many nodes were lost below it."""
    tree = draft.tree
    parents, likely = tree.parent.tolist(), reach.tolist()
    lost: dict[int, list[int]] = {}
    under: dict[int, int] = {}
    for node, above in enumerate(parents):
        if node not in place:
            under[node] = above if above in place else under[above]
            lost.setdefault(under[node], []).append(node)
    for above, nodes in lost.items():
        best = max(nodes, key=likely.__getitem__)
        reason = (
            f"expected to be accepted {likely[best]:.1%} of the time, and a further node pays from {choice.least:.1%}: "
            "not worth its time in the pass"
        )
        values = {
            "token": int(tree.token[best]), "expected": likely[best], "least": choice.least, "dropped": len(nodes)
        }  # fmt: skip
        yield Event("prune", place[above], reason, values)


class Renumbered(Mapping[int, T]):
    """What is known of nodes under their new places; looked up in the old mapping only when asked for."""

    def __init__(self, known: Mapping[int, T], place: Mapping[int, int]) -> None:
        self._known = known
        self._old = {place[node]: node for node in known if node in place}

    def __getitem__(self, place: int) -> T:
        return self._known[self._old[place]]

    def __iter__(self) -> Iterator[int]:
        return iter(self._old)

    def __len__(self) -> int:
        return len(self._old)
