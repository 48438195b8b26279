"""DDTree: the most probable paths of a block head, best first (Ringel and Romano 2026,
arXiv 2604.12989).

A block head gives one distribution per depth, independent of the path. So the score of a path is
the sum of the log-probabilities of its tokens, each at its own depth, and one pass determines the
tree of the best paths. With a Markov bias (DSpark, arXiv 2607.05147) the distribution after a node
also depends on the node's token, still without another pass (PCTree, arXiv 2608.02123).
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import exp
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy, TopK, lacks, require
from speclab.drafters.candidates import Candidates, Successors, prob_of
from speclab.drafters.cost import NodeBudget
from speclab.drafters.draft_pass import DraftPassDrafter
from speclab.trace.records import RANKS, Event, Value

if TYPE_CHECKING:
    from speclab.loading.presets import Offer
    from speclab.pair import ModelPair


TABLE = 16
"""Tokens of a depth whose successors come from one product."""

Condition = Annotated[
    Literal["auto", "none"],
    Field(
        description="what the next tokens of a node depend on (not in the paper): auto, its token, too, if the head "
        "has a Markov bias; none, its depth alone"
    ),
]


class DDTree(Strategy):
    """A tree of the most probable paths of a block head: one draft pass for any depth."""

    from_block: ClassVar[bool] = True
    group: ClassVar[str] = "papers"

    node_budget: NodeBudget = "auto"
    condition: Condition = "auto"
    head: int | None = Field(
        None,
        ge=0,
        le=15,
        description="which of the pair's heads, counted from 0, drafts the block; none: the first block head",
    )

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"paper (60 nodes)": cls(node_budget=60, condition="none")}

    def missing(self, offer: Offer) -> str:
        blocks = offer.blocks
        if blocks is None:
            blocks = tuple(range(offer.heads))
        if self.head in blocks or (self.head is None and blocks):
            return ""
        what = "a block head (DFlash)"
        if self.head is not None:
            what += f" as head {self.head}"
        return lacks(self, offer, what)

    def drafter(self, pair: ModelPair) -> Drafter:
        require(self, pair.offer)
        head = self.head
        if head is None:
            head = pair.block_heads[0]
        return DDTreeDrafter(self, pair, head)


class DDTreeDrafter(DraftPassDrafter):
    settings: DDTree

    def draft(self, context: Context) -> Draft:
        budget = self.settings.number_of_nodes
        passes = self.begin(context, budget - 1)
        context.check()
        # one pass of the block: a distribution for each depth, [depths] x top tokens
        every = passes.marginals()
        # DSpark: with a Markov bias a row depends on its parent token, too
        at_depths = None
        events = []
        if self.settings.condition != "none" and self.runners[0].conditions:
            at_depths = passes.at_depths
        else:
            events = [_marginal(depth, top) for depth, top in enumerate(every, start=1)]
        after = successors(every, at_depths)
        root = context.tokens[-1]
        tree, pops = best_paths(after, root, budget - 1, self.source, passes.context.max_depth)
        return tree.draft(events + pops)


After = Callable[[int, int, int], "TopK"]
"""Next tokens after a path: the number of its parent (-1: it is the root), its depth and its last token."""


def successors(
    every: list[TopK], at_depths: Callable[[list[int], list[int]], list[TopK]] | None
) -> After:
    """What follows a path: the marginal of its depth, or with `at_depths` what follows its token there."""
    table: dict[tuple[int, int], TopK] = {}

    def after(_: int, depth: int, token: int) -> TopK:
        if depth >= len(every):  # the block ends
            return ()
        # a marginal knows its depth alone: all nodes of a depth share it; the first row has read
        # the root in any case
        if at_depths is None or depth == 0:
            return every[depth]
        if (depth, token) not in table:  # other likely tokens of this depth will follow soon
            likely = {token: 0.0} | dict(every[depth - 1])
            new = [other for other in likely if (depth, other) not in table][:TABLE]
            tops = at_depths([depth] * len(new), new)
            for other, top in zip(new, tops, strict=True):
                table[depth, other] = top
        return table[depth, token]

    return after


def best_paths(
    after: After, root: int, count: int, source: str, max_depth: int = 1 << 30
) -> tuple[Candidates, list[Event]]:
    """The root and the `count` most probable paths, best first, and how each joined the tree."""
    tree = Candidates(root)
    events: list[Event] = []
    options = [after(-1, 0, root)]
    scores = [0.0]
    heap: list[tuple[float, int, int, int]] = []

    def push(parent: int, rank: int) -> None:
        if rank < len(options[parent]) and tree.depth[parent] < max_depth:
            score = scores[parent] + options[parent][rank][1]
            heappush(heap, (-score, tree.depth[parent] + 1, rank, parent))

    # Best first: a path is at most as probable as its parent and its better sibling, so these two
    # are all that a popped path can open. The k-th pop is the k-th most probable path of all.
    push(0, 0)
    while heap and len(tree) <= count:
        minus_score, depth, rank, parent = heappop(heap)
        token, log_prob = options[parent][rank]
        node = tree.add(parent, token, prob_of(log_prob), source)
        options.append(after(parent, depth, token))
        scores.append(-minus_score)
        values: dict[str, Value] = {
            "order": node,
            "rank": rank + 1,
            "level": depth,
            "score": scores[node],
            "path_prob": exp(scores[node]),
        }
        events.append(Event("pop", node, values))
        push(parent, rank + 1)  # the next sibling
        push(node, 0)  # the first child
    for node, top in enumerate(options):
        if top:
            tree.successors[node] = Successors.of(top)
    return tree, events


def _marginal(depth: int, top: TopK) -> Event:
    """The best tokens of a depth, on every path."""
    values: dict[str, Value] = {"level": depth, "confidence": exp(top[0][1])}
    for name, (token, log) in zip(RANKS, top, strict=False):
        values |= {name: token, f"{name}_prob": exp(log)}
    return Event("marginal", None, values)
