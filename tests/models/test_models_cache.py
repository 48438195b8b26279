"""The buffer behind the KV cache: what moves, what is copied, what is shared."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from speclab.models import cache as module
from speclab.models.cache import BufferLayer, KVCache

HEADS = 2
DIM = 4
LAYERS = 3
ROW = HEADS * DIM


class Copied(TorchDispatchMode):
    """Elements written by copying operators, by operator."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in {"copy_", "cat", "index_select", "clone", "index_copy_"}:
            self.elements[name] += out.numel()
        return out


def rows(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(seed)
    return torch.randn(1, HEADS, n, DIM, generator=noise), torch.randn(
        1, HEADS, n, DIM, generator=noise
    )


def filled(n: int) -> KVCache:
    cache = KVCache()
    for layer in range(LAYERS):
        cache.update(*rows(n, layer), layer)
    return cache


def addresses(cache: KVCache) -> list[int]:
    return [tensor.data_ptr() for layer in cache.layers for tensor in (layer.keys, layer.values)]


def test_growth_keeps_the_entries_and_copies_each_a_bounded_number_of_times(monkeypatch):
    monkeypatch.setattr(module, "FIRST_CAPACITY", 2)
    keys, values = rows(200)
    layer = BufferLayer()
    with Copied() as copied:
        for slot in range(200):
            layer.update(keys[:, :, slot : slot + 1], values[:, :, slot : slot + 1])
    assert torch.equal(layer.keys, keys)
    assert torch.equal(layer.values, values)
    # once when written, and at most twice more in all growths
    assert copied.elements.total() <= 3 * 2 * 200 * ROW


def test_one_token_into_a_long_cache_copies_one_row():
    cache = filled(200)
    assert cache.slot_bytes == LAYERS * 2 * ROW * 4
    with Copied() as copied:
        for layer in range(LAYERS):
            cache.update(*rows(1), layer)
    assert copied.elements == {"copy_": LAYERS * 2 * ROW}


@pytest.mark.parametrize(
    ("prefix", "slots", "moved"),
    [
        (10, [12, 15, 19], 3),
        (10, [10, 11, 14], 1),
        (190, [199], 1),
        (10, [], 0),
        (10, [10, 11, 12], 0),
    ],
)
def test_keep_is_in_place_and_copies_only_rows_that_change_place(prefix, slots, moved):
    cache = filled(200)
    before = addresses(cache)
    wanted = [layer.keys[:, :, [*range(prefix), *slots]].clone() for layer in cache.layers]
    with Copied() as copied:
        cache.keep(prefix, slots)
    assert addresses(cache) == before
    assert cache.length == prefix + len(slots)
    assert all(
        torch.equal(layer.keys, want) for layer, want in zip(cache.layers, wanted, strict=True)
    )
    assert copied.elements == (
        dict.fromkeys(("copy_", "index_select"), LAYERS * 2 * moved * ROW) if moved else {}
    )
