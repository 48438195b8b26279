"""Prompt lookup: a chain copied from the text so far, after an earlier occurrence of its last tokens (Saxena 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.drafters.ngrams import LongestNgram, NgramIndex, Pick, ShortestNgram
from speclab.trace.records import Event
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class PromptLookup(Strategy):
    """One chain of tokens copied from the text so far."""

    longest_ngram: LongestNgram = 3
    shortest_ngram: ShortestNgram = 1
    pick: Pick = Field(default="last", description="which earlier occurrence is copied")
    draft_tokens: int = Field(default=10, ge=1, le=256, title="K", description="most tokens to copy")
    ascending = (("shortest_ngram", "longest_ngram"),)

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "as published (n = 3 to 1, K = 10)": cls(),
            "as in GOOSE (n = 5 to 3, K = 20)": cls(longest_ngram=5, shortest_ngram=3, draft_tokens=20),
        }

    def drafter(self, pair: ModelPair) -> Drafter:
        return PromptLookupDrafter(self)


class PromptLookupDrafter(Drafter):
    """Drafts the chain after the longest n-gram that occurred before."""

    settings: PromptLookup

    def __init__(self, settings: PromptLookup) -> None:
        super().__init__(settings)
        self._index = NgramIndex(settings.shortest_ngram, settings.longest_ngram, settings.pick)

    def draft(self, context: Context) -> Draft:
        """A copy has no probability: each token counts as certain, and its logarithm is 0."""
        matches = self._index.matches(context.tokens, min(self.settings.draft_tokens, context.max_depth))
        chain = matches[0].tokens if matches else ()
        n = len(chain)
        tree = DraftTree.of([context.tokens[-1], *chain], range(-1, n), [0.0] * (n + 1), ["target", *["context"] * n])
        reason = f"a chain after the {matches[0].length}-gram" if matches else "plain: no n-gram occurred before"
        route = Event("route", None, reason, {"route": "chain" if matches else "plain"})
        topk = {node: ((token, 0.0),) for node, token in enumerate(chain)}
        return Draft(tree, (route, *(match.event for match in matches)), topk)
