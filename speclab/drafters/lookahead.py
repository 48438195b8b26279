"""Lookahead decoding: n-grams from Jacobi iteration beside the text, verified when they fit (Fu et al. 2024).

A window of guessed tokens runs through the target in the pass that verifies. Its columns are W places from the newest
token on, its N - 1 levels the guesses of as many iterations. A row sees the first level up to its own column, and its
column down to itself. The target's most probable token after each row of the last level becomes the newest level, and
the n-gram down each column goes to a pool. Candidates are the pool's n-grams that start with the newest token.

With more than one token committed the window moves on by one place all the same, as in the published code. The
columns start with n-grams of the text, and siblings share their parent's probability by the n-grams that go through
them; neither is in the paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, ExtraRows, Outcome, Strategy
from speclab.drafters.training_free import draft_of
from speclab.sources.trie import Trie
from speclab.sources.undo import UndoLog
from speclab.trace.records import Adaptation, Event
from speclab.tree import Bools

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

Window = tuple[tuple[int, ...], ...]
"""Tokens by level and column; the first of the first level is the newest token of the text."""
Gram = tuple[int, ...]
Row = tuple[Gram, ...]
"""N-grams of one first token, the newest first."""


class Lookahead(Strategy):
    """N-grams that the target itself makes ahead of the text, several places at once; those that fit are verified."""

    window: int = Field(
        default=15, ge=1, le=64, title="W", description="places of the window, each of which gives an n-gram"
    )
    ngram: int = Field(
        default=5, ge=3, le=16, title="N", description="tokens of an n-gram; the window has one level less"
    )
    guesses: int = Field(
        default=15, ge=1, le=64, title="G", description="most n-grams that are verified in an iteration"
    )
    pool_per_token: int = Field(
        default=15, ge=1, le=256, description="n-grams kept of each first token; the oldest give way"
    )
    text_ngrams: bool = Field(
        default=True, description="the text's own n-grams enter the pool, too, as in the published code"
    )
    window_seed: int = Field(
        default=0, ge=0, lt=2**32, description="picks the places of the text that the window's columns start from"
    )

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "published code, chatbot (W = 15, N = 5)": cls(),
            "published code, for 7 B parameters (W = 7, N = 5)": cls(window=7, guesses=7, pool_per_token=7),
            "the window alone": cls(text_ngrams=False),
        }

    def drafter(self, pair: ModelPair) -> Drafter:
        return _LookaheadDrafter(self)


class _LookaheadDrafter(Drafter):
    settings: Lookahead
    state = ("_window", "_read", "_pool")

    def __init__(self, settings: Lookahead) -> None:
        super().__init__(settings)
        self._pool = NgramPool(settings.pool_per_token)
        self._window: Window = ()
        self._read = 0

    def draft(self, context: Context) -> Draft:
        """The newest n-grams of the pool that start with the newest token, merged; the window as extra rows."""
        settings, root = self.settings, context.tokens[-1]
        if settings.text_ngrams:
            self._read_text(context.tokens)
        self._window = self._fitted(context)
        rows = _rows(self._window)
        grams = self._pool.after(root)[: settings.guesses] if context.max_depth > 0 else ()
        trie = _merged(root, [gram[: context.max_depth] for gram in grams])
        return replace(draft_of(trie, [self._route(grams, rows), *map(_tried, grams)]), extra=rows)

    def learn(self, outcome: Outcome) -> Adaptation:
        """Takes the target's answers as the newest level, and the n-gram down each column into the pool."""
        before, columns = self._pool.size, len(self._window[0])
        answers = tuple(outcome.extra[-columns:].topk(1)[0][:, 0].tolist()) if columns else ()
        self._pool.add(zip(*self._window, answers, strict=True))
        self._window = (*self._window[1:], answers)
        now = self._pool.size
        return Adaptation(f"{columns} n-grams from the window, {now - before} new", {"pool": before}, {"pool": now})

    def _read_text(self, tokens: Sequence[int]) -> None:
        """The n-grams that the newest tokens complete."""
        length = self.settings.ngram
        recent = tokens[max(0, self._read - length + 1) :]
        self._pool.add(tuple(recent[end - length : end]) for end in range(length, len(recent) + 1))
        self._read = len(tokens)

    def _fitted(self, context: Context) -> Window:
        """The window from the newest token on, without the columns that would reach beyond the models' context."""
        levels = self.settings.ngram - 1
        columns = max(0, min(self.settings.window, context.max_depth - levels + 2))
        window = self._window or _begun(context.tokens, columns, levels, self.settings.window_seed)
        root, *first = context.tokens[-1], *window[0][1:]
        return tuple(level[:columns] for level in ((root, *first), *window[1:]))

    def _route(self, grams: Sequence[Gram], rows: ExtraRows) -> Event:
        values = {
            "route": "guesses" if grams else "plain",
            "guesses": len(grams),
            "pool": self._pool.size,
            "window_rows": len(rows.token),
        }
        reason = f"{len(grams)} n-grams of the pool" if grams else "plain: no n-gram of the pool starts with this token"
        return Event("route", None, reason, values)


