"""N-grams by their first token, the newest first: the pool of lookahead decoding (Fu et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from speclab.sources.undo import Moments, State

Gram = tuple[int, ...]
Row = tuple[Gram, ...]


class _Undo(NamedTuple):
    """The size before an addition, and the rows that it changed."""

    size: int
    rows: dict[int, Row]


PoolState = State["NgramPool", _Undo]


class NgramPool:
    """For every first token at most `width` different n-grams; one that comes again counts as new.

    Attributes:
        size: n-grams in it.
    """

    def __init__(self, width: int) -> None:
        self.width, self.size = width, 0
        self._rows: dict[int, Row] = {}
        self._moments: Moments[_Undo] = Moments()

    def after(self, token: int) -> Row:
        """What the n-grams that start with `token` go on with, the newest first."""
        return self._rows.get(token, ())

    def add(self, grams: Iterable[Gram]) -> None:
        """Takes in n-grams, the last of them being the newest; of a full row the oldest gives way."""
        undo = _Undo(self.size, {})
        self._moments.change(undo)
        for token, *rest in grams:
            row, gram = self.after(token), tuple(rest)
            undo.rows.setdefault(token, row)
            self._rows[token] = (gram, *(other for other in row if other != gram))[: self.width]
            self.size += len(self._rows[token]) - len(row)

    def snapshot(self) -> PoolState:
        """The pool as it is now; costs nothing until it is restored."""
        return PoolState(self, self._moments.now)

    def restore(self, state: PoolState) -> None:
        """Takes back a snapshot: of this pool by undoing what came after it, of another by a copy of it.

        Undoing makes snapshots of this pool that were taken after `state` worthless.
        """
        other, moment = state
        if other is not self:
            self._rows, self.size, self._moments = dict(other._rows), other.size, Moments()
        for undo in other._moments.since(moment):
            self._undo(undo)
        if other is self:
            self._moments.back_to(moment)

    def _undo(self, undo: _Undo) -> None:
        for token, row in undo.rows.items():
            if row:
                self._rows[token] = row
            else:
                self._rows.pop(token, None)
        self.size = undo.size
