"""Lookahead decoding: n-grams from Jacobi iteration, verified when they fit the text (Fu et al.
2024).

A window of guessed tokens runs in the verification pass. Its columns are W positions from the
newest token on; its N - 1 levels are the guesses of the last N - 1 iterations. A row sees the first
level up to its own column, and its column down to itself. The target's most probable tokens after
the rows of the last level become the newest level, and the n-gram down each column enters a pool.
Candidates are the pool's n-grams that start with the newest token.

The window moves by one position even if several tokens are committed, as in the published code. Not
in the paper: the columns start with n-grams of the text, and siblings share their parent's
probability by how many n-grams pass through them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, ExtraRows, Learned, Outcome, Strategy
from speclab.drafters.candidates import Candidates
from speclab.trace.records import Adaptation, Event, Value
from speclab.tree import Bools

if TYPE_CHECKING:
    from speclab.pair import ModelPair

Ngram = tuple[int, ...]
Window = tuple[Ngram, ...]
"""Tokens by level and column; the first token of the first level is the newest of the text."""


class Lookahead(Strategy):
    """The target guesses n-grams for several positions ahead; those that fit the text are verified.

    It does not pay on small models, where a row of the window costs more than it saves.
    """

    group: ClassVar[str] = "training-free"

    window: int = Field(
        15, ge=1, le=64, title="W", description="columns of the window, one n-gram each"
    )
    ngram: int = Field(
        5, ge=3, le=16, title="N", description="tokens per n-gram, one more than levels"
    )
    guesses: int = Field(
        15,
        ge=1,
        le=64,
        title="G",
        description="maximum n-grams verified per iteration, and kept per first token",
    )

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "published code, chatbot (W = 15, N = 5)": cls(),
            "published code, for 7 B parameters (W = 7, N = 5)": cls(window=7, guesses=7),
        }

    def drafter(self, pair: ModelPair) -> Drafter:
        return LookaheadDrafter(self)


class LookaheadDrafter(Drafter):
    """Drafts the pool's n-grams that start with the newest token; the window runs as extra rows."""

    settings: Lookahead
    state = ("window", "pool", "_read")

    def __init__(self, settings: Lookahead) -> None:
        super().__init__(settings)
        self.pool = NgramPool(settings.guesses)
        self.window: Window = ()
        self._read = 0

    def draft(self, context: Context) -> Draft:
        s = self.settings
        root = context.tokens[-1]
        # as in the published code, the pool also gets the n-grams of the text
        recent = context.tokens[max(0, self._read - s.ngram + 1) :]
        ngrams = []
        for end in range(s.ngram, len(recent) + 1):
            ngrams.append(tuple(recent[end - s.ngram : end]))
        self.pool.add(ngrams)
        self._read = len(context.tokens)
        self.window = self._fitted(context)
        tokens = list(chain.from_iterable(self.window))
        depth, visible = _rows(len(self.window), len(self.window[0]))
        extra = ExtraRows(tokens[1:], depth, visible)
        guesses: tuple[Ngram, ...] = ()
        if context.max_depth > 0:
            guesses = self.pool.after(root)
        tree = _merged(root, [guess[: context.max_depth] for guess in guesses])
        values: dict[str, Value] = {
            "by": "pool",
            "route": tree.way("guesses"),
            "guesses": len(guesses),
            "window_rows": len(extra.token),
        }
        events = [Event("route", None, values)]
        for guess in guesses:
            values = {"by": "pool", "ngram": s.ngram, "token": guess[0]}
            events.append(Event("match", None, values))
        return replace(tree.draft(events), extra=extra)

    def learn(self, outcome: Outcome) -> Adaptation:
        """The target's answers become the newest level; the n-gram down each column enters the pool."""
        columns = len(self.window[0])
        before = self.pool.size
        newest = outcome.extra[len(outcome.extra) - columns :]
        answers: Ngram = ()
        if columns:
            ids, _ = newest.topk(1)
            answers = tuple(ids[:, 0].tolist())
        self.pool.add(list(zip(*self.window, answers, strict=True)))
        self.window = (*self.window[1:], answers)
        values = {"columns": columns, "new": self.pool.size - before}
        return Adaptation("pool", values, {"pool": before}, {"pool": self.pool.size})

    def _fitted(self, context: Context) -> Window:
        """The window from the newest token on, without columns beyond the models' context."""
        levels = self.settings.ngram - 1
        columns = max(0, min(self.settings.window, context.max_depth - levels + 2))
        window = self.window
        if not window:  # each column is an n-gram of the text from a random position
            text = context.tokens
            draw = Random(0)
            starts = [draw.randrange(len(text)) for _ in range(columns)]
            rows = []
            for level in range(levels):
                rows.append(tuple([text[(start + level) % len(text)] for start in starts]))
            window = tuple(rows)
        first = (context.tokens[-1], *window[0][1:])
        fitted = [first[:columns]]
        fitted += [level[:columns] for level in window[1:]]
        return tuple(fitted)


@lru_cache(maxsize=64)
def _rows(levels: int, columns: int) -> tuple[tuple[int, ...], Bools]:
    """Depth of each row of a window, level by level without its first token; and which of these rows each sees."""
    level, column = (index.ravel()[1:] for index in np.indices((levels, columns)))
    first_level = (level == 0) & (column <= column[:, None])
    own_column = (column == column[:, None]) & (level <= level[:, None])
    visible = first_level | own_column
    visible.flags.writeable = False
    return tuple((level + column).tolist()), visible


def _merged(root: int, guesses: Sequence[Ngram]) -> Candidates:
    """The guesses as one tree; a node's probability is its share of its parent's guesses."""
    tree = Candidates(root)
    through: Counter[Ngram] = Counter()  # guesses that begin with these tokens
    for guess in guesses:
        through.update(guess[:length] for length in range(len(guess) + 1))
    for guess in guesses:
        node = 0
        for depth, token in enumerate(guess):
            share = through[guess[: depth + 1]] / through[guess[:depth]]
            node = tree.add(node, token, share, "pool")
    return tree


class NgramPool(Learned[Sequence[Ngram]]):
    """At most `width` different n-grams per first token, newest first.

    Attributes:
        size: n-grams in the pool.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        super().__init__()

    def clear(self) -> None:
        self.size = 0
        self._ngrams: dict[int, tuple[Ngram, ...]] = {}

    def read(self, batch: Sequence[Ngram]) -> None:
        """Adds n-grams, the newest last."""
        for token, *rest in batch:
            before = self.after(token)
            ngram = tuple(rest)
            after = [ngram]
            after += [other for other in before if other != ngram]
            self._ngrams[token] = tuple(after[: self._width])
            self.size += len(self._ngrams[token]) - len(before)

    def after(self, token: int) -> tuple[Ngram, ...]:
        """The continuations of `token`, newest first."""
        return self._ngrams.get(token, ())
