"""A graph without CUDA: it notes a pass, and does it again on the same buffers; captures and replays are counted.

The first replay, by which a graph is checked, does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from speclab.models.fast.graphs import GraphForward
from speclab.models.forward import FallbackChain, ForwardOutput
from speclab.models.runner import Runner

WAITS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal", "aten::masked_select"}
"""What brings a number to the host: no graph can hold it."""


class Ops(TorchDispatchMode):
    """Notes the name of every operator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.append(operator.name().split(".")[0])
        return operator(*args, **(kwargs or {}))


class FakeGraph:
    """As a capture does, `capture` leaves nothing in the answer: the first replay does."""

    def __init__(self, counts: Counter[str]) -> None:
        self.counts, self.checked = counts, False

    def capture(self, run: Callable[[], ForwardOutput]) -> tuple[ForwardOutput, ForwardOutput]:
        self.counts["captured"] += 1
        first = run()
        with Ops() as ops:
            self.answer, self.run = run(), run
        assert not WAITS & set(ops.names)
        for tensor in _tensors(self.answer):
            tensor.fill_(torch.nan if tensor.is_floating_point() else -1)
        return first, self.answer

    def replay(self) -> None:
        if self.checked:
            self.counts["replayed"] += 1
        self.checked = True
        for mine, new in zip(_tensors(self.answer), _tensors(self.run()), strict=True):
            mine.copy_(new)


def _tensors(answer: ForwardOutput) -> list[torch.Tensor]:
    return [part for part in answer if isinstance(part, torch.Tensor)]


def over_graphs(runner: Runner, graph: Callable[[], Any]) -> FallbackChain:
    """The implementations of a runner on a CPU, with graphs before them."""
    lean, module = runner.implementation.implementations
    return FallbackChain(GraphForward(lean, runner.model, graph), lean, module)


def fast(runner: Runner, counts: Counter[str] | None = None) -> Runner:
    """A fresh runner of the same module whose passes go through fake graphs."""
    twin = runner.fork()
    counts = Counter() if counts is None else counts
    twin.implementation = over_graphs(runner, lambda: FakeGraph(counts))
    return twin
