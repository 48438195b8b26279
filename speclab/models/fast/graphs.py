"""Passes as CUDA graphs: on a GPU a small pass takes longer to launch, kernel by kernel, than to run.

A graph runs the kernels of one pass again, on the same addresses. So everything is padded to a few sizes: rows, and
columns of the cache. Tokens, positions, slots and mask come from the host in one copy before each run, and the graph
unpacks them; what the host reads of the logits is worked out in the graph too, so that a pass waits once, for that.
Padding rows see little, write to slots that nobody sees, and are cut off. All but the capture itself runs,
and is tested, on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from speclab.models.cache import KVCache
from speclab.models.fast.exact import BLOCK
from speclab.models.fast.lean import LeanForward
from speclab.models.fast.static_cache import CapturedCache, Pool, Shape, Store, static_layers
from speclab.models.forward import TOLERANCE, Batch, ForwardOutput, Implementation
from speclab.models.transfers import summarize

MOST_ROWS = 128
"""Larger passes (prompts) keep a GPU busy without a graph."""
FIRST_COLUMNS = 256
WORDS = 16
"""Of 64 bits each, which is what a row's mask may have; one of more columns is run without a graph."""
LAST_BIT = 64 * WORDS - 1


_STREAMS: dict[torch.device, Any] = {}
_CAPTURING = Lock()
"""torch allows one capture at a time in a process."""


class CudaGraphs:
    """Makes graphs of one device that share a memory pool: whoever replays one takes its output before the next."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: Any = None

    def __call__(self) -> CudaGraph:
        """An empty one."""
        self._memory = self._memory or torch.cuda.graph_pool_handle()
        return CudaGraph(self._device, self._memory)


class CudaGraph:
    """A pass that can be run again."""

    def __init__(self, device: torch.device, memory: Any) -> None:
        self._device, self._memory, self._graph = device, memory, torch.cuda.CUDAGraph()

    def capture(self, run: Callable[[], ForwardOutput]) -> tuple[ForwardOutput, ForwardOutput]:
        """Runs, then notes what `run` does: what it computed, and an output that every `replay` overwrites.

        The first run, uncaptured, is for libraries that set up at their first call what no graph can hold.

        Each device has a stream of its own: torch's lies on the device of the process's first capture, and what runs on
        another device is not captured. A capture that fails leaves its stream in use; the outer block puts the
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
                output = run()
            _STREAMS[self._device] = stream  # kept only where the capture went well
        return first, output

    def replay(self) -> None:
        """Does it again, on what the same buffers hold now: queues the kernels, and waits for nothing."""
        with torch.cuda.device(self._device):
            self._graph.replay()


class Size(NamedTuple):
    """What a graph was captured for: rows and columns, padded, and what it computes beside logits, as in `Batch`."""

    rows: int
    columns: int
    layers: tuple[int, ...]
    vocab_size: int
    topk: int

    @classmethod
    def of(cls, batch: Batch, start: int, least: int = 1) -> Size:
        """The smallest that the rows, and `least`, fit at slot `start` and on: powers of two."""
        padded = _power(max(len(batch.tokens), least))
        columns = max(FIRST_COLUMNS, _power(start + padded))
        return cls(padded, columns, batch.layers, batch.vocab_size, batch.topk)


