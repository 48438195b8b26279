"""Lookahead decoding in the plainest Python: every row asked on a path of its own, all n-grams in one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

Gram = tuple[int, ...]


class Pool:
    """N-grams in the order in which they came last; of each first token at most so many."""

    def __init__(self, width: int):
        self.width = width
        self.grams = []

    def add(self, gram: Sequence[int]) -> None:
        gram = tuple(gram)
        if gram in self.grams:
            self.grams.remove(gram)
        self.grams.append(gram)
        alike = [other for other in self.grams if other[0] == gram[0]]
        if len(alike) > self.width:
            self.grams.remove(alike[0])

    def newest(self, token: int) -> list[Gram]:
        return [gram for gram in reversed(self.grams) if gram[0] == token]


class Lookahead:
    """One text's window, as columns of tokens from the first level down, and pool; `choose(path)` is the target."""

    def __init__(self, choose: Callable[[Sequence[int]], int], settings: dict):
        self.choose = choose
        self.settings = settings
        self.pool = Pool(settings["guesses"])
        self.columns: list[list[int]] | None = None
        self.read = 0

    def iteration(
        self, text: list[int], max_depth: int
    ) -> tuple[dict[Gram, float], list[tuple[int, int, int]], int]:
        """Paths below the root with their last token's probability; the window's (token, depth, answer); pool size."""
        n = self.settings["ngram"]
        for end in range(max(n, self.read + 1), len(text) + 1):
            self.pool.add(text[end - n : end])
        self.read = len(text)
        size = len(self.pool.grams)
        guesses = [
            gram[1:][:max_depth] for gram in self.pool.newest(text[-1])[: self.settings["guesses"]]
        ]
        self._fit(text, max_depth)
        return shares(guesses), self._look_ahead(text), size

    def _fit(self, text: list[int], max_depth: int) -> None:
        levels = self.settings["ngram"] - 1
        if self.columns is None:
            draw = Random(0)
            starts = [draw.randrange(len(text)) for _ in range(self.settings["window"])]
            self.columns = [
                [text[(start + level) % len(text)] for level in range(levels)] for start in starts
            ]
        self.columns = [
            column for i, column in enumerate(self.columns) if i + levels - 1 <= max_depth
        ]

    def _look_ahead(self, text: list[int]) -> list[tuple[int, int, int]]:
        before = text[:-1]
        rows = {}
        first = [text[-1], *(column[0] for column in self.columns[1:])]
        for i, column in enumerate(self.columns):
            column[0] = first[i]
            for level in range(len(column)):
                answer = self.choose([*before, *first[: i + 1], *column[1 : level + 1]])
                rows[level, i] = column[level], i + level, answer
            column.append(answer)
            self.pool.add(column)
            del column[0]
        return [rows[place] for place in sorted(rows) if place != (0, 0)]


def shares(guesses: list[Gram]) -> dict[Gram, float]:
    """Of the guesses that start like a path's parent, the share that starts like the path."""
    paths = {guess[:length] for guess in guesses for length in range(1, len(guess) + 1)}

    def through(path: Gram) -> int:
        return sum(guess[: len(path)] == path for guess in guesses)

    return {path: through(path) / through(path[:-1]) for path in paths}
