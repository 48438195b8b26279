"""Which token follows which: a table of the most probable successors, read off every row that the target verifies.

Token Recycling (Luo et al. 2025) keeps it by the last token (unigram); GOOSE (section 4.1, appendix C.1) adds the
last two (bigram), and harvests every row, rejected branches and the prefill included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from speclab.sources.undo import ENTRY_BYTES, Allocation, SlotMap, UndoLog
from speclab.tree import Ints

Row = tuple[Sequence[int], Sequence[float]]
"""Successors and their probabilities, best first; probabilities of 0 mark places without a successor."""


@dataclass(slots=True)
class _Undo:
    """The counts before a harvest, the keys it took in, and the rows that it overwrote, by their slots."""

    filled: int
    refreshed: int
    unigrams: list[Allocation] = field(default_factory=list)
    bigrams: list[Allocation] = field(default_factory=list)
    rows: tuple[Ints, NDArray[np.int32]] | None = None


class TransitionTable(UndoLog[_Undo]):
    """The `width` most probable successors of a token, and of a pair of tokens where that pair was seen.

    Unigram rows are dense, `[vocabulary, width]`, int32 ids and float32 probabilities. Where they would not fit
    half of `most_bytes` they are hashed: rows for as many tokens as fit, the oldest give way. Bigram rows are hashed
    always, up to `bigram_entries` or what fits.

    The rows lie in host memory, on a GPU too, unlike the paper's (appendix C.1): a tree is built node by node, each
    look-up depends on the one before, and reading a row from the device would wait for it every time. The search for
    the top-k runs where the logits are, and a harvest brings over `[n, width]` ids and scores in one transfer.

    Args:
        vocabulary: columns of the logits.
        width: successors kept of each (K).
        bigram_entries: most pairs of tokens; 0 for a table of unigrams only.
        most_bytes: bound on `bytes`.

    Attributes:
        filled: unigram rows that hold successors.
        refreshed: how often a row that held some was overwritten.
    """

    def __init__(self, vocabulary: int, width: int, bigram_entries: int = 0, most_bytes: int = 1 << 26) -> None:
        super().__init__()
        width = min(width, vocabulary)
        row = width * (np.int32().nbytes + np.float32().nbytes)
        self.dense = vocabulary * row <= most_bytes // 2
        share = most_bytes // 2 // (row + ENTRY_BYTES)
        unigrams = vocabulary if self.dense else max(share, 1)
        self.vocabulary, self.width = vocabulary, width
        self._unigrams = SlotMap(0, 0 if self.dense else unigrams)
        self._bigrams = SlotMap(unigrams, min(bigram_entries, share))
        self._hold(np.zeros((unigrams + self._bigrams.size, 2, width), np.int32))
        self.filled = self.refreshed = 0

    @property
    def bigrams(self) -> int:
        """Pairs of tokens with a row of their own."""
        return len(self._bigrams)

    @property
    def bytes(self) -> int:
        """Memory of rows and keys when full; the keys' share is an estimate."""
        hashed = self._unigrams.size + self._bigrams.size
        return self._rows.nbytes + hashed * ENTRY_BYTES

    def successors(self, previous: int, token: int) -> Row:
        """What follows `token`, after `previous` if that pair was seen, else after any token."""
        slot = self._bigrams.slots.get((previous, token))
        if slot is None:
            slot = token if self.dense else self._unigrams.slots.get(token)
        if slot is None:
            return [], []
        return self.ids[slot].tolist(), self.scores[slot].tolist()

    def rows(self, token: int, previous: int | None = None) -> dict[tuple[int, ...], Row]:
        """The rows for a token by their keys: of the pair with `previous`, where pairs are kept, and of it alone."""
        slots: dict[tuple[int, ...], int | None] = {}
        if self._bigrams.size and previous is not None:
            slots[previous, token] = self._bigrams.slots.get((previous, token))
        slots[token,] = token if self.dense else self._unigrams.slots.get(token)
        return {
            key: ([], []) if slot is None else (self.ids[slot].tolist(), self.scores[slot].tolist())
            for key, slot in slots.items()
        }

    def harvest(
        self,
        previous: Sequence[int],
        tokens: Sequence[int],
        top: tuple[NDArray[np.int64], NDArray[np.float32]],
        order: Iterable[int] | None = None,
    ) -> None:
        """Takes the successors of every row that is known; of several for one token the last in `order` counts.

        Args:
            previous: `n` tokens, the one before each of `tokens`; -1 where there is none.
            tokens: `n` ids.
            top: ids and log-probabilities `[n, width]` of the target's most probable tokens after each of them, as of
                `Answer.topk`; a row that is not known has the id -1.
            order: all `n` rows in the order in which they are taken; by default as they stand.
        """
        ids, log_probs = top
        found = np.stack((ids.astype(np.int32), np.exp(log_probs).view(np.int32)), 1)  # [n, 2, width]
        undo = _Undo(self.filled, self.refreshed)
        self._note(undo)
        order = [row for row in (range(len(tokens)) if order is None else order) if found[row, 0, 0] >= 0]
        keys: Sequence[int] = [tokens[row] for row in order]
        latest = dict(zip(keys if self.dense else self._unigrams.allocate(keys, undo.unigrams), order, strict=True))
        unigrams = len(latest)
        if self._bigrams.size:
            pairs = [(previous[row], tokens[row]) for row in order]
            latest.update(zip(self._bigrams.allocate(pairs, undo.bigrams), order, strict=True))
        slots = np.fromiter(latest, np.int64, len(latest))
        undo.rows = slots, self._rows[slots]
        self._rows[slots] = found[list(latest.values())]
        self._count(undo.rows[1][:unigrams, 1, 0])

    def _hold(self, rows: NDArray[np.int32]) -> None:
        """Ids and scores lie side by side, so that a harvest moves both at once; each has a view of its own."""
        self._rows, self.ids, self.scores = rows, rows[:, 0], rows.view(np.float32)[:, 1]

    def _count(self, best_before: NDArray[np.int32]) -> None:
        """Counts unigram rows, by the bits of the best score that each of them had."""
        empty = len(best_before) - int(np.count_nonzero(best_before))
        new = empty if self.dense else len(self._unigrams) - self.filled
        self.filled += new
        self.refreshed += len(best_before) - new

    def _undo(self, undo: _Undo) -> None:
        if undo.rows is not None:
            slots, rows = undo.rows
            self._rows[slots] = rows
        self._unigrams.release(undo.unigrams)
        self._bigrams.release(undo.bigrams)
        self.filled, self.refreshed = undo.filled, undo.refreshed

    def _copy(self, other: TransitionTable) -> None:
        self._hold(other._rows.copy())
        self._unigrams, self._bigrams = other._unigrams.copy(), other._bigrams.copy()
        self.filled, self.refreshed = other.filled, other.refreshed