class Inputs:
    """What a graph of one size reads, in one tensor, so that a pass takes one copy from the host; the graph unpacks it.

    `[m * (4 + WORDS)]` int64: tokens, positions and slots of the rows, for each the first column that its mask speaks
    of, and that mask, a bit a column. All columns before are visible, all behind the new rows are hidden.
    """

    def __init__(self, size: Size, shape: Shape) -> None:
        self.size, self._dtype, device = size, shape.dtype, shape.device
        self._packed = torch.zeros(size.rows * (4 + WORDS), dtype=torch.int64, device=device)
        self._columns, self._bits = torch.arange(size.columns, device=device), torch.arange(64, device=device)

    def fill(self, batch: Batch, start: int) -> None:
        """Takes in a pass of `m` rows, to be written to slots `start` and on; the host waits for nothing.

        The copy reads pinned memory when the device gets there, so no memory is filled twice: it is new each time, and
        torch's allocator gives pinned memory out again when the copy from it is done.
        """
        rows, count = self.size.rows, len(batch.tokens)
        pinned = self._packed.device.type == "cuda"
        host = torch.empty(self._packed.shape, dtype=torch.int64, pin_memory=pinned)
        packed = host.numpy()
        packed[:] = 0
        head, words = packed[: 4 * rows].reshape(4, rows), packed[4 * rows :].reshape(rows, WORDS)
        seen = np.tri(count, dtype=np.bool_) if batch.visible is None else batch.visible
        bits = np.packbits(seen, axis=1, bitorder="little")
        head[0, :count], head[1, :count] = batch.tokens, batch.positions
        head[2], head[3] = np.arange(start, start + rows), start + count - seen.shape[1]
        words.view(np.uint8)[:count, : bits.shape[1]] = bits
        words[count:, 0] = 1  # a row that saw nothing could be no number, and padding rows leave keys behind
        self._packed.copy_(host, non_blocking=True)

    def unpack(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens, positions and slots `[m]`, and the additive mask `[1, 1, m, c]`."""
        rows = self.size.rows
        head, words = self._packed[: 4 * rows].view(4, rows), self._packed[4 * rows :].view(rows, WORDS)
        unseen = ((words[:, :, None] >> self._bits) & 1).flatten(1) == 0
        place = self._columns - head[3, 0]  # the last bit is never set, so that it stands for all columns behind
        hidden = unseen.index_select(1, place.clamp(0, LAST_BIT)) & (place >= 0)
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=hidden.device)
        mask.masked_fill_(hidden, torch.finfo(self._dtype).min)
        return head[0], head[1], head[2], mask[None, None]


@dataclass(frozen=True, slots=True)
class CapturedPass:
    """A graph, what it reads, and what it writes."""

    graph: CudaGraph
    inputs: Inputs
    output: ForwardOutput


class GraphForward(Implementation):
    """A lean forward whose small passes are captured once for each size and then run as graphs.

    Args:
        graph: makes an empty graph; by default a real one.
    """

    feature = "CUDA graphs"

    def __init__(self, lean: LeanForward, model: Any, graph: Callable[[], CudaGraph] | None = None) -> None:
        shape = Shape.of(model)
        # Exact arithmetic takes one size for plain decoding and trees, and caches what its sums are made of.
        self._least, kind = (BLOCK, torch.float64) if lean.bitwise else (1, shape.dtype)
        self._lean, self._pool = lean, Pool(shape._replace(dtype=kind))
        self.name = "lean" + ", bitwise" * lean.bitwise + ", CUDA graphs"
        self._graph = graph or CudaGraphs(self._pool.shape.device)
        self._captured: WeakKeyDictionary[Store, dict[Size, CapturedPass]] = WeakKeyDictionary()
        self._lock = Lock()
        self._context: int = model.config.max_position_embeddings
        lean.rotary.reserve(self._context)
        self._tables = lean.rotary.tables  # held, for graphs read them even when longer ones have taken their place

    def accepts(self, batch: Batch, cache: KVCache) -> bool:
        """Whether it is small, no prompt into an empty cache, within the context, and nobody watches the module."""
        rows, start = len(batch.tokens), cache.length
        masked = start > 0 if batch.visible is None else batch.visible.shape[1] <= LAST_BIT
        return masked and rows <= MOST_ROWS and start + rows <= self._context and self._lean.accepts(batch, cache)

    def may_fall_back(self, error: Exception) -> bool:  # noqa: ARG002
        """Whatever a driver or a version raises, and want of memory too: graphs and their buffers take some."""
        return True

    def __call__(self, batch: Batch, cache: KVCache) -> ForwardOutput:
        """A pass, as `Forward` says."""
        start, size = cache.length, Size.of(batch, cache.length, self._least)
        layers = static_layers(cache, self._pool, size.columns)
        lease = layers[0].lease
        assert lease is not None
        with self._lock:  # graphs share memory: the next replay may overwrite this output
            captured = self._graph_for(lease.store, size, batch, start)
            captured.graph.replay()
            output = _copy_rows(captured.output, batch, start + len(batch.tokens))
        for layer in layers:
            layer.length = start + len(batch.tokens)
        return output

    def _graph_for(self, store: Store, size: Size, batch: Batch, start: int) -> CapturedPass:
        """The graph of a size on a store, its inputs filled."""
        on_store = self._captured.setdefault(store, {})
        if size in on_store:
            on_store[size].inputs.fill(batch, start)
            return on_store[size]
        inputs, graph = Inputs(size, self._pool.shape), self._graph()
        inputs.fill(batch, start)

        def run() -> ForwardOutput:
            tokens, positions, slots, mask = inputs.unpack()
            rows = cast("KVCache", CapturedCache(store, slots, size.columns))
            output = self._lean.compute(tokens, positions, mask, rows, last=0, layers=size.layers)
            return output._replace(summary=summarize(output.logits[:, : size.vocab_size], size.topk))

        first, output = graph.capture(run)
        _check(graph, size, first, output)
        return on_store.setdefault(size, CapturedPass(graph, inputs, output))


def _check(graph: CudaGraph, size: Size, first: ForwardOutput, output: ForwardOutput) -> None:
    """Refuses a graph whose replay does not give what the run before its capture gave, or gives nothing."""
    pairs = [(first.logits, output.logits)]
    if first.states is not None and output.states is not None:
        pairs.append((first.states, output.states))
    for _, got in pairs:
        got.fill_(torch.nan)
    graph.replay()
    for want, got in pairs:
        bound = TOLERANCE.get(want.dtype, 1e-3) * max(1.0, want.float().nan_to_num(0.0, 0.0, 0.0).std().item())
        if not torch.allclose(got.float(), want.float(), rtol=0.0, atol=bound, equal_nan=True):
            raise RuntimeError("its replay gives other numbers than the pass that was captured")
    assert output.summary is not None
    if not torch.equal(output.summary, summarize(output.logits[:, : size.vocab_size], size.topk)):
        raise RuntimeError("its replay reads other tokens than its logits have")


def _copy_rows(output: ForwardOutput, batch: Batch, total: int) -> ForwardOutput:
    """Copies of the rows that were asked for: the next pass writes over the output."""
    rows = len(batch.tokens)
    first = rows - batch.last if batch.last else 0
    assert isinstance(output.mask, Tensor)
    assert output.summary is not None
    return ForwardOutput(
        output.logits[first:rows].clone(),
        None if output.states is None else output.states[:rows].clone(),
        None if batch.visible is None else output.mask[:, :, :rows, :total].clone(),
        output.summary[first:rows].clone(),
    )


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()
