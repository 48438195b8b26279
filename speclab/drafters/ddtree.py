"""DDTree: the most probable paths of a block head, best first (Ringel and Romano 2026,
arXiv 2604.12989).

A block head gives one distribution per depth, independent of the path. So the score of a path is
the sum of the log-probabilities of its tokens, each at its own depth, and one pass determines the
tree of the best paths. With a Markov bias (DSpark, arXiv 2607.05147) the distribution after a node
also depends on the node's token, still without another pass (PCTree, arXiv 2608.02123).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from math import exp
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy, TopK, lacks, require
from speclab.drafters.cost import NodeBudget
from speclab.drafters.draft_pass import DraftPassDrafter
from speclab.errors import NoDraftError
from speclab.trace.records import RANKS, Event, Value
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.loading.presets import Offer
    from speclab.pair import ModelPair


TABLE = 16
"""Tokens of a depth whose successors come from one product."""

Condition = Annotated[
    Literal["auto", "parent", "none"],
    Field(
        description="what the next tokens of a node depend on (not in the paper): parent, its token, by the head's "
        "Markov bias; none, its depth alone; auto: parent if the head has a bias"
    ),
]


class DDTree(Strategy):
    """A tree of the most probable paths of a block head: one draft pass for any depth."""

    from_block: ClassVar[bool] = True
    group: ClassVar[str] = "papers"

    node_budget: NodeBudget = "auto"
    condition: Condition = "auto"
    head: int | None = Field(
        default=None,
        ge=0,
        le=15,
        description="which of the pair's heads, counted from 0, drafts the block; none: the first block head",
    )

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"paper (60 nodes)": cls(node_budget=60, condition="none")}

    def missing(self, offer: Offer) -> str:
        blocks = range(offer.heads) if offer.blocks is None else offer.blocks
        if blocks and self.head in (None, *blocks):
            return ""
        where = "" if self.head is None else f" as head {self.head}"
        return lacks(self, offer, f"a block head (DFlash){where}")

    def drafter(self, pair: ModelPair) -> Drafter:
        require(self, pair.offer)
        head = pair.block_heads[0] if self.head is None else self.head
        if self.condition == "parent" and not pair.heads[head].conditions:
            raise NoDraftError(
                f"The head {pair.head_names[head]} has no Markov bias, so its next tokens do not "
                "depend on the parent: choose condition='auto', or load a head with a bias."
            )
        return DDTreeDrafter(self, pair, head)


class DDTreeDrafter(DraftPassDrafter):
    settings: DDTree

    def draft(self, context: Context) -> Draft:
        budget = self.settings.node_budget
        assert budget != "auto"
        passes = self.begin(context, budget - 1)
        context.check()
        # one pass of the block: a distribution for each depth, [depths] x top tokens
        every = passes.marginals()
        # DSpark: with a Markov bias a row depends on its parent token, too
        conditioned = self.settings.condition != "none" and self.runners[0].conditions
        after = successors(every, passes.at_depths if conditioned else None)
        paths = best_paths(after, context.tokens[-1], budget - 1, passes.context.max_depth)
        tree, order, options = grown(paths, self.source)
        events = [] if conditioned else [_marginal(d, top) for d, top in enumerate(every, start=1)]
        return Draft(tree, [*events, *pops(paths, order)], options)


After = Callable[[int, int, int], "TopK"]
"""Next tokens after a path: the number of its parent (-1: it is the root), its depth and its last token."""


def successors(
    every: list[TopK], at_depths: Callable[[list[int], list[int]], list[TopK]] | None
) -> After:
    """What follows a path: the marginal of its depth, or with `at_depths` what follows its token there."""
    if at_depths is None:
        # a marginal knows its depth alone: all nodes of a depth share it
        return lambda _, depth, __: every[depth] if depth < len(every) else ()
    table: dict[tuple[int, int], TopK] = {}
    levels = [[every[0]], *([] for _ in every[1:])]  # what follows the paths of each depth

    def after(_: int, depth: int, token: int) -> TopK:
        # the first row has read the root; behind the last one the block ends
        if not depth or depth >= len(every):
            return () if depth or not every else every[0]
        if (depth, token) not in table:  # others of this depth will be asked for soon
            likely = [each for options in levels[depth - 1] for each, _ in options]
            new = [t for t in dict.fromkeys([token, *likely]) if (depth, t) not in table][:TABLE]
            tops = at_depths([depth] * len(new), new)
            table.update(zip([(depth, each) for each in new], tops, strict=True))
        levels[depth].append(table[depth, token])
        return table[depth, token]

    return after


class Path(NamedTuple):
    """A path by its last node: the number of its parent, and its token, with its rank and
    log-probability among its siblings. `score`: the sum of the path's log-probabilities. `options`:
    what follows it.
    """

    parent: int
    token: int
    depth: int
    rank: int
    log_prob: float
    score: float
    options: TopK


def best_paths(after: After, root: int, count: int, max_depth: int = 1 << 30) -> list[Path]:
    """The root, number 0, and the `count` most probable paths, best first; a path's parent comes before it."""
    paths = [Path(-1, root, 0, 0, 0.0, 0.0, after(-1, 0, root))]
    heap: list[tuple[float, int, int, int]] = []

    def push(parent: int, rank: int) -> None:
        above = paths[parent]
        if rank < len(above.options) and above.depth < max_depth:
            score = above.score + above.options[rank][1]
            heappush(heap, (-score, above.depth + 1, rank, parent))

    # Best first: a path is at most as probable as its parent and its better sibling, so these two
    # are all that a popped path can open. The k-th pop is the k-th most probable path of all.
    push(0, 0)
    while heap and len(paths) <= count:
        minus_score, depth, rank, parent = heappop(heap)
        token, log_prob = paths[parent].options[rank]
        options = after(parent, depth, token)
        paths.append(Path(parent, token, depth, rank, log_prob, -minus_score, options))
        push(parent, rank + 1)  # the next sibling
        push(len(paths) - 1, 0)  # the first child
    return paths


def grown(paths: list[Path], source: str) -> tuple[DraftTree, dict[int, int], dict[int, TopK]]:
    """The tree of paths, the node of each path's number, and what follows each node."""
    # paths come by probability, a tree needs them breadth-first
    tree, order = DraftTree.grown(
        [path.token for path in paths],
        [path.parent for path in paths],
        [path.log_prob for path in paths],
        ["target", *[source] * (len(paths) - 1)],
    )
    node_of = {number: node for node, number in enumerate(order)}
    options = {node_of[n]: path.options for n, path in enumerate(paths) if path.options}
    return tree, node_of, options


def _marginal(depth: int, top: TopK) -> Event:
    """The best tokens of a depth, on every path."""
    values: dict[str, Value] = {"level": depth, "confidence": exp(top[0][1])}
    for name, (token, log_prob) in zip(RANKS, top, strict=False):
        values |= {name: token, f"{name}_prob": exp(log_prob)}
    return Event("marginal", None, values)


def pops(paths: list[Path], node_of: Mapping[int, int]) -> Iterator[Event]:
    """How each path joined the tree, in order."""
    for number, path in enumerate(paths[1:], start=1):
        values: dict[str, Value] = {
            "order": number,
            "rank": path.rank + 1,
            "level": path.depth,
            "score": path.score,
            "path_prob": exp(path.score),
        }
        yield Event("pop", node_of[number], values)
