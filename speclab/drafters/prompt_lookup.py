"""Prompt lookup: a chain copied from the text so far, after an earlier occurrence of its last
tokens (Saxena 2023).

`NgramIndex` finds that occurrence with a dict from n-gram to position. Other strategies use it for
copies, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.trace.records import Event, Value
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.pair import ModelPair

Pick = Literal["last", "first"]
LongestNgram = Annotated[
    int, Field(ge=1, le=16, description="tokens of the longest n-gram, tried first")
]
ShortestNgram = Annotated[int, Field(ge=1, le=16, description="tokens of the shortest n-gram")]


class PromptLookup(Strategy):
    """One chain of tokens copied from the text so far."""

    group: ClassVar[str] = "training-free"

    longest_ngram: LongestNgram = 3
    shortest_ngram: ShortestNgram = 1
    pick: Pick = Field(default="last", description="which earlier occurrence to copy")
    draft_tokens: int = Field(
        default=10, ge=1, le=256, title="K", description="maximum tokens to copy"
    )
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
        self._index = NgramIndex(settings.shortest_ngram, settings.longest_ngram, settings.pick)

    def draft(self, context: Context) -> Draft:
        """A copied token has no probability: each counts as certain, with log-probability 0."""
        matches = self._index.matches(
            context.tokens, min(self.settings.draft_tokens, context.max_depth)
        )
        chain = matches[0].tokens if matches else ()
        n = len(chain)
        tree = DraftTree.of(
            [context.tokens[-1], *chain],
            range(-1, n),
            [0.0] * (n + 1),
            ["target", *["context"] * n],
        )
        values: dict[str, Value] = {"by": "ngram", "route": "plain"}
        if matches:
            values |= {"route": "chain", "ngram": matches[0].length}
        route = Event("route", None, values)
        topk = {node: ((token, 0.0),) for node, token in enumerate(chain)}
        return Draft(tree, (route, *(match.event for match in matches)), topk)


class Match(NamedTuple):
    """An earlier occurrence of the text's last `length` tokens; `tokens` followed it, starting at `position`."""

    length: int
    position: int
    tokens: tuple[int, ...]

    @property
    def event(self) -> Event:
        copied = len(self.tokens)
        values = {
            "ngram": self.length,
            "position": self.position,
            "copied": copied,
            "token": self.tokens[0],
        }
        return Event("match", None, values)


class NgramIndex:
    """For each n-gram of a growing text, the position of the token that followed it.

    Each token is read once, so a lookup takes constant time. The index depends on the text alone:
    it is not part of a drafter's learned state, and a fork builds its own.

    Args:
        shortest: least n.
        longest: largest n.
        pick: which occurrence of an n-gram counts.
    """

    def __init__(self, shortest: int, longest: int, pick: Pick = "last") -> None:
        self._lengths = range(longest, shortest - 1, -1)
        self._pick = pick
        self._positions: dict[tuple[int, ...], int] = {}
        self._read = 0

    def matches(self, text: Sequence[int], limit: int) -> list[Match]:
        """For each n, largest first, what followed an earlier occurrence of the last n tokens of
        `text`.

        Args:
            text: the text of the last call, extended; a shorter text is read from its start.
            limit: most tokens to copy.
        """
        self._extend(text)
        end = tuple(text[-self._lengths.start :])
        matches = []
        for length in self._lengths if limit > 0 else ():
            position = self._positions.get(end[-length:])
            if position is not None and length <= len(end):
                tokens = list(text[position : position + limit])
                # a copy that reaches the end continues with itself, as in LZ77
                while len(tokens) < limit:
                    tokens.append(tokens[position - len(text)])
                matches.append(Match(length, position, tuple(tokens)))
        return matches

    def _extend(self, text: Sequence[int]) -> None:
        if len(text) < self._read:
            self._positions.clear()
            self._read = 0
        start = max(self._read - self._lengths.start, 0)
        recent = tuple(text[start:])
        # An n-gram is indexed once a token follows it, so the end of the text does not match
        # itself.
        for end in range(self._read - start, len(recent)):
            for length in self._lengths:
                if length <= end:
                    ngram = recent[end - length : end]
                    if self._pick == "last" or ngram not in self._positions:
                        self._positions[ngram] = start + end
        self._read = len(text)
