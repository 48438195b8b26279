"""Prompt lookup: a chain copied from the text so far, after an earlier occurrence of its last
tokens (Saxena 2023).

`Copies` finds that occurrence for n-grams of several lengths. Other strategies use it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.drafters.candidates import Candidates
from speclab.drafters.suffix import SuffixAutomaton
from speclab.trace.records import Event, Value

if TYPE_CHECKING:
    from speclab.pair import ModelPair

LongestNgram = Annotated[
    int, Field(ge=1, le=16, description="tokens of the longest n-gram, tried first")
]
ShortestNgram = Annotated[int, Field(ge=1, le=16, description="tokens of the shortest n-gram")]


class PromptLookup(Strategy):
    """One chain of tokens copied from the text so far."""

    group: ClassVar[str] = "training-free"

    longest_ngram: LongestNgram = 3
    shortest_ngram: ShortestNgram = 1
    draft_tokens: int = Field(10, ge=1, le=256, title="K", description="maximum tokens to copy")
    ascending = (("shortest_ngram", "longest_ngram"),)

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "as published (n = 3 to 1, K = 10)": cls(),
            "as in GOOSE (n = 5 to 3, K = 20)": cls(
                longest_ngram=5, shortest_ngram=3, draft_tokens=20
            ),
        }

    def drafter(self, pair: ModelPair) -> Drafter:
        return PromptLookupDrafter(self)


class PromptLookupDrafter(Drafter):
    settings: PromptLookup

    def __init__(self, settings: PromptLookup) -> None:
        super().__init__(settings)
        self._copies = Copies(settings.shortest_ngram, settings.longest_ngram)

    def draft(self, context: Context) -> Draft:
        """A copied token has no probability: each counts as certain, with log-probability 0."""
        matches = self._copies.matches(
            context.tokens, min(self.settings.draft_tokens, context.max_depth)
        )
        tree = Candidates(context.tokens[-1])
        values: dict[str, Value] = {"by": "ngram", "route": "plain"}
        if matches:
            values |= {"route": "chain", "ngram": matches[0].length}
            for node, token in enumerate(matches[0].tokens):
                tree.add(node, token, 1.0, "context")
        events = [Event("route", None, values)]
        events += [match.event for match in matches]
        return tree.draft(events)


class Match(NamedTuple):
    """An earlier occurrence of the text's last `length` tokens; `tokens` followed it, starting at `position`."""

    length: int
    position: int
    tokens: tuple[int, ...]

    @property
    def event(self) -> Event:
        values = {
            "ngram": self.length,
            "position": self.position,
            "copied": len(self.tokens),
            "token": self.tokens[0],
        }
        return Event("match", None, values)


class Copies(SuffixAutomaton):
    """What followed the last earlier occurrence of a text's last tokens.

    Attributes:
        lengths: of the n-grams, largest first.

    Args:
        shortest: least n.
        longest: largest n.
    """

    def __init__(self, shortest: int, longest: int) -> None:
        super().__init__(longest)
        self.lengths = range(longest, shortest - 1, -1)

    def matches(self, text: Sequence[int], limit: int) -> list[Match]:
        """For each n, largest first, what followed the last earlier occurrence of the last n tokens.

        Args:
            text: the text of the last call, extended; a shorter text is read from its start.
            limit: most tokens to copy.
        """
        self.read(text)
        if limit < 1:
            return []
        matches = []
        state = self.recent
        for n in self.lengths:
            while state.link and state.link.length >= n:  # the state of the last n tokens
                state = state.link
            if position := state.before:
                # a copy that reaches the end continues with itself, as in LZ77
                copied = cycle(text[position : position + limit])
                matches.append(Match(n, position, tuple(islice(copied, limit))))
        return matches
