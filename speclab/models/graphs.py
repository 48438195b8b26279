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
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from speclab.models.cache import KVCache
from speclab.models.masks import Mask
from speclab.models.rotary import Rotary
from speclab.models.static_cache import Pool, Rows, Shape, Store, lent
from speclab.models.through import TOLERANCE, Answer, Rung

MOST_ROWS = 128
"""Larger passes (prompts) keep a GPU busy without a graph."""
FIRST_COLUMNS = 256


class Graph(Protocol):
    """A pass that can be run again."""

    def capture(self, run: Callable[[], Answer]) -> tuple[Answer, Answer]:
        """Runs, then notes what `run` does: what the run gave, and an answer that every `replay` writes anew."""
        ...

    def replay(self) -> None:
        """Does it again, on what the same buffers hold now."""
        ...


_STREAMS: dict[torch.device, Any] = {}
_CAPTURING = Lock()
"""torch allows one capture at a time in a process."""


class CudaGraphs:
    """Makes graphs of one device that share a memory pool: whoever replays one takes its answer before the next."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: Any = None

    def __call__(self) -> CudaGraph:
        """An empty one."""
        self._memory = self._memory or torch.cuda.graph_pool_handle()
        return CudaGraph(self._device, self._memory)


class CudaGraph:
    """The real one."""

    def __init__(self, device: torch.device, memory: Any) -> None:
        self._device, self._memory, self._graph = device, memory, torch.cuda.CUDAGraph()

    def capture(self, run: Callable[[], Answer]) -> tuple[Answer, Answer]:
        """The first run, uncaptured, is for libraries that set up at their first call what no graph can hold.

        The stream is ours, one a device: torch's own lies on the device of the process's first capture, and what runs
        on another device is not captured. A capture that fails leaves its stream in use; the outer block puts the
        thread's own back.
        """
        with _CAPTURING, torch.cuda.device(self._device), torch.cuda.stream(torch.cuda.current_stream()):
            own = torch.cuda.current_stream()
            stream = _STREAMS.pop(self._device, None) or torch.cuda.Stream()
            stream.wait_stream(own)
            with torch.cuda.stream(stream):
                first = run()
            own.wait_stream(stream)
            with torch.cuda.graph(self._graph, pool=self._memory, stream=stream, capture_error_mode="thread_local"):
                answer = run()
            _STREAMS[self._device] = stream  # kept only where the capture went well
        return first, answer

    def replay(self) -> None:
        """Queues the kernels; nothing waits for them."""
        with torch.cuda.device(self._device):
            self._graph.replay()


class Lean(Rung, Protocol):
    """A lean forward: `rows` is the pass as tensor work alone, over angles that were reserved."""

    rotary: Rotary

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
        graph: makes an empty graph; by default a real one.
    """

    name, feature = "lean, CUDA graphs", "CUDA graphs"

    def __init__(self, lean: Lean, model: Any, graph: Callable[[], Graph] | None = None) -> None:
        self._lean, self._pool = lean, Pool(Shape.of(model))
        self._graph = graph or CudaGraphs(self._pool.shape.device)
        self._captured: WeakKeyDictionary[Store, dict[Size, Captured]] = WeakKeyDictionary()
        self._one_at_a_time = Lock()
        self._context: int = model.config.max_position_embeddings
        lean.rotary.reserve(self._context)
        self._angles = lean.rotary.tables  # held, for graphs read them even when longer ones have taken their place

    def takes(self, tokens: Tensor, mask: Mask, cache: KVCache) -> bool:
        """Whether it is small, within the context, and nobody watches the module."""
        fits = isinstance(mask, Tensor) and len(tokens) <= MOST_ROWS and cache.length + len(tokens) <= self._context
        return fits and self._lean.takes(tokens, mask, cache)

    def blames_itself(self, error: Exception) -> bool:  # noqa: ARG002
        """Whatever a driver or a version raises, and want of memory too: graphs and their buffers take some."""
        return True

    def __call__(
        self, tokens: Tensor, positions: Tensor, mask: Mask, cache: KVCache, *, last: int, states: bool
    ) -> Answer:
        """A pass, as `Through` says."""
        start, rows = cache.length, len(tokens)
        size = Size.of(rows, start, states=states)
        layers = lent(cache, self._pool, size.columns)
        with self._one_at_a_time:  # graphs share memory: the next replay may write over this answer
            captured = self._of(layers[0].lease.store, size, (tokens, positions, cast("Tensor", mask), start))
            captured.graph.replay()
            answer = _cut(captured.answer, rows, last)
        for layer in layers:
            layer.advance(start + rows)
        return answer

    def _of(self, store: Store, size: Size, given: tuple[Tensor, Tensor, Tensor, int]) -> Captured:
        """The graph of a size on a store, its inputs filled."""
        on_store = self._captured.setdefault(store, {})
        if size in on_store:
            on_store[size].inputs.fill(*given)
            return on_store[size]
        inputs, graph = Inputs.empty(size, self._pool.shape), self._graph()
        inputs.fill(*given)
        rows = cast("KVCache", Rows(store, inputs.slots, size.columns))

        def run() -> Answer:
            return self._lean.rows(inputs.tokens, inputs.positions, inputs.mask, rows, last=0, states=size.states)

        first, answer = graph.capture(run)
        _check(graph, first, answer)
        return on_store.setdefault(size, Captured(graph, inputs, answer))


def _check(graph: Graph, first: Answer, answer: Answer) -> None:
    """Refuses a graph whose replay does not give what the run before its capture gave, or gives nothing."""
    for tensor in (answer.logits, *answer.states):
        tensor.fill_(torch.nan)
    graph.replay()
    for want, got in zip((first.logits, *first.states), (answer.logits, *answer.states), strict=True):
        bound = TOLERANCE.get(want.dtype, 1e-3) * max(1.0, want.float().nan_to_num(0.0, 0.0, 0.0).std().item())
        if not torch.allclose(got.float(), want.float(), rtol=0.0, atol=bound, equal_nan=True):
            raise RuntimeError("its replay gives other numbers than the pass that was captured")


def _cut(answer: Answer, rows: int, last: int) -> Answer:
    """Copies of the rows that were asked for: the next pass of this size writes over the answer."""
    first = rows - last if last else 0
    return Answer(answer.logits[first:rows].clone(), [state[:, :rows].clone() for state in answer.states])


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
