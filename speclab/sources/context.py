"""Copies from the text so far: where its last tokens occurred before, by a suffix tree (prompt lookup, Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from speclab.sources.suffix_tree import Places, SuffixTree

Pick = Literal["last", "first", "longest"]

REACH = 32
"""With "longest": how many tokens back two places are compared."""


class Match(NamedTuple):
    """An earlier occurrence of the text's last `length` tokens; `tokens` is what followed it at `position`."""

    length: int
    position: int
    tokens: tuple[int, ...]


class ContextIndex:
    """Where n-grams of a text, for each of `lengths`, occurred before.

    It is a function of the text, so it is not part of what a drafter has learned: a fork builds its own.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = tuple(sorted(lengths, reverse=True))
        self._text = SuffixTree()

    def update(self, tokens: Sequence[int]) -> None:
        """Takes in what `tokens` has more than at the last call, or forgets what it has less."""
        if len(tokens) < len(self._text):
            self._text = SuffixTree()
        self._text = self._text.extended(tokens[len(self._text) :])

    def match(self, pick: Pick, limit: int, after: Sequence[int] = ()) -> list[Match]:
        """For each length, longest first, an earlier occurrence of the text's end; lengths without one are left out.

        Args:
            pick: which occurrence: the last, the first, or the one whose tokens before agree longest with the end of
                the text (the last of those).
            limit: tokens to copy. A copy that reaches the end of the text goes on with itself, as in LZ77: a text that
                repeats itself is continued.
            after: tokens taken to stand at the end of the text, though nothing is copied from n-grams that end in them.
        """
        earlier = self._earlier(REACH if pick == "longest" else self.lengths[0], after)
        found = []
        for length in self.lengths:
            if length <= len(earlier):
                node = earlier[-1] if pick == "longest" else earlier[length - 1]
                place = int(node[0 if pick == "first" else -1])
                found.append(Match(length, place, self._copy(place, limit, after)))
        return found

    def unanimous(self, after: Sequence[int] = ()) -> bool:
        """Whether the longest n-gram that occurred before did so at least twice, always with the same next token."""
        earlier = self._earlier(self.lengths[0], after)
        longest = next((length for length in self.lengths if length <= len(earlier)), None)
        if longest is None:
            return False
        following = self._text.tokens[earlier[longest - 1]]
        return len(following) > 1 and bool((following == following[0]).all())

    def _earlier(self, longest: int, after: Sequence[int]) -> list[Places]:
        """Places where the last 1, 2, … tokens of the text and `after` occurred, as long as something followed."""
        end = len(self._text)
        phrase = [*self._text.tokens[max(end - longest, 0) : end].tolist(), *after][-longest:]
        nodes = (node[:-1] if node[-1] == end else node for node in self._text.suffixes(phrase))
        return [node for node in nodes if len(node)]

    def _copy(self, place: int, limit: int, after: Sequence[int]) -> tuple[int, ...]:
        end = len(self._text)
        copied = self._text.tokens[place : min(place + limit, end)].tolist()
        while len(copied) < limit:
            beyond = place + len(copied) - end
            copied.append(after[beyond] if beyond < len(after) else copied[beyond - len(after)])
        return tuple(copied)
