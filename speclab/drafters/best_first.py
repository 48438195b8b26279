"""EAGLE-2's dynamic tree: grown where its own probabilities are best, then cut to the best of all its candidates.

Li et al. 2024 (EAGLE-2, arXiv 2406.16858), section 4: expansion, then re-ranking. The value of a candidate is the
probability of its path. As that falls with depth, the best candidates always form a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import exp
from typing import TYPE_CHECKING

from speclab.drafters.base import Context, Draft, TopK
from speclab.drafters.draft_forward import Row
from speclab.drafters.policies import BLANK, Candidate, Gate
from speclab.trace.records import Event, Value
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.drafters.head_passes import Passes


@dataclass(frozen=True, slots=True)
class Limits:
    """`node_budget`: nodes kept, root included. `depth`: levels below the root. `children`: nodes expanded a level,
    and candidates that each of them gives.
    """

    node_budget: int
    depth: int
    children: int


def best_first(limits: Limits, passes: Passes, context: Context, source: str) -> Draft:
    """One draft tree, in at most `depth` passes, one a level.

    A node of which no child can be among the best is not expanded, though it is among the best of its level: EAGLE-2
    expands it and drops what comes of it, so the tree is the same.

    Args:
        source: what the tree's nodes are said to come from.
    """
    candidates = _Candidates(limits, context.tokens[-1])
    columns = candidates.parent, candidates.log_prob
    level = [0]
    for depth in range(min(limits.depth, context.max_depth)):
        chosen = candidates.worth_expanding(level)
        gate = context.level_gate(*columns, chosen, source) if chosen and context.level_gate is not None else None
        if not chosen or candidates.stopped(chosen, gate):
            break
        context.check()
        rows = [Row(node, candidates.parent[node], candidates.token[node]) for node in chosen]
        tops = passes.after(rows) if depth else [passes.after_root(context.tokens)]
        level = candidates.expand(chosen, tops)
    draft, place = candidates.finish(source)
    passes.renumber(place)
    return draft


def restrict(tree: DraftTree, was: Limits, now: Limits) -> DraftTree | None:
    """The tree of `now` out of one of `was`: the best of its nodes; None where others would have come in.

    The nodes of a tree are the best of all candidates, and all of them where it is not full.
    """
    full = len(tree) >= was.node_budget
    kept = [node for node in range(len(tree)) if tree.depth[node] <= now.depth]
    best = nsmallest(now.node_budget, kept, key=lambda node: (-tree.path_log_prob[node], tree.depth[node], node))
    grows_deeper = now.depth > was.depth and any(tree.depth[node] == was.depth for node in best)
    if now.children != was.children or grows_deeper or (full and len(best) < now.node_budget):
        return None
    return tree.select([node in set(best) for node in range(len(tree))])


class _Candidates:
    """Every node so far, in the order found: columns, the likeliest next tokens of those expanded, ranks by level."""

    def __init__(self, limits: Limits, root: int) -> None:
        self._limits = limits
        self.token, self.parent, self.depth = [root], [-1], [0]
        self.log_prob, self.path_log_prob = [0.0], [0.0]
        self._tops: dict[int, TopK] = {}
        self._stops: dict[int, Gate] = {}
        self._rank: dict[int, tuple[int, int]] = {}
        """Place among its level, from 1, and the size of the level."""

    def worth_expanding(self, level: Sequence[int]) -> list[int]:
        """The best `children` nodes of a level of which a child may yet be among the best of all, best first."""
        ranked = sorted(level, key=self._order)
        self._rank.update((node, (rank, len(ranked))) for rank, node in enumerate(ranked, start=1))
        able = set(self._best(self._limits.node_budget - 1))  # a child comes behind its parent, and needs a place too
        return [node for node in ranked[: self._limits.children] if node in able]

    def stopped(self, nodes: Sequence[int], gate: Gate | None) -> bool:
        """Whether a gate is closed to these nodes; it is then the reason why they are leaves."""
        self._stops = {} if gate is None else dict.fromkeys(nodes, gate)
        return gate is not None

    def expand(self, nodes: Sequence[int], tops: Sequence[TopK]) -> list[int]:
        """Adds the likeliest next tokens of each node; returns the new level."""
        first = len(self.token)
        for node, top in zip(nodes, tops, strict=True):
            self._tops[node] = top
            for token, log_prob in top[: self._limits.children]:
                self.token.append(token)
                self.parent.append(node)
                self.depth.append(self.depth[node] + 1)
                self.log_prob.append(log_prob)
                self.path_log_prob.append(self.path_log_prob[node] + log_prob)
        return list(range(first, len(self.token)))

    def finish(self, source: str) -> tuple[Draft, dict[int, int]]:
        """The tree of the best, the record of every decision, and the place in the tree of each node in it."""
        kept = sorted(self._best(self._limits.node_budget))
        number = {node: place for place, node in enumerate(kept)} | {-1: -1}
        tree, order = DraftTree.grown(
            [self.token[node] for node in kept],
            [number[self.parent[node]] for node in kept],
            [self.log_prob[node] for node in kept],
            ["target", *[source] * (len(kept) - 1)],
        )
        place = {kept[number]: index for index, number in enumerate(order)}
        least = exp(min(self.path_log_prob[node] for node in kept))
        events: list[Event] = []
        for node, index in place.items():
            events += self._told(node, index, len(tree.children[index]), least)
        tops = {index: self._tops[node] for node, index in place.items() if node in self._tops}
        return Draft(tree, tuple(events), tops), place

    def _order(self, node: int) -> tuple[float, int, int]:
        """Likelier first; then the shallower, then the earlier: no node before its parent."""
        return -self.path_log_prob[node], self.depth[node], node

    def _best(self, count: int) -> list[int]:
        return nsmallest(count, range(len(self.token)), key=self._order)

    def _told(self, node: int, index: int, kept: int, least: float) -> list[Event]:
        """Why a node of the tree was expanded or not, and which of its children did not come into the tree."""
        if not self._tops.get(node):
            return [self._stopped(node, index)]
        top = self._tops[node][: self._limits.children]
        size = self._rank[node][1]
        values = {
            "confidence": exp(top[0][1]),
            "branches": len(top),
            "path_prob": exp(self.path_log_prob[node]),
            "level": self.depth[node] + 1,
        }
        best = f"among the {self._limits.children} best of {size} on its level" if size > 1 else "the root"
        told = [Event("expand", index, f"{best}, path probability {values['path_prob']:.3f}", values)]
        if kept < len(top):
            token, log_prob = top[kept]  # likelier siblings come first
            path_prob = values["path_prob"] * exp(log_prob)
            reason = (
                f"path probability {path_prob:.2g}, and the {self._limits.node_budget} best have {least:.2g} and more"
            )
            dropped = {"token": token, "path_prob": path_prob, "dropped": len(top) - kept, "least_kept": least}
            told.append(Event("prune", index, reason, dropped))
        return told

    def _candidate(self, node: int) -> Candidate:
        return Candidate(self.depth[node], exp(self.log_prob[node]), exp(self.path_log_prob[node]))

    def _stopped(self, node: int, index: int) -> Event:
        limits, path_prob = self._limits, exp(self.path_log_prob[node])
        rank, size = self._rank.get(node, (0, 0))
        if node in self._stops:
            closed = self._stops[node]
            return Event("stop", index, closed.reason(self._candidate(node)), {"gate": closed.name, **closed.values})
        if node in self._tops:
            gate, reason = BLANK, "nothing is known to come next"
        elif not rank:
            gate, reason = "depth", f"the last of {self.depth[node]} levels"
        elif rank > limits.children:
            gate, reason = "children", f"number {rank} of {size} on its level, and the {limits.children} best go on"
        else:
            gate, reason = "node_budget", f"no child of it can be among the {limits.node_budget} best"
        values: dict[str, Value] = {"gate": gate, "path_prob": path_prob, "level": self.depth[node], "rank": rank}
        return Event("stop", index, reason, values)
