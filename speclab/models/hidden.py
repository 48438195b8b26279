"""The hidden states that a target left at every cached position: what draft heads propose from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from speclab.models.cache import FIRST_CAPACITY
from speclab.models.transfers import to_device


class HiddenStates:
    """Hidden states of some layers, one row a cache slot; kept, cropped and copied as the KV cache is.

    Args:
        layers: places in the model's `hidden_states`: 0 the embeddings, `i` the output of block `i`, -1 the last,
            after the final norm in most families.

    Attributes:
        length: rows held.
    """

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self.length = 0
        self._buffer: Tensor | None = None

    def append(self, rows: Tensor) -> None:
        """Adds the rows of one pass, `[m, layers, hidden]`."""
        total = self.length + len(rows)
        if self._buffer is None or total > len(self._buffer):
            self._buffer = self._wider(rows, max(total, 2 * self.length, FIRST_CAPACITY))
        self._buffer[self.length : total] = rows
        self.length = total

    def rows(self, start: int, stop: int, layers: Sequence[int]) -> Tensor:
        """The states of `layers` side by side, `[stop - start, len(layers) * hidden]`, in the model's dtype."""
        assert self._buffer is not None
        assert stop <= self.length
        kept = self._buffer[start:stop]
        if tuple(layers) != self.layers:
            kept = torch.stack([kept[:, self.layers.index(layer)] for layer in layers], dim=1)
        return kept.flatten(1)

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        """Keeps the first `prefix` rows, then those of `slots` (absolute, increasing)."""
        if self._buffer is not None and slots:
            moved = self._buffer.index_select(0, to_device(slots, self._buffer.device))
            self._buffer[prefix : prefix + len(slots)] = moved
        self.length = prefix + len(slots)

    def shorten(self, length: int) -> None:
        """Forgets the rows from `length` on."""
        self.length = min(self.length, length)

    def copy(self, length: int) -> HiddenStates:
        """Its own storage, holding the first `length` rows."""
        twin = HiddenStates(self.layers)
        if self._buffer is not None:
            twin._buffer = self._buffer[: max(length, 1)].clone()
        twin.length = length
        return twin

    def _wider(self, rows: Tensor, capacity: int) -> Tensor:
        buffer = rows.new_empty((capacity, *rows.shape[1:]))
        if self._buffer is not None:
            buffer[: self.length] = self._buffer[: self.length]
        return buffer
