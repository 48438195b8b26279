"""Token Recycling: a static tree filled from a table of each token's most probable successors (Luo
et al. 2025).

Every verified row updates the table, rejected rows too. The paper's tree has 80 drafted nodes: 8,
21, 25, 15, 8 and 3 by depth. The paper does not say which nodes have children; here they are those
with the smallest product of ranks.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, ClassVar

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.drafters.cost import NodeBudget
from speclab.drafters.transitions import TableDrafter, Width

if TYPE_CHECKING:
    from speclab.pair import ModelPair

LEVELS = (8, 21, 25, 15, 8, 3)
"""Drafted nodes of the paper's tree by depth, from 1."""
FIRST = 0.4
"""Assumed acceptance of the first successor, by which smaller trees are cut."""


class TokenRecycling(Strategy):
    """A static tree: each node is a successor that the target last gave its parent's token, most probable first."""

    group: ClassVar[str] = "training-free"

    node_budget: NodeBudget = "auto"
    successors: Width = 8

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"paper, 80 drafted nodes": cls(node_budget=81)}

    def drafter(self, pair: ModelPair) -> Drafter:
        return TokenRecyclingDrafter(self, pair, self.successors)


class TokenRecyclingDrafter(TableDrafter):
    settings: TokenRecycling

    def draft(self, context: Context) -> Draft:
        """A node of rank r is the r-th successor of its parent's token; it is left out if the table has none."""
        tree = self.rooted(context)
        node_of: dict[int, int] = {0: 0}
        for index, (parent, rank) in enumerate(
            template(self.settings.number_of_nodes, self.settings.successors), start=1
        ):
            above = node_of.get(parent)
            if above is None or tree.depth[above] >= context.max_depth:
                continue
            successors = tree.successors.get(above) or self.successors(tree, above)
            if rank < len(successors.tokens):
                node_of[index] = tree.add(
                    above, successors.tokens[rank], successors.probs[rank], "transition"
                )
        return tree.draft([self.route(tree.way("transitions"))])


@lru_cache(maxsize=32)
def template(node_budget: int, successors: int) -> tuple[tuple[int, int], ...]:
    """(parent, rank) of every drafted node of the static tree, breadth-first; node 0 is the root,
    rank 0 the first.

    Each level has the nodes with the smallest product of ranks (from 1) on their path. A smaller
    tree keeps the nodes most likely to be accepted if the first successor has the rate `FIRST` and
    the others a rate inversely proportional to their rank; a larger tree has larger levels.
    """
    scale = max(1.0, (node_budget - 1) / sum(LEVELS))
    nodes = [(1.0, -1, 0)]  # probability, parent, rank
    level = range(1)
    for size in LEVELS:
        children = []
        for node in level:
            prob = nodes[node][0] * FIRST
            children += [(prob / (rank + 1), node, rank) for rank in range(successors)]
        chosen = sorted(children, key=lambda child: (-child[0], child[1:]))[: ceil(size * scale)]
        level = range(len(nodes), len(nodes) + len(chosen))
        nodes += sorted(chosen, key=lambda child: child[1:])
    kept = sorted(sorted(range(len(nodes)), key=lambda node: (-nodes[node][0], node))[:node_budget])
    index_of = {node: index for index, node in enumerate(kept)}
    return tuple((index_of[nodes[node][1]], nodes[node][2]) for node in kept[1:])
