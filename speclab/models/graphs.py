"""Passes as CUDA graphs: on a GPU a small pass takes longer to launch, kernel by kernel, than to run.

A graph runs the kernels of one pass again, on the same addresses. So everything is padded to a few sizes: rows, and
columns of the cache. Tokens, positions, slots and mask lie in buffers that are filled before each run; padding rows see
column 0 alone, write to slots that nobody sees, and are cut off the answer. All but the capture itself runs, and is
tested, on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from speclab.models.cache import KVCache
from speclab.models.masks import Mask
from speclab.models.rotary import Rotary
from speclab.models.static_cache import Pool, Rows, Shape, Store, lent
from speclab.models.through import Answer, Through

MOST_ROWS = 256
"""Larger passes (prompts) keep a GPU busy without a graph."""
FIRST_COLUMNS = 256


class Graph(Protocol):
    """A pass that can be run again."""

    def capture(self, run: Callable[[], Answer]) -> Answer:
        """Notes what `run` does; its answer, whose tensors every `replay` writes anew."""
        ...

    def replay(self) -> None:
        """Does it again, on what the same buffers hold now."""
        ...


class CudaGraph:
    """The real one; what it needs beside its inputs lies in a memory pool of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._graph = device, torch.cuda.CUDAGraph()

    def capture(self, run: Callable[[], Answer]) -> Answer:
        """Runs once on a stream of its own, for libraries set up at the first call what no graph can hold."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                run()
            torch.cuda.current_stream().wait_stream(stream)
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                return run()

    def replay(self) -> None:
        """Queues the kernels; nothing waits for them."""
        with torch.cuda.device(self._device):
            self._graph.replay()


class Lean(Through, Protocol):
    """A lean forward: `rows` is the pass as tensor work alone, over angles that were reserved."""

    rotary: Rotary

    @property
    def hooked(self) -> bool:
        """Whether somebody watches the module, so that passes have to go through it."""
        ...

    def rows(self, tokens: Tensor, positions: Tensor, mask: Mask, cache: KVCache, *, last: int, states: bool) -> Answer:
        """As the whole pass."""
        ...


class Size(NamedTuple):
    """What a graph was captured for: rows and columns, padded, and whether it hands out hidden states."""

    rows: int
    columns: int
    states: bool

    @classmethod
    def of(cls, rows: int, start: int, *, states: bool) -> Size:
        """The smallest that `rows` new ones at slot `start` and on fit: powers of two."""
        padded = _power(rows)
        return cls(padded, max(FIRST_COLUMNS, _power(start + padded)), states)


class Inputs(NamedTuple):
    """The buffers that a graph of one size reads: `[m]` int64 each, and the mask `[1, 1, m, c]`."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    mask: Tensor
    counted: Tensor
    """0, 1, 2, …"""

    @classmethod
    def empty(cls, size: Size, shape: Shape) -> Inputs:
        """Of padding rows only."""
        tokens, positions, slots = torch.zeros((3, size.rows), dtype=torch.int64, device=shape.device)
        mask = torch.zeros((1, 1, size.rows, size.columns), dtype=shape.dtype, device=shape.device)
        return cls(tokens, positions, slots, mask, torch.arange(size.rows, device=shape.device))

    def fill(self, tokens: Tensor, positions: Tensor, mask: Tensor, start: int) -> None:
        """Takes in a pass of `m` rows into slots `start` and on; all of it is queued on the device."""
        rows, columns = mask.shape[2:]
        self.tokens[:rows].copy_(tokens)
        self.positions[:rows].copy_(positions)
        torch.add(self.counted, start, out=self.slots)
        self.mask.fill_(torch.finfo(self.mask.dtype).min)
        self.mask[:, :, rows:, 0] = 0.0  # a row that saw nothing could be no number, and padding rows leave keys behind
        self.mask[:, :, :rows, :columns].copy_(mask)


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph, what it reads, and what it answers in."""

    graph: Graph
    inputs: Inputs
    answer: Answer


class GraphPass:
    """A lean forward whose small passes are captured once for each size and then run as graphs.

    Args:
        lean: the forward.
        model: whose forward it is.
        graph: makes an empty graph for a device.

    Attributes:
        reason: why passes are no longer captured; empty while they are.
    """

    def __init__(self, lean: Lean, model: Any, graph: Callable[[torch.device], Graph] = CudaGraph) -> None:
        self._lean, self._graph, self._pool = lean, graph, Pool(Shape.of(model))
        self._one_at_a_time = Lock()
        self.reason = ""
        self._context: int = model.config.max_position_embeddings
        lean.rotary.reserve(self._context)
        self._angles = lean.rotary.tables  # held, for graphs read them even when longer ones have taken their place

    @property
    def name(self) -> str:
        """For records."""
        return f"lean, without CUDA graphs: {self.reason}" if self.reason else "lean, CUDA graphs"

    def __call__(
        self, tokens: Tensor, positions: Tensor, mask: Mask, cache: KVCache, *, last: int, states: bool
    ) -> Answer:
        """A pass, as `Through` says."""
        start, rows = cache.length, len(tokens)
        fits = isinstance(mask, Tensor) and rows <= MOST_ROWS and start + rows <= self._context
        if not fits or self.reason or self._lean.hooked:
            return self._lean(tokens, positions, mask, cache, last=last, states=states)
        size = Size.of(rows, start, states=states)
        try:
            layers = lent(cache, self._pool, size.columns)
            captured = self._captured(layers[0].lease.store, size, (tokens, positions, cast("Tensor", mask), start))
        except RuntimeError as error:  # out of memory is one too
            self.reason = _why(error)
            cache.shorten(start)
            return self._lean(tokens, positions, mask, cache, last=last, states=states)
        captured.graph.replay()
        for layer in layers:
            layer.advance(start + rows)
        return _cut(captured.answer, rows, last)

    def _captured(self, store: Store, size: Size, given: tuple[Tensor, Tensor, Tensor, int]) -> Captured:
        """The graph of a size on a store, its inputs filled."""
        captured = store.captured.get(size)
        if captured is not None:
            captured.inputs.fill(*given)
            return cast("Captured", captured)
        with self._one_at_a_time:
            inputs, graph = Inputs.empty(size, self._pool.shape), self._graph(self._pool.shape.device)
            inputs.fill(*given)
            rows = cast("KVCache", Rows(store, inputs.slots, size.columns))

            def run() -> Answer:
                return self._lean.rows(inputs.tokens, inputs.positions, inputs.mask, rows, last=0, states=size.states)

            captured = store.captured[size] = Captured(graph, inputs, graph.capture(run))
        return captured


def _cut(answer: Answer, rows: int, last: int) -> Answer:
    """Copies of the rows that were asked for: the next pass of this size writes over the answer."""
    first = rows - last if last else 0
    return Answer(answer.logits[first:rows].clone(), [state[:, :rows].clone() for state in answer.states])


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _why(error: Exception) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "no memory was left to capture a pass"
    return f"a pass could not be captured ({str(error).splitlines()[0]})"
