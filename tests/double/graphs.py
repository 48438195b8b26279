"""CUDA graphs: a capture notes operators and runs none of them, a replay runs them on the same storages.

What a capture leaves is NaN until the first replay, and what other graphs of the same memory pool had answered is NaN
after it.
"""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from double import gpu, streams

_pools: dict[object, weakref.WeakSet[CUDAGraph]] = {}
_handles = itertools.count(1)


class Entry(NamedTuple):
    """An operator, its arguments as CPU tensors, and what it answered when it was noted."""

    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Any
    writes: bool
    down: bool
    """It answers into the host's memory."""
    crossing: bool
    """It copies between host and device."""

    def again(self) -> None:
        """Runs it on what its arguments hold now."""
        new = self.run(*self.args, **self.kwargs)
        if self.down:
            streams.download_late(new, new)
        elif not self.writes:
            for mine, other in zip(tree_leaves(self.answer), tree_leaves(new), strict=True):
                if isinstance(mine, torch.Tensor):
                    mine.copy_(other)


class CUDAGraph:
    """As `torch.cuda.CUDAGraph`."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.entries: list[Entry] = []
        self.spoilt = False
        self._ended, self._dirty, self._wrong = False, False, False
        self._pool: object = None

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global", **_: Any) -> None:
        stream = streams.current_stream()
        if stream.is_default:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        if stream.capturing:
            raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")
        if gpu.now().fault == "begin":
            raise torch.AcceleratorError("CUDA error: initialization error")
        self.stream, stream.capturing = stream, True
        self._wrong = gpu.now().fault == "wrong"
        self._pool = pool if pool is not None else next(_handles)
        _pools.setdefault(self._pool, weakref.WeakSet()).add(self)
        gpu.now().pools.add(self._pool)
        gpu.now().graphs["captures"] += 1
        streams.set_capture(self)

    def capture_end(self) -> None:
        if streams.current_stream() is not self.stream:
            raise RuntimeError("Capture must end on the same stream it began on.")
        streams.set_capture(None)
        self.stream.capturing = False
        if gpu.now().fault == "end" or self.spoilt:
            raise torch.AcceleratorError("CUDA error: operation failed due to a previous error during capture")
        if gpu.now().fault == "empty":
            self.entries.clear()
        if not self.entries:
            gpu.now().graphs["empty graphs"] += 1
            warnings.warn("The CUDA Graph is empty. This usually means that the graph was attempted to be captured "
                          "on wrong device or stream.", stacklevel=2)  # fmt: skip
        self._ended = True

    def replay(self) -> None:
        if not self._ended:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        if gpu.now().fault == "replay":
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        if gpu.now().fault == "replay oom":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        gpu.now().graphs["replays"] += 1
        with torch.inference_mode(), _disable_current_modes():
            for other in _pools[self._pool]:
                if other is not self:
                    other.scribble()
            for entry in self.entries:
                entry.again()
            if self._wrong:
                products = (entry for entry in reversed(self.entries) if "linear" in str(entry.run))
                last = next(products)  # the logits
                last.answer.mul_(-1)
        self._dirty = True

    def scribble(self) -> None:
        """Another graph of the pool has used the same memory."""
        if self._dirty:
            self._dirty = False
            for entry in self.entries:
                blank(entry.answer if not entry.writes else ())

    def reset(self) -> None:
        self.entries.clear()

    def pool(self) -> object:
        return self._pool


def is_floating(answer: Any) -> bool:
    """Whether an answer is one tensor of numbers with a fraction."""
    return isinstance(answer, torch.Tensor) and answer.is_floating_point()


def blank(answer: Any) -> None:
    """NaN in every floating tensor of an answer."""
    for tensor in tree_leaves(answer):
        if is_floating(tensor):
            tensor.fill_(torch.nan)


def patches() -> dict[str, object]:
    """What stands in `torch.cuda`."""
    return {"CUDAGraph": CUDAGraph, "graph_pool_handle": lambda: next(_handles)}
