"""What strategies that copy from the text so far have in common: their settings, and the index these ask for."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field

from speclab.sources.context import ContextIndex, Pick

LongestNgram = Annotated[int, Field(ge=1, le=16, description="tokens of the longest match, which is tried first")]
ShortestNgram = Annotated[int, Field(ge=1, le=16, description="tokens of the shortest match")]
Which = Annotated[Pick, Field(description="which match: the last, the first, or the one that agrees longest before it")]


class Copying(Protocol):
    """Settings with lengths of n-grams."""

    @property
    def longest_ngram(self) -> int: ...

    @property
    def shortest_ngram(self) -> int: ...


def index_for(settings: Copying) -> ContextIndex:
    """An empty index of n-grams of these lengths."""
    return ContextIndex(range(settings.shortest_ngram, settings.longest_ngram + 1))