def _begun(tokens: Sequence[int], columns: int, levels: int, seed: int) -> Window:
    """Each column an n-gram of the text, from a random place on."""
    draw = Random(seed)  # no secret
    starts = [draw.randrange(len(tokens)) for _ in range(columns)]
    return tuple(tuple(tokens[(start + level) % len(tokens)] for start in starts) for level in range(levels))


def _rows(window: Window) -> ExtraRows:
    """Level by level; the first place is the tree's root and no row of its own."""
    depth, visible = _shape(len(window), len(window[0]))
    return ExtraRows([token for level in window for token in level][1:], depth, visible)


@lru_cache(maxsize=64)
def _shape(levels: int, columns: int) -> tuple[tuple[int, ...], Bools]:
    """Depth of each row of a window, and which of the rows it sees."""
    level, column = (index.ravel()[1:] for index in np.indices((levels, columns)))
    first = (level == 0) & (column <= column[:, None])
    visible = first | ((column == column[:, None]) & (level <= level[:, None]))
    visible.flags.writeable = False
    return tuple((level + column).tolist()), visible


def _merged(root: int, guesses: Sequence[Gram]) -> Trie:
    """The guesses as a trie, each node with its share of the guesses that go through its parent."""
    trie = Trie(root)
    through = Counter(guess[:length] for guess in guesses for length in range(len(guess) + 1))
    for guess in guesses:
        node = 0
        for depth, token in enumerate(guess):
            node = trie.add(node, token, through[guess[: depth + 1]] / through[guess[:depth]], "pool")
    return trie


def _tried(gram: Gram) -> Event:
    tokens = " ".join(map(str, gram))
    return Event("match", None, f"an n-gram of the pool: {tokens}", {"ngram": len(gram) + 1, "token": gram[0]})


class _Undo(NamedTuple):
    """The size before an addition, and the rows that it changed."""

    size: int
    rows: dict[int, Row]


class NgramPool(UndoLog[_Undo]):
    """For every first token at most `width` different n-grams; one that comes again counts as new.

    Attributes:
        size: n-grams in it.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.size = width, 0
        self._rows: dict[int, Row] = {}

    def after(self, token: int) -> Row:
        """What the n-grams that start with `token` go on with, the newest first."""
        return self._rows.get(token, ())

    def add(self, grams: Iterable[Gram]) -> None:
        """Takes in n-grams, the last of them being the newest; of a full row the oldest gives way."""
        undo = _Undo(self.size, {})
        self._note(undo)
        for token, *rest in grams:
            row, gram = self.after(token), tuple(rest)
            undo.rows.setdefault(token, row)
            self._rows[token] = (gram, *(other for other in row if other != gram))[: self.width]
            self.size += len(self._rows[token]) - len(row)

    def _copy(self, other: NgramPool) -> None:
        self._rows, self.size = dict(other._rows), other.size

    def _undo(self, undo: _Undo) -> None:
        for token, row in undo.rows.items():
            if row:
                self._rows[token] = row
            else:
                self._rows.pop(token, None)
        self.size = undo.size
