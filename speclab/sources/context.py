"""Copies from the text so far: an index from n-grams to the places where they occurred (prompt lookup, Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Pick = Literal["last", "first", "longest"]

COMPARED, REACH = 16, 32
"""With "longest": how many places are compared, newest first, and how many tokens back. Bounds of ours."""


class Match(NamedTuple):
    """An earlier occurrence of the text's last `length` tokens; `tokens` is what followed it at `position`."""

    length: int
    position: int
    tokens: tuple[int, ...]


class ContextIndex:
    """The n-grams of a text, for each of `lengths`, with every place where they end.

    Kept up by `update`: constant work for each new token and length, never a scan. It is a function of the text, so it
    is not part of what a drafter has learned: a fork builds its own.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = tuple(sorted(lengths, reverse=True))
        self._places: dict[int, dict[tuple[int, ...], list[int]]] = {length: {} for length in self.lengths}
        self._tokens: list[int] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def update(self, tokens: Sequence[int]) -> None:
        """Takes in what `tokens` has more than at the last call, or forgets what it has less."""
        self._truncate(len(tokens))
        text = self._tokens
        for token in tokens[len(text) :]:
            text.append(token)
            for length in self.lengths:
                if length <= len(text):
                    self._places[length].setdefault(tuple(text[-length:]), []).append(len(text))

    def match(self, pick: Pick, limit: int) -> list[Match]:
        """For each length, longest first, an earlier occurrence of the text's end; lengths without one are left out.

        Args:
            pick: which occurrence: the last, the first, or the one whose tokens before agree longest with the end of
                the text (the last of those).
            limit: tokens to copy. A copy that reaches the end of the text goes on with itself, as in LZ77: a text that
                repeats itself is continued.
        """
        found = []
        for length in self.lengths:
            places = self._places[length].get(tuple(self._tokens[-length:]), ())
            if len(places) > 1:  # the newest place is the end of the text itself
                place = places[0] if pick == "first" else places[-2] if pick == "last" else self._agreeing(places)
                found.append(Match(length, place, self._copy(place, limit)))
        return found

    def _truncate(self, length: int) -> None:
        while len(self._tokens) > length:
            for n in self.lengths:
                if n <= len(self._tokens):
                    key = tuple(self._tokens[-n:])
                    self._places[n][key].pop()
                    if not self._places[n][key]:
                        del self._places[n][key]
            self._tokens.pop()

    def _agreeing(self, places: Sequence[int]) -> int:
        best, longest = places[-2], -1
        for place in reversed(places[-COMPARED - 1 : -1]):
            agreed = self._agreement(place)
            if agreed > longest:
                best, longest = place, agreed
        return best

    def _agreement(self, place: int) -> int:
        """How many tokens before `place` equal those at the end of the text."""
        text, back = self._tokens, 0
        while back < min(place, REACH) and text[place - back - 1] == text[-back - 1]:
            back += 1
        return back

    def _copy(self, place: int, limit: int) -> tuple[int, ...]:
        copied = self._tokens[place : place + limit]
        while len(copied) < limit:
            copied.append(copied[place - len(self._tokens)])
        return tuple(copied)
