"""EAGLE-2's dynamic tree from a draft head that reads the target's hidden states.

EAGLE: Li et al. 2024, arXiv 2401.15077. The tree: EAGLE-2, Li et al. 2024, arXiv 2406.16858, section 4: it is grown
where its own probabilities are best, then cut to the best of all its candidates. The value of a candidate is the
probability of its path; as that falls with depth, the best candidates always form a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from math import exp
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from speclab.drafters import measures
from speclab.drafters.base import Context, Draft, Drafter, Strategy, TopK
from speclab.drafters.draft_forward import DraftForward, ForwardDrafter, Row
from speclab.drafters.growth import Nodes, stop_event
from speclab.drafters.policies import BLANK_GATE, Gate, closed_gate
from speclab.trace.records import Event
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

NodeBudget = Annotated[
    measures.Nodes, Field(ge=1, le=1024, description="nodes kept, root included: the most probable paths of all")
]
Depth = Annotated[measures.Depth, Field(ge=1, le=32, description="levels below the root, one pass each")]
Children = Annotated[
    int, Field(ge=1, le=64, title="k", description="nodes expanded per level, and candidates that each of them gives")
]


class DraftHead(Strategy):
    """EAGLE-2's dynamic tree from one draft head; from the draft model where the pair has no heads."""

    node_budget: NodeBudget = 60
    depth: Depth = 7
    children: Children = 10
    head: int = Field(default=0, ge=0, le=15, description="which of the pair's heads, counted from 0")

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "EAGLE-2 (60 nodes, depth 7, 10 per level)": cls(),
            "EAGLE-2's code (710 candidates: its depth counts from the second level)": cls(depth=8),
            "small, for a CPU (not in the paper)": cls(node_budget=12, depth=5, children=4),
        }

    @property
    def needs_draft(self) -> bool:
        return True

    @property
    def heads_needed(self) -> int:
        return self.head and self.head + 1  # a draft model takes the place of the first

    def grow(self, forward: DraftForward, context: Context) -> Draft:
        return best_first(self, forward, context)

    @property
    def draft_source(self) -> int:
        return self.head

    def drafter(self, pair: ModelPair) -> Drafter:
        return _HeadDrafter(self, pair)


class _HeadDrafter(ForwardDrafter):
    settings: DraftHead

    def __init__(self, settings: DraftHead, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.head if pair.heads else settings.head or None)

    def draft(self, context: Context) -> Draft:
        return self.settings.grow(self.forward(self.settings.children), context)


def best_first(limits: DraftHead, forward: DraftForward, context: Context) -> Draft:
    """One draft tree, in at most `depth` passes, one per level.

    A node of which no child can be among the best is not expanded, though it is among the best of its level: EAGLE-2
    expands it and drops what comes of it, so the tree is the same.

    Args:
        limits: `node_budget`, `depth` and `children` of the tree.
    """
    candidates = _Candidates(limits, context.tokens[-1])
    level = [0]
    for depth in range(min(limits.depth, context.max_depth)):
        chosen = candidates.worth_expanding(level)
        if not chosen:
            break
        context.check()
        rows = [Row(node, candidates.parent[node], candidates.token[node]) for node in chosen]
        tops = forward.after(rows) if depth else [forward.after_root(context.tokens)]
        level = candidates.expand(chosen, tops)
    draft, place = candidates.finish(forward.source)
    forward.renumber(place)
    return draft


class _Candidates(Nodes):
    """Every node so far, the top-k next tokens of those expanded, ranks by level."""

    def __init__(self, limits: DraftHead, root: int) -> None:
        super().__init__()
        self.add(-1, ((root, 0.0),))
        self._limits = limits
        self._tops: dict[int, TopK] = {}
        self._rank: dict[int, tuple[int, int]] = {}
        """Place among its level, from 1, and the size of the level."""

    def worth_expanding(self, level: Sequence[int]) -> list[int]:
        """The best `children` nodes of a level of which a child may yet be among the best of all, best first."""
        ranked = sorted(level, key=self._order)
        self._rank.update((node, (rank, len(ranked))) for rank, node in enumerate(ranked, start=1))
        able = set(self._best(self._limits.node_budget - 1))  # a child comes behind its parent, and needs a place too
        return [node for node in ranked[: self._limits.children] if node in able]

    def expand(self, nodes: Sequence[int], tops: Sequence[TopK]) -> list[int]:
        """Adds the most probable next tokens of each node; returns the new level."""
        first = len(self.token)
        for node, top in zip(nodes, tops, strict=True):
            self._tops[node] = top
            self.add(node, top[: self._limits.children])
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
            if self._tops.get(node):
                events += self._expanded(node, index, len(tree.children[index]), least)
            else:
                events.append(stop_event(index, self._gate(node), self.candidate(node)))
        tops = {index: self._tops[node] for node, index in place.items() if node in self._tops}
        return Draft(tree, tuple(events), tops), place

    def _order(self, node: int) -> tuple[float, int, int]:
        """More probable first; then the shallower, then the earlier: no node before its parent."""
        return -self.path_log_prob[node], self.depth[node], node

    def _best(self, count: int) -> list[int]:
        return nsmallest(count, range(len(self.token)), key=self._order)

    def _expanded(self, node: int, index: int, kept: int, least: float) -> list[Event]:
        """Why a node of the tree was expanded, and which of its children did not come into the tree."""
        top = self._tops[node][: self._limits.children]
        size = self._rank[node][1]
        values = {
            "confidence": exp(top[0][1]),
            "branches": len(top),
            "path_prob": exp(self.path_log_prob[node]),
            "level": self.depth[node] + 1,
        }
        best = f"among the {self._limits.children} best of {size} on its level" if size > 1 else "the root"
        events = [Event("expand", index, f"{best}, path probability {values['path_prob']:.3f}", values)]
        if kept < len(top):
            token, log_prob = top[kept]  # more probable siblings come first
            path_prob = values["path_prob"] * exp(log_prob)
            reason = (
                f"path probability {path_prob:.2g}, and the {self._limits.node_budget} best have {least:.2g} and more"
            )
            dropped = {"token": token, "path_prob": path_prob, "dropped": len(top) - kept, "least_kept": least}
            events.append(Event("prune", index, reason, dropped))
        return events

    def _gate(self, node: int) -> Gate:
        """Why a node of the tree was not expanded, or gave nothing."""
        limits, (rank, size) = self._limits, self._rank.get(node, (0, 0))
        if node in self._tops:
            return BLANK_GATE
        if not rank:
            return closed_gate("depth", f"the last of {self.depth[node]} levels", rank=rank)
        if rank > limits.children:
            reason = f"number {rank} of {size} on its level, and the {limits.children} best go on"
            return closed_gate("children", reason, rank=rank)
        return closed_gate("node_budget", f"no child of it can be among the {limits.node_budget} best", rank=rank)
