"""N-grams by their first token, the newest first: the pool of lookahead decoding (Fu et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

Gram = tuple[int, ...]
Row = tuple[Gram, ...]


class _Undo(NamedTuple):
    """The size before an addition, and the rows that it changed."""

    size: int
    rows: dict[int, Row]


@dataclass(eq=False)
class Version:
    """A moment in a pool's life. It holds what leads back to it from the next; a moment that nobody keeps is freed."""

    undo: _Undo | None = None
    later: Version | None = None


class PoolState(NamedTuple):
    """A snapshot: the pool as it was at a version."""

    pool: NgramPool
    version: Version


class NgramPool:
    """For every first token at most `width` different n-grams; one that comes again counts as new.

    Attributes:
        size: n-grams in it.
    """

    def __init__(self, width: int) -> None:
        self.width, self.size = width, 0
        self._rows: dict[int, Row] = {}
        self._version = Version()

    def after(self, token: int) -> Row:
        """What the n-grams that start with `token` go on with, the newest first."""
        return self._rows.get(token, ())

    def add(self, grams: Iterable[Gram]) -> None:
        """Takes in n-grams, the last of them being the newest; of a full row the oldest gives way."""
        # The way back is there before the first change, so that whatever stops this midway can be undone.
        undo, later = _Undo(self.size, {}), Version()
        self._version.undo, self._version.later = undo, later
        self._version = later
        for token, *rest in grams:
            row, gram = self.after(token), tuple(rest)
            undo.rows.setdefault(token, row)
            self._rows[token] = (gram, *(other for other in row if other != gram))[: self.width]
            self.size += len(self._rows[token]) - len(row)

    def snapshot(self) -> PoolState:
        """The pool as it is now; costs nothing until it is restored."""
        return PoolState(self, self._version)

    def restore(self, state: PoolState) -> None:
        """Takes back a snapshot: of this pool by undoing what came after it, of another by a copy of it.

        Undoing makes snapshots of this pool that were taken after `state` worthless.
        """
        if state.pool is not self:
            self._rows, self.size, self._version = dict(state.pool._rows), state.pool.size, Version()
        undos, version = [], state.version
        while version.undo is not None:
            assert version.later is not None
            undos.append(version.undo)
            version = version.later
        assert version is state.pool._version, "a snapshot from after a moment that was gone back to"
        for undo in reversed(undos):
            self._undo(undo)
        if state.pool is self:
            self._version = state.version
            self._version.undo = self._version.later = None

    def _undo(self, undo: _Undo) -> None:
        for token, row in undo.rows.items():
            self._rows[token] = row
            if not row:
                del self._rows[token]
        self.size = undo.size
