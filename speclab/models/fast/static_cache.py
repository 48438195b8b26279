"""KV buffers at fixed addresses, used by one cache after another: what a captured pass reads and writes.

A captured pass knows addresses, not tensors. So buffers outlive the cache that uses them and go, with all passes that
were captured on them, to the next one; a cache that outgrows its buffers moves to larger ones.
"""

from __future__ import annotations

import weakref
from threading import RLock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from speclab.models.cache import BufferLayer, KVCache

FIRST_SLOTS = 1024
"""Slots of the smallest buffers; a speclab default, for most texts are shorter."""
KEPT_FREE = 2
"""Buffers kept for the next cache; more are freed."""


class Shape(NamedTuple):
    """What one slot takes: keys and values `[heads, dim]` in each of `layers`."""

    layers: int
    heads: int
    dim: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, model: Any) -> Shape:
        """Of a GPT-NeoX or Llama model."""
        config = model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(config.num_hidden_layers, heads, dim, model.dtype, model.device)


class Store:
    """The buffers of one cache.

    `entries` `[layers, 2, 1, heads, slots, dim]`: keys and values of all layers in one tensor, so that gathering the
    rows of an accepted path takes two kernels, whatever the layers. It starts as zeros: a captured pass reads slots
    that no row was written to, hides them, and must not meet a NaN.
    """

    def __init__(self, shape: Shape, slots: int) -> None:
        size = (shape.layers, 2, 1, shape.heads, slots, shape.dim)
        self.slots = slots
        self.entries = torch.zeros(size, dtype=shape.dtype, device=shape.device)
        self.keys, self.values = self.entries[:, 0].unbind(), self.entries[:, 1].unbind()


class Pool:
    """The stores of one model."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._free: list[Store] = []
        self._lock = RLock()  # a lease may end, and give back, while this very thread takes one

    def allocate(self, slots: int) -> Store:
        """The smallest free store of at least so many slots, or a new one."""
        with self._lock:
            fitting = sorted((store for store in self._free if store.slots >= slots), key=lambda store: store.slots)
            if fitting:
                self._free.remove(fitting[0])
                return fitting[0]
        return Store(self.shape, max(FIRST_SLOTS, 1 << (slots - 1).bit_length()))

    def release(self, store: Store) -> None:
        """Takes back a store that no cache uses any more; the largest are kept."""
        with self._lock:
            self._free = sorted([*self._free, store], key=lambda store: -store.slots)[:KEPT_FREE]


class Lease:
    """The store that one cache uses; it goes back when the layers in it are gone."""

    def __init__(self, pool: Pool, slots: int) -> None:
        self.store = pool.allocate(slots)
        weakref.finalize(self, pool.release, self.store)


class StaticLayer(BufferLayer):
    """A layer of a cache in buffers of a pool; like any other in a pass that is not captured.

    Attributes:
        lease: of its buffers; None once such a pass outgrew them, and buffers of its own took their place.
    """

    def __init__(self, lease: Lease, index: int) -> None:
        super().__init__()
        store = lease.store
        self.lazy_initialization(store.keys[index], store.values[index])
        self.key_buffer, self.value_buffer, self.capacity = store.keys[index], store.values[index], store.slots
        self.lease: Lease | None = lease

    def reserve(self, slots: int) -> None:
        """Leaves the pool, until the next captured pass."""
        super().reserve(slots)
        self.lease = None

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """The one of all layers."""
        return super().buffers if self.lease is None else (self.lease.store.entries,)


def static_layers(cache: KVCache, pool: Pool, slots: int) -> list[StaticLayer]:
    """The layers of a cache, moved to a store of at least so many slots; where they are in one, nothing moves."""
    layers = [layer for layer in cache.layers if isinstance(layer, StaticLayer) and layer.lease is not None]
    if len(layers) < pool.shape.layers or layers[0].capacity < slots:
        lease = Lease(pool, slots)
        layers = [StaticLayer(lease, index) for index in range(pool.shape.layers)]
        for layer, former in zip(layers, cache.layers, strict=False):
            _copy_entries(layer, former)
        cache.layers[:] = layers
    return layers


def _copy_entries(layer: StaticLayer, former: BufferLayer) -> None:
    if former.is_initialized:
        keys, values = (buffer.narrow(2, 0, former.length) for buffer in (former.key_buffer, former.value_buffer))
        layer.update(keys, values)


class CapturedCache:
    """Stands in for a cache in a captured pass: writes rows at `slots` `[m]` and shows the first `columns` slots."""

    def __init__(self, store: Store, slots: Tensor, columns: int) -> None:
        self._store, self._slots, self._columns = store, slots, columns

    def update(self, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Writes `[1, heads, m, dim]`; returns `[1, heads, columns, dim]`."""
        keys, values = self._store.keys[layer], self._store.values[layer]
        keys.index_copy_(2, self._slots, key)
        values.index_copy_(2, self._slots, value)
        return keys.narrow(2, 0, self._columns), values.narrow(2, 0, self._columns)
