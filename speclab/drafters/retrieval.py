"""Retrieval: what followed the last tokens in another text, as a tree by how often (REST, He et al. 2024)."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.drafters.measures import Nodes
from speclab.drafters.training_free import draft_of
from speclab.sources.suffix_tree import Places, SuffixTree, corpus
from speclab.sources.trie import Trie
from speclab.trace.records import Event

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class Retrieval(Strategy):
    """A tree of what followed the longest match of the text's end in a text of yours, the most frequent first."""

    text: str = Field(default="", description="a text file or a folder of them; empty: the shipped prompts")
    longest_match: int = Field(default=16, ge=1, le=64, description="tokens of the longest match, which is tried first")
    shortest_match: int = Field(default=2, ge=1, le=64, description="tokens of the shortest match")
    node_budget: Nodes = Field(
        default=65, ge=1, le=512, title="c",
        description="most nodes a tree may have, root included; REST verifies 64 and the root",
    )  # fmt: skip
    ascending = (("shortest_match", "longest_match"),)

    def drafter(self, pair: ModelPair) -> Drafter:
        return _RetrievalDrafter(self, corpus(pair, self.text))


class _RetrievalDrafter(Drafter):
    settings: Retrieval

    def __init__(self, settings: Retrieval, texts: SuffixTree) -> None:
        super().__init__(settings)
        self._texts = texts

    def draft(self, context: Context) -> Draft:
        """The most frequent continuations of the longest match: always the node that occurs most often."""
        s, trie = self.settings, Trie(context.tokens[-1])
        matches = self._texts.suffixes(context.tokens[-s.longest_match :])
        length = len(matches) if len(matches) >= s.shortest_match else 0
        occurrences = len(matches[-1]) if length else 0
        context.check()
        if length:
            self._fill(trie, matches[-1], context.max_depth)
        if not len(self._texts):
            reason = "plain: there is no text to look in"
        elif not length:
            reason = f"plain: the last {s.shortest_match} tokens do not occur in the text"
        else:
            reason = f"the last {length} tokens occur {occurrences} times in the text"
        values = {
            "route": "retrieved" if len(trie) > 1 else "plain",
            "match": length,
            "occurrences": occurrences,
            "text_tokens": len(self._texts),
        }
        return draft_of(trie, [Event("route", None, reason, values)])

    def _fill(self, trie: Trie, match: Places, max_depth: int) -> None:
        waiting: list[tuple[int, int, int, int, float, Places]] = []
        ages = count()

        def offer(node: int, found: Places) -> None:
            if trie.depth[node] < max_depth:
                for token, after in self._texts.children(found):
                    heappush(waiting, (-len(after), next(ages), node, token, len(after) / len(found), after))

        offer(0, match)
        while waiting and len(trie) < self.settings.node_budget:
            _, _, parent, token, share, found = heappop(waiting)
            offer(trie.add(parent, token, share, "retrieved"), found)
