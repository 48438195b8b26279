"""Dual-Draft Routing: two heads draft two trees from one root, and the better-scoring tree is
verified.

"Dual-Draft Routing: Two Trees Enter, One Tree Gets Verified" (2026): confidence section 4, routing
rule section 5, interchangeability section 7, verifying both trees as one section 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from speclab.drafters.base import Context, Depth, Draft, Drafter, Outcome, Strategy, lacks, require
from speclab.drafters.candidates import Candidates, followed
from speclab.drafters.cost import NodeBudget
from speclab.drafters.draft_head import DraftHead
from speclab.drafters.grow import GrownDrafter
from speclab.errors import SettingsError
from speclab.trace.records import Event, Proposal, Value
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.loading.presets import Offer
    from speclab.pair import ModelPair

PARTS = ("first", "second")
Part = Annotated[int | None, Field(ge=0, le=15)]


class DualDraft(Strategy):
    """Two draft heads, or a head and the draft model, draft; the tree with the larger mean
    confidence is verified.

    Both are EAGLE-2 trees with the same node budget, because a mean confidence favours small trees.
    """

    group: ClassVar[str] = "papers"

    mode: Literal["route", "merge"] = Field(
        "route", description="verify the better tree, or both trees as one"
    )
    node_budget: Annotated[
        NodeBudget, Field(description="maximum nodes of each tree, root included")
    ] = "auto"
    depth: Depth = Field(7, ge=1, le=32, description="levels below the root, one pass each")
    children: int = Field(
        10, ge=1, le=64, title="k", description="nodes expanded per level, children of each"
    )
    first: Part = Field(0, description="the head that drafts the first tree; none: the draft model")
    second: Part = Field(
        1, description="the head that drafts the second tree; none: the draft model"
    )

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper, routing": cls(node_budget=60),
            "paper, section 10: both trees as one": cls(node_budget=60, mode="merge"),
            "the draft model and a head": cls(first=None, second=0),
        }

    def missing(self, offer: Offer) -> str:
        if _offered(self.first, offer) and _offered(self.second, offer):
            return ""
        return lacks(self, offer, f"{_called(self.first)} and {_called(self.second)}")

    def drafter(self, pair: ModelPair) -> Drafter:
        if self.first == self.second:
            raise SettingsError("DualDraft needs two different drafts: change first or second.")
        require(self, pair.offer)
        return DualDrafter(self, pair)


def _offered(part: int | None, offer: Offer) -> bool:
    if part is None:
        return offer.draft
    return part < offer.heads


def _called(part: int | None) -> str:
    if part is None:
        return "the draft model"
    return f"draft head {part}"


class DualDrafter(Drafter):
    settings: DualDraft

    def __init__(self, settings: DualDraft, pair: ModelPair) -> None:
        super().__init__(settings)
        tree = DraftHead(
            node_budget=settings.node_budget, depth=settings.depth, children=settings.children
        )
        self._parts = [GrownDrafter(tree, pair, head) for head in (settings.first, settings.second)]
        self._names = tuple(part.source for part in self._parts)
        self.runners = tuple(part.runners[0] for part in self._parts)
        self._drafts: list[Draft] = []

    def draft(self, context: Context) -> Draft:
        # both heads draft a whole tree with the same budget (section 4); one of them may go unused
        self._drafts = [part.draft(context) for part in self._parts]
        if self.settings.mode == "merge":
            return merge(self._names, self._drafts)
        return route(self._names, self._drafts)

    def commit(self, outcome: Outcome) -> None:
        """Both parts continue from the committed text, whichever tree was verified (section 7)."""
        for part, draft in zip(self._parts, self._drafts, strict=True):
            part.commit(followed(outcome, draft.tree))


def confidence(tree: DraftTree) -> float:
    """μ_h: the mean of c = exp(cumulative log-probability) over the nodes but the root, 0…1 (sections 4 and 5)."""
    if len(tree) == 1:
        return 0.0
    return float(np.exp(tree.path_log_prob[1:]).mean())


def route(names: Sequence[str], drafts: Sequence[Draft]) -> Draft:
    """The draft with the larger mean confidence: h* = argmax μ_h, the first of two equal ones (section 5)."""
    # line by line of section 5: μ_1, μ_2, then h*; no model has seen either tree yet
    means = [confidence(draft.tree) for draft in drafts]
    chosen = int(np.argmax(means))
    other = 1 - chosen
    by = "confidence"
    if means[0] == means[1]:
        by = "equal"
    values: dict[str, Value] = {
        "by": by,
        "route": names[chosen],
        "other": names[other],
        "mean": means[chosen],
        "mean_other": means[other],
        "chosen": PARTS[chosen],
        "mean_first": means[0],
        "mean_second": means[1],
        "margin": means[chosen] - means[other],
        "nodes": len(drafts[chosen].tree),
        "nodes_first": len(drafts[0].tree),
        "nodes_second": len(drafts[1].tree),
    }
    events = [Event("route", None, values)]
    events += drafts[chosen].events
    # the other tree is kept for the record alone: no row of the pass
    return replace(drafts[chosen], events=events, proposals=_proposals(names, drafts, {chosen}))


def merge(names: Sequence[str], drafts: Sequence[Draft]) -> Draft:
    """The union of both trees as one prefix tree (section 10), of max(n, m) to n + m - 1 nodes.

    A node's source is the name of its part, or "both"; its log-probability is the larger of the
    two.
    """
    union = Candidates(int(drafts[0].tree.token[0]))  # both roots are the newest committed token
    means = [confidence(draft.tree) for draft in drafts]
    drafted = [len(draft.tree) - 1 for draft in drafts]
    events = []
    for name, draft in zip(names, drafts, strict=True):
        # the second tree adds what the first one lacks; the path so far decides, not the place
        nodes = union.merge(draft, name)
        for event in draft.events:
            node = event.node
            if node is not None:
                node = nodes[node]
            events.append(Event(event.kind, node, {**event.values, "part": name}))
    values: dict[str, Value] = {
        "by": "merge",
        "route": "merge",
        "shared": sum(drafted) - (len(union) - 1),  # tokens that both heads proposed
        "mean_first": means[0],
        "mean_second": means[1],
        "nodes": len(union),
        "drafted_first": drafted[0],
        "drafted_second": drafted[1],
    }
    merged = union.draft([Event("route", None, values)] + events)
    return replace(merged, proposals=_proposals(names, drafts, {0, 1}))


def _proposals(
    names: Sequence[str], drafts: Sequence[Draft], chosen: set[int]
) -> tuple[Proposal, ...]:
    proposals = []
    for index, draft in enumerate(drafts):
        mean = confidence(draft.tree)
        proposals.append(Proposal(names[index], draft.tree, mean, mean, index in chosen))
    return tuple(proposals)
