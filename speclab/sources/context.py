"""Copies from the text so far: an index from n-grams to the places where they occurred (prompt lookup, Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Pick = Literal["last", "first", "longest"]

COMPARED, REACH = 16, 32
"""With "longest": how many places are compared, newest first, and how many tokens back.."""


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
        if len(tokens) < len(self._tokens):
            self._places, self._tokens = {length: {} for length in self.lengths}, []
        longest = max(self.lengths)
        for token in tokens[len(self._tokens) :]:
            end = len(self._tokens) + 1
            recent = (*self._tokens[max(end - longest, 0) :], token)
            for length in self.lengths:
                if length <= end:
                    places = self._places[length].setdefault(recent[-length:], [])
                    if not places or places[-1] < end:  # else noted by a call that was stopped before its last line
                        places.append(end)
            self._tokens.append(token)

    def match(self, pick: Pick, limit: int, after: Sequence[int] = ()) -> list[Match]:
        """For each length, longest first, an earlier occurrence of the text's end; lengths without one are left out.

        Args:
            pick: which occurrence: the last, the first, or the one whose tokens before agree longest with the end of
                the text (the last of those).
            limit: tokens to copy. A copy that reaches the end of the text goes on with itself, as in LZ77: a text that
                repeats itself is continued.
            after: tokens taken to stand at the end of the text, though nothing is copied from n-grams that end in them.
        """
        found = []
        for length in self.lengths:
            places, count = self._earlier(length, after)
            if count:
                place = self._picked(pick, places, count, after)
                found.append(Match(length, place, self._copy(place, limit, after)))
        return found

    def unanimous(self, after: Sequence[int] = ()) -> bool:
        """Whether the longest n-gram that occurred before did so at least twice, always with the same next token."""
        for length in self.lengths:
            places, count = self._earlier(length, after)
            if count:
                text, first = self._tokens, self._tokens[places[0]]
                return count > 1 and all(text[places[at]] == first for at in range(1, count))
        return False

    def _earlier(self, length: int, after: Sequence[int]) -> tuple[Sequence[int], int]:
        """Places where the last `length` tokens of the text and `after` occurred, and how many of them count."""
        end = [*self._tokens[-length:], *after]
        places: Sequence[int] = self._places[length].get(tuple(end[-length:]), ())
        ends_text = bool(places) and places[-1] == len(self._tokens)  # nothing to copy there
        return places, len(places) - ends_text

    def _picked(self, pick: Pick, places: Sequence[int], count: int, after: Sequence[int]) -> int:
        """One of the first `count` places."""
        if pick != "longest":
            return places[0 if pick == "first" else count - 1]
        text, end = self._tokens, (*self._tokens[-REACH:], *after)[-REACH:]

        def agreement(place: int) -> int:
            back = 0
            while back < min(place, len(end)) and text[place - back - 1] == end[-back - 1]:
                back += 1
            return back

        return max(reversed(places[max(0, count - COMPARED) : count]), key=agreement)

    def _copy(self, place: int, limit: int, after: Sequence[int]) -> tuple[int, ...]:
        copied = self._tokens[place : place + limit]
        while len(copied) < limit:
            beyond = place + len(copied) - len(self._tokens)
            copied.append(after[beyond] if beyond < len(after) else copied[beyond - len(after)])
        return tuple(copied)
