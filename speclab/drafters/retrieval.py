"""Retrieval: what followed the last tokens in another text, as a tree by how often (REST, He et al. 2024)."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Self

from pydantic import Field, model_validator

from speclab.drafters.base import Budget, Context, Draft, Drafter, Strategy, check_order
from speclab.drafters.measures import Nodes
from speclab.drafters.training_free import draft_of
from speclab.sources.suffix_array import Found, SuffixArray, corpus
from speclab.sources.trie import Trie
from speclab.trace.records import Event

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class Retrieval(Strategy):
    """A tree of what followed the longest match of the text's end in a text of yours, the most frequent first."""

    text: str = Field("", description="a text file or a folder of them; empty: the shipped prompts")
    longest_match: int = Field(16, ge=1, le=64, description="tokens of the longest match, which is tried first")
    shortest_match: int = Field(2, ge=1, le=64, description="tokens of the shortest match")
    node_budget: Nodes = Field(
        65,
        ge=1,
        le=512,
        title="c",
        description="most nodes a tree may have, root included; REST verifies 64 and the root",
    )
    budget: Budget = "fixed"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_order(self, "shortest_match", "longest_match")
        return self

    def drafter(self, pair: ModelPair) -> Drafter:
        return _RetrievalDrafter(self, corpus(pair, self.text))


class _RetrievalDrafter(Drafter):
    settings: Retrieval
    host_seconds = 3e-4

    def __init__(self, settings: Retrieval, texts: SuffixArray) -> None:
        super().__init__(settings)
        self._texts = texts

    def draft(self, context: Context) -> Draft:
        """The most frequent continuations of the longest match: always the node that occurs most often."""
        match, trie = self._match(context), Trie(context.tokens[-1])
        context.check()
        if match.places:
            self._fill(trie, match, context.max_depth)
        if not len(self._texts):
            reason = "plain: there is no text to look in"
        elif not match.places:
            reason = f"plain: the last {self.settings.shortest_match} tokens do not occur in the text"
        else:
            reason = f"the last {match.length} tokens occur {match.places} times in the text"
        values = {
            "route": "retrieved" if len(trie) > 1 else "plain",
            "match": match.length if match.places else 0,
            "occurrences": match.places,
            "text_tokens": len(self._texts),
        }
        return draft_of(trie, [Event("route", None, reason, values)])

    def _match(self, context: Context) -> Found:
        end = context.tokens[-self.settings.longest_match :]
        for length in range(len(end), self.settings.shortest_match - 1, -1):
            found = self._texts.find(end[len(end) - length :])
            if found.places:
                return found
        return Found(0, 0, 0)

    def _fill(self, trie: Trie, match: Found, max_depth: int) -> None:
        waiting: list[tuple[int, int, int, int, float, Found]] = []
        ages = count()

        def offer(node: int, found: Found) -> None:
            if trie.depth[node] < max_depth:
                for token, after in self._texts.following(found):
                    heappush(waiting, (-after.places, next(ages), node, token, after.places / found.places, after))

        offer(0, match)
        while waiting and len(trie) < self.settings.node_budget:
            _, _, parent, token, share, found = heappop(waiting)
            offer(trie.add(parent, token, share, "retrieved"), found)
