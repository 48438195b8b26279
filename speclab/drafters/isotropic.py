"""The isotropic tree: the same branching everywhere, from GOOSE's sources (GOOSE, section 5.3); its fair baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.drafters.cost import NodeBudget
from speclab.drafters.prompt_lookup import Copies, LongestNgram, ShortestNgram
from speclab.drafters.transitions import TableDrafter, Width

if TYPE_CHECKING:
    from speclab.pair import ModelPair

COPIED = 0.5
"""A copied token's probability in the records; it decides nothing."""


class IsotropicTree(Strategy):
    """A uniform tree, filled breadth-first: the copied token first, then the most probable transitions."""

    group: ClassVar[str] = "training-free"

    branching: int = Field(3, ge=1, le=16, title="b", description="children of every node")
    node_budget: NodeBudget = Field("auto", title="N")
    successors: Width = 10
    longest_ngram: LongestNgram = 5
    shortest_ngram: ShortestNgram = 3
    bigrams: bool = Field(True, description="also keep successors of pairs of tokens")
    ascending = (("shortest_ngram", "longest_ngram"),)

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper (b = 3)": cls(node_budget=60),
            "paper (b = 5)": cls(node_budget=60, branching=5),
        }

    def drafter(self, pair: ModelPair) -> Drafter:
        return IsotropicDrafter(self, pair)


class IsotropicDrafter(TableDrafter):
    """Gives every node `branching` children, in the order of the nodes, until the tree is full."""

    settings: IsotropicTree

    def __init__(self, settings: IsotropicTree, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.successors, pairs=settings.bigrams)
        self._copies = Copies(settings.shortest_ngram, settings.longest_ngram)

    def draft(self, context: Context) -> Draft:
        branching = self.settings.branching
        budget = self.settings.number_of_nodes
        matches = self._copies.matches(context.tokens, min(budget - 1, context.max_depth))
        copied: tuple[int, ...] = ()
        if matches:
            copied = matches[0].tokens
        tree = self.rooted(context)
        node = end_of_copy = 0
        while node < len(tree) < budget and tree.depth[node] < context.max_depth:
            depth = tree.depth[node]
            weight = 1.0
            if node == end_of_copy and depth < len(copied):
                end_of_copy = tree.add(node, copied[depth], COPIED, "context")
                weight -= COPIED
            for token, prob in self.successors(tree, node, weight).by_token().items():
                if len(tree.children[node]) < branching and len(tree) < budget:
                    tree.add(node, token, prob, "transition")
            node += 1
        events = [self.route(tree.way("uniform tree"))]
        events += [match.event for match in matches]
        return tree.draft(events)
