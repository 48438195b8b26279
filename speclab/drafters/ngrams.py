"""Earlier occurrences of a text's last tokens: a dict from n-gram to position (prompt lookup, Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from speclab.trace.records import Event

Pick = Literal["last", "first"]
LongestNgram = Annotated[int, Field(ge=1, le=16, description="tokens of the longest n-gram, which is tried first")]
ShortestNgram = Annotated[int, Field(ge=1, le=16, description="tokens of the shortest n-gram")]


class Match(NamedTuple):
    """An earlier occurrence of the text's last `length` tokens; `tokens` followed it, from `position` on."""

    length: int
    position: int
    tokens: tuple[int, ...]

    @property
    def event(self) -> Event:
        """What the record says of it."""
        copied = len(self.tokens)
        values = {"ngram": self.length, "position": self.position, "copied": copied, "token": self.tokens[0]}
        return Event("match", None, f"{self.length}-gram at {self.position}, {copied} tokens to copy", values)


class NgramIndex:
    """For each n-gram of a growing text, the position of the token that followed it.

    Each token is read once, so a look-up takes the same time however long the text is. The index depends on the text
    alone: it is no part of what a drafter has learned, and a fork builds its own.

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
        """For each n, the largest first, what followed the last n tokens of `text` when they occurred before.

        Args:
            text: the text of the last call and what was added to it; a shorter one is read from its start.
            limit: most tokens to copy.
        """
        self._read_on(text)
        end = tuple(text[-self._lengths.start :])
        matches = []
        for length in self._lengths if limit > 0 else ():
            position = self._positions.get(end[-length:])
            if position is not None and length <= len(end):
                matches.append(Match(length, position, _copied(text, position, limit)))
        return matches

    def _read_on(self, text: Sequence[int]) -> None:
        if len(text) < self._read:
            self._positions.clear()
            self._read = 0
        start = max(self._read - self._lengths.start, 0)
        recent = tuple(text[start:])
        # An n-gram counts once a token follows it, so the end of the text is no earlier occurrence of itself.
        for end in range(self._read - start, len(recent)):
            for length in self._lengths:
                if length <= end:
                    ngram = recent[end - length : end]
                    if self._pick == "last" or ngram not in self._positions:
                        self._positions[ngram] = start + end
        self._read = len(text)


def _copied(text: Sequence[int], position: int, limit: int) -> tuple[int, ...]:
    """The `limit` tokens from `position` on; a copy that reaches the end goes on with itself, as in LZ77."""
    tokens = list(text[position : position + limit])
    while len(tokens) < limit:
        tokens.append(tokens[position - len(text)])
    return tuple(tokens)
