"""N-grams by their first token, the newest first: the pool of lookahead decoding (Fu et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from speclab.sources.undo import UndoLog

Gram = tuple[int, ...]
Row = tuple[Gram, ...]


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
