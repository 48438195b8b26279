"""The isotropic tree: as many children everywhere, from GOOSE's sources (GOOSE, section 5.3); its fair baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.drafters.measures import Nodes
from speclab.drafters.training_free import (
    BigramEntries,
    Carry,
    LongestNgram,
    Megabytes,
    ShortestNgram,
    Successors,
    TableDrafter,
    Which,
    draft_of,
    match_event,
)
from speclab.sources.context import ContextIndex
from speclab.sources.trie import Trie

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

COPIED = 0.5
"""A copied token's probability in the records; it decides nothing here."""


class IsotropicTree(Strategy):
    """A uniform tree, filled breadth-first: the copied token first, then the most probable transitions."""

    branching: int = Field(default=3, ge=1, le=16, title="b", description="children of every node")
    node_budget: Nodes = Field(
        default=60, ge=1, le=512, title="N", description="most nodes a tree may have, root included"
    )
    successors: Successors = 10
    longest_ngram: LongestNgram = 5
    shortest_ngram: ShortestNgram = 3
    pick: Which = "last"
    copies: bool = Field(
        default=True, description="the copied token first; or, as in the authors' code, transitions alone"
    )
    bigram_entries: BigramEntries = 32768
    carry: Carry = "cold"
    table_megabytes: Megabytes = 64
    ascending = (("shortest_ngram", "longest_ngram"),)

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper (b = 3)": cls(),
            "paper (b = 5)": cls(branching=5),
            "authors' code (b = 3), from the table alone": cls(copies=False),
        }

    def drafter(self, pair: ModelPair) -> Drafter:
        return _IsotropicDrafter(self, pair)


class _IsotropicDrafter(TableDrafter):
    settings: IsotropicTree

    def __init__(self, settings: IsotropicTree, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.bigram_entries)
        self._index = ContextIndex(range(settings.shortest_ngram, settings.longest_ngram + 1))

    def draft(self, context: Context) -> Draft:
        s = self.settings
        self._index.update(context.tokens)
        longest = min(s.node_budget - 1, context.max_depth)
        matches = self._index.match(s.pick, longest) if longest > 0 and s.copies else []
        trie, copied = self.rooted(context), matches[0].tokens if matches else ()
        on_copy, node = 0, 0
        while node < len(trie) < s.node_budget and trie.depth[node] < context.max_depth:
            depth = trie.depth[node]
            if node == on_copy and depth < len(copied):
                on_copy = trie.add(node, copied[depth], COPIED, "context")
            self._branch(trie, node)
            node += 1
        way = "uniform tree" if len(trie) > 1 else "plain"
        return draft_of(trie, [self.route(way), *map(match_event, matches)])

    def _branch(self, trie: Trie, node: int) -> None:
        """Transitions until the node has as many children as all, or the tree is full."""
        children = trie.children[node]
        tokens, scores, weight = self.successors(trie, node, 1.0 - COPIED * len(children))
        for token, score in zip(tokens, scores, strict=True):
            if len(children) == self.settings.branching or len(trie) == self.settings.node_budget or score <= 0:
                break
            trie.add(node, token, score * weight, "transition")
