"""The KV cache: one buffer per layer that grows by doubling, written and compacted in place.

The library's `DynamicLayer` concatenates at every pass, which copies the whole prefix. Here a pass
copies its own rows, `keep` moves only the rows it keeps, and `shorten` moves nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, Self

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from speclab.models.transfers import to_device

FIRST_CAPACITY = 256


class BufferLayer(DynamicLayer):
    """One layer's keys and values: `[1, heads, length, dim]` views of buffers `[1, heads, capacity,
    dim]`.

    Attributes:
        slot_bytes: bytes of one entry, keys and values together; known after the first pass.
    """

    is_initialized = False
    slot_bytes = 0

    # not the library's, which sets keys and values; here they are properties
    def __init__(self) -> None:
        self.length = 0
        self.capacity = 0

    @property
    def keys(self) -> Tensor:  # type: ignore[override]
        return self.key_buffer.narrow(2, 0, self.length)

    @property
    def values(self) -> Tensor:  # type: ignore[override]
        return self.value_buffer.narrow(2, 0, self.length)

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Creates empty buffers of the right kind; the library calls it too."""
        self.dtype = key_states.dtype
        self.device = key_states.device
        self.key_buffer = key_states[:, :, :0]
        self.value_buffer = value_states[:, :, :0]
        both = key_states, value_states
        self.slot_bytes = sum(
            states.shape[1] * states.shape[3] * states.element_size() for states in both
        )
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Appends rows; returns views of all entries."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.length
        rows = key_states.shape[2]
        if start + rows > self.capacity:
            self.reserve(start + rows)
        # only the new rows are copied; the library would copy the whole prefix again
        self.key_buffer.narrow(2, start, rows).copy_(key_states)
        self.value_buffer.narrow(2, start, rows).copy_(value_states)
        self.length = start + rows
        return self.keys, self.values

    def reserve(self, slots: int) -> None:
        """Grows to at least `slots`, by at least doubling, so that n one-token passes copy O(n) rows in total."""
        capacity = max(slots, 2 * self.capacity, FIRST_CAPACITY)
        # Allocate both before changing either: if memory runs out, the layer is unchanged.
        keys = _wider(self.key_buffer, capacity)
        values = _wider(self.value_buffer, capacity)
        keys.narrow(2, 0, self.length).copy_(self.keys)
        values.narrow(2, 0, self.length).copy_(self.values)
        self.key_buffer = keys
        self.value_buffer = values
        self.capacity = capacity

    def copy(self, length: int) -> Self:
        """The first `length` entries in new storage."""
        copied = copy.copy(self)
        copied.length = copied.capacity = 0
        if self.is_initialized:
            copied.reserve(length)
            copied.key_buffer.narrow(2, 0, length).copy_(self.key_buffer.narrow(2, 0, length))
            copied.value_buffer.narrow(2, 0, length).copy_(self.value_buffer.narrow(2, 0, length))
            copied.length = length
        return copied

    def get_seq_length(self) -> int:
        return self.length


class HiddenStates(BufferLayer):
    """A target's hidden states at every entry, from which draft heads propose; stored as keys are.

    Args:
        layers: indices of the model's `hidden_states`: 0 the embeddings, `i` the output of block
            `i`, -1 the last, after the final norm in most families.
    """

    def __init__(self, layers: Sequence[int]) -> None:
        super().__init__()
        self.layers = tuple(layers)

    def append(self, rows: Tensor) -> None:
        """Adds the rows of one pass, `[m, layers, hidden]`."""
        states = rows.transpose(0, 1)[None]
        self.update(states, states[..., :0])

    def rows(self, start: int, stop: int, layers: Sequence[int]) -> Tensor:
        """The states of `layers`, concatenated: `[stop - start, len(layers) * hidden]`, in the model's dtype."""
        return torch.cat(
            [self.keys[0, self.layers.index(layer), start:stop] for layer in layers], dim=-1
        )


class KVCache(Cache):
    """A `transformers` cache of full-attention buffer layers, even if the config has windows.

    Args:
        watched: layers whose hidden states are stored in `hidden`, beside keys and values.
    """

    layers: list[BufferLayer]  # type: ignore[assignment]
    hidden: HiddenStates | None = None

    def __init__(self, watched: Sequence[int] = ()) -> None:
        super().__init__(layer_class_to_replicate=BufferLayer)
        self.watch(watched)

    @property
    def watched(self) -> tuple[int, ...]:
        if self.hidden is None:
            return ()
        return self.hidden.layers

    def watch(self, layers: Sequence[int]) -> None:
        """Stores the hidden states of these layers from now on; drops those stored before."""
        self.hidden = None
        if layers:
            self.hidden = HiddenStates(layers)

    @property
    def length(self) -> int:
        return max(map(attrgetter("length"), self.layers), default=0)

    @property
    def capacity(self) -> int:
        return min((layer.capacity for layer in self.layers if layer.is_initialized), default=0)

    @property
    def slot_bytes(self) -> int:
        """Bytes per slot over all layers; 0 before the first pass, when the shapes are unknown."""
        return sum(layer.slot_bytes for layer in self.layers)

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        """Keeps the first `prefix` entries, then those of `slots`; copies only entries that move.

        Args:
            prefix: entries that stay in place.
            slots: absolute, increasing, from `prefix` on.
        """
        assert all(low < high for low, high in pairwise([prefix - 1, *slots, self.length]))
        # slots that are where they shall be: all of a chain's, the first of a tree's path
        in_place = 0
        while in_place < len(slots) and slots[in_place] == prefix + in_place:
            in_place += 1
        if in_place < len(slots):
            self._move(slots[in_place:], prefix + in_place)
        self.shorten(prefix + len(slots))

    def _move(self, slots: Sequence[int], start: int) -> None:
        """Copies the entries of `slots` to those from `start` on."""
        on_device: dict[torch.device, Tensor] = {}  # layers may be on different devices
        for layer in self._filled:
            for buffer in (layer.key_buffer, layer.value_buffer):
                if buffer.device not in on_device:
                    on_device[buffer.device] = to_device(slots, buffer.device)
                # read before it is written, since the ranges may overlap: [1, heads, slots, dim]
                moved = buffer.index_select(2, on_device[buffer.device])
                buffer.narrow(2, start, len(slots)).copy_(moved)

    def shorten(self, length: int) -> None:
        """Drops the entries from `length` on; moves nothing."""
        for layer in self._filled:
            layer.length = length  # what follows is overwritten by the next pass

    def copy(self, length: int) -> KVCache:
        """The first `length` entries in new storage."""
        copied = KVCache()
        copied.layers = [layer.copy(length) for layer in self.layers]
        if self.hidden is not None:
            copied.hidden = self.hidden.copy(length)
        return copied

    @property
    def _filled(self) -> list[BufferLayer]:
        every = list(self.layers)
        if self.hidden is not None:
            every.append(self.hidden)
        return [layer for layer in every if layer.is_initialized]


def _wider(buffer: Tensor, capacity: int) -> Tensor:
    batch, heads, _, dim = buffer.shape
    return buffer.new_empty(batch, heads, capacity, dim)
