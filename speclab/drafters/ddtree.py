"""DDTree: the most probable paths of a block head's marginals, best first (Ringel and Romano 2026,
arXiv 2604.12989).

A block head gives one distribution per depth, independent of the path. So the score of a path is
the sum of the log-probabilities of its tokens, each at its own depth, and one pass determines the
tree of the best paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import exp
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy, TopK, lacks, require
from speclab.drafters.cost import NodeBudget, with_node_budget
from speclab.drafters.draft_pass import BlockPass, DraftPassDrafter
from speclab.trace.records import RANKS, Event, Value
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.loading.presets import Offer
    from speclab.pair import ModelPair


class DDTree(Strategy):
    """A tree of the most probable paths of a block head's marginals: one draft pass for any depth."""

    group: ClassVar[str] = "papers"

    node_budget: NodeBudget = "auto"
    head: int | None = Field(
        default=None,
        ge=0,
        le=15,
        description="which of the pair's heads, counted from 0, drafts the block; none: the first block head",
    )

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"paper (60 nodes)": cls(node_budget=60)}

    def missing(self, offer: Offer) -> str:
        blocks = range(offer.heads) if offer.blocks is None else offer.blocks
        if blocks and self.head in (None, *blocks):
            return ""
        where = "" if self.head is None else f" as head {self.head}"
        return lacks(self, offer, f"a block head (DFlash){where}")

    def drafter(self, pair: ModelPair) -> Drafter:
        require(self, pair.offer)
        head = pair.block_heads[0] if self.head is None else self.head
        return DDTreeDrafter(with_node_budget(self, pair.target), pair, head)


class DDTreeDrafter(DraftPassDrafter):
    settings: DDTree

    def draft(self, context: Context) -> Draft:
        budget = self.settings.node_budget
        assert budget != "auto"
        passes = self.begin(context, budget - 1)
        assert isinstance(passes, BlockPass)
        context.check()
        every = passes.marginals()
        paths = best_paths(every[: context.max_depth], budget - 1)
        tree, order = DraftTree.grown(
            [context.tokens[-1], *(path.token for path in paths)],
            [-1, *(path.parent for path in paths)],
            [0.0, *(path.log_prob for path in paths)],
            ["target", *[self.source] * len(paths)],
        )
        node_of = {number: node for node, number in enumerate(order)}
        events = [_marginal(depth, top) for depth, top in enumerate(every, start=1)]
        events += [
            _pop(number, node_of[number], path) for number, path in enumerate(paths, start=1)
        ]
        depths = tree.depth.tolist()
        return Draft(
            tree,
            events,
            {node: every[depth] for node, depth in enumerate(depths) if depth < len(every)},
        )


class Path(NamedTuple):
    """A path by its last node: the number of its parent (0 is the root; then in the order of the
    list), and its token, with its rank and log-probability at its depth. `score`: the sum of the
    path's log-probabilities.
    """

    parent: int
    token: int
    depth: int
    rank: int
    log_prob: float
    score: float


def best_paths(marginals: Sequence[TopK], count: int) -> list[Path]:
    """The `count` most probable paths, best first; parents come before their children.

    Args:
        marginals: for depths 1, 2, … tokens and their log-probabilities, best first.
    """
    paths: list[Path] = []
    heap: list[tuple[float, int, int, int, float]] = []

    def push(parent: int, depth: int, rank: int, above: float) -> None:
        if depth <= len(marginals) and rank < len(marginals[depth - 1]):
            score = above + marginals[depth - 1][rank][1]
            heappush(heap, (-score, depth, rank, parent, above))

    push(0, 1, 0, 0.0)
    while heap and len(paths) < count:
        minus_score, depth, rank, parent, above = heappop(heap)
        token, log_prob = marginals[depth - 1][rank]
        paths.append(Path(parent, token, depth, rank, log_prob, -minus_score))
        push(parent, depth, rank + 1, above)  # the next sibling
        push(len(paths), depth + 1, 0, -minus_score)  # the first child
    return paths


def _marginal(depth: int, top: TopK) -> Event:
    """The best tokens of a depth, on every path."""
    values: dict[str, Value] = {"level": depth, "confidence": exp(top[0][1])}
    for name, (token, log_prob) in zip(RANKS, top, strict=False):
        values |= {name: token, f"{name}_prob": exp(log_prob)}
    return Event("marginal", None, values)


def _pop(number: int, node: int, path: Path) -> Event:
    values: dict[str, Value] = {
        "order": number,
        "rank": path.rank + 1,
        "level": path.depth,
        "score": path.score,
    }
    values["path_prob"] = exp(path.score)
    return Event("pop", node, values)
