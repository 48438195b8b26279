"""Prompt lookup: a chain copied from the text so far, after an earlier occurrence of its last tokens (Saxena 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.drafters.training_free import LongestNgram, ShortestNgram, Which, draft_of, match_event
from speclab.sources.context import ContextIndex
from speclab.sources.trie import Trie
from speclab.trace.records import Event

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class PromptLookup(Strategy):
    """One chain of tokens copied from the text so far."""

    longest_ngram: LongestNgram = 3
    shortest_ngram: ShortestNgram = 1
    pick: Which = "last"
    draft_tokens: int = Field(default=10, ge=1, le=256, title="K", description="most tokens to copy")
    ascending = (("shortest_ngram", "longest_ngram"),)

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "as published (n = 3 to 1, K = 10)": cls(),
            "as in GOOSE (n = 5 to 3, K = 20)": cls(longest_ngram=5, shortest_ngram=3, draft_tokens=20),
        }

    def drafter(self, pair: ModelPair) -> Drafter:
        return _PromptLookupDrafter(self)


class _PromptLookupDrafter(Drafter):
    settings: PromptLookup

    def __init__(self, settings: PromptLookup) -> None:
        super().__init__(settings)
        self._index = ContextIndex(range(settings.shortest_ngram, settings.longest_ngram + 1))

    def draft(self, context: Context) -> Draft:
        """The chain after the longest n-gram that is found. A copy has no probability: each token counts as certain."""
        self._index.update(context.tokens)
        limit = min(self.settings.draft_tokens, context.max_depth)
        matches = self._index.match(self.settings.pick, limit) if limit > 0 else []
        trie, node = Trie(context.tokens[-1]), 0
        for token in matches[0].tokens if matches else ():
            node = trie.add(node, token, 1.0, "context")
        way = f"a chain after the {matches[0].length}-gram" if matches else "plain: no n-gram occurred before"
        values = {"route": "chain" if matches else "plain"}
        return draft_of(trie, [Event("route", None, way, values), *map(match_event, matches)])
