"""Products of a lean pass: the library's, or with packed weights, whichever is faster for so many rows here.

The library's product repacks its weights at every call, which takes longer than the product if rows
are few; a packed copy costs at one row on some processors what it gains at many on others. So both
are timed beside each other, once per shape, dtype and machine.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speclab.files import measured_file, read_measured, write_measured
from speclab.models.eight_bits import EightBit

PACKING = torch.backends.mkldnn.is_available()
"""Whether weights may be packed on a CPU."""
BORDERS = (1, 3, 16)
"""Most rows of each class but the last."""
CLASSES = ("1 row", "2 to 3", "4 to 16", "more")
_TIMED = (1, 2, 8, 24)
_ROUNDS = 5
_QUIET = 1.25
"""Median over fastest product; above this the machine was busy, and the choice is not kept on disk."""
_STREAMED = 1 << 25
"""Bytes of weights that are read in turn, so that they come from memory as in a pass."""
Ways = tuple[bool, bool, bool, bool]
"""For each class whether the packed weights are faster."""
_known: dict[tuple[object, ...], Ways] = {}


class Linear(nn.Module):
    """`x Wᵀ + b` with one `nn.Linear`, or with several that read the same rows, their outputs
    concatenated.

    Attributes:
        packed: a copy of the weights in oneDNN's layout; None if it is never faster.
        ways: for each class of rows whether the copy is used.
        most: the most rows for which it is; None: any number. Where passes are bit for bit, a prompt
            runs as in the library.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.parts = parts
        self.packed = None
        self.ways: Ways = (False, False, False, False)
        self.most: int | None = None
        self._eight = all(isinstance(part, EightBit) for part in parts)
        if self._eight:
            return
        weights = torch.cat([part.weight for part in parts])
        if not can_pack(weights):
            return
        self.ways = _ways(weights)
        if any(self.ways):
            self._bias = _bias(parts)
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weights)

    def __call__(self, rows: Tensor) -> Tensor:  # without hooks, which take time
        count = len(rows)
        # on a GPU, where the copy is slower, and above `most`: the library's product
        if (
            self.packed is None
            or not self.ways[bisect_left(BORDERS, count)]
            or (self.most is not None and count > self.most)
        ):
            return self.plain(rows)
        return self.by_copy(rows)

    def plain(self, rows: Tensor) -> Tensor:
        """The library's product, or that of int8 weights."""
        if self._eight:
            outputs = [part.forward(rows) for part in self.parts]
        else:
            outputs = [F.linear(rows, part.weight, part.bias) for part in self.parts]
        if len(outputs) == 1:
            whole: Tensor = outputs[0]
            return whole
        return torch.cat(outputs, dim=-1)

    def by_copy(self, rows: Tensor) -> Tensor:
        """The product with the packed weights."""
        return _by_copy(rows, self.packed, self._bias)


def can_pack(weights: Tensor) -> bool:
    """Whether oneDNN has a layout of its own for these weights on this processor."""
    if not PACKING or weights.device.type != "cpu":
        return False
    if weights.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weights.dtype == torch.float32


def _by_copy(rows: Tensor, packed: Any, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, packed, bias, "none", [], "")
    return product


def _bias(parts: Any) -> Tensor | None:
    if all(part.bias is None for part in parts):
        return None
    biases = []
    for part in parts:
        bias = part.bias
        if bias is None:
            bias = part.weight.new_zeros(part.out_features)
        biases.append(bias)
    return torch.cat(biases)


def _ways(weights: Tensor) -> Ways:
    """For each class of rows whether packed weights of this shape are faster: from memory, disk, or
    a new measurement."""
    conditions = (tuple(weights.shape), str(weights.dtype), torch.get_num_threads())
    if conditions not in _known:
        machine = (torch.__version__, platform.node(), platform.processor())
        path = measured_file("products", conditions + machine)
        _known[conditions] = _loaded(path) or _timed(weights, path)
    return _known[conditions]


def _timed(weights: Tensor, path: Path) -> Ways:
    """The faster way of each class, written to `path` if the machine was quiet."""
    count = max(1, min(16, _STREAMED // max(1, weights.nbytes)))
    plain = [weights.clone() for _ in range(count)]
    packed = [torch.ops.mkldnn._reorder_linear_weight(weights) for _ in range(count)]
    faster: list[bool] = []
    quiet = True
    for rows in _TIMED:
        inputs = weights.new_ones(rows, weights.shape[1])
        times: dict[str, list[float]] = {"plain": [], "packed": []}
        for _ in range(_ROUNDS):  # beside each other, so that a slow moment affects both
            began = perf_counter()
            for weight in plain:
                F.linear(inputs, weight)
            between = perf_counter()
            for weight in packed:
                _by_copy(inputs, weight, None)
            times["plain"].append(between - began)
            times["packed"].append(perf_counter() - between)
        faster.append(min(times["packed"]) < min(times["plain"]))
        quiet = quiet and all(median(taken) < _QUIET * min(taken) for taken in times.values())
    ways: Ways = (faster[0], faster[1], faster[2], faster[3])
    if quiet:
        write_measured(path, ways)
    return ways


def _loaded(path: Path) -> Ways | None:
    ways = read_measured(path)
    if not isinstance(ways, list) or [type(way) for way in ways] != [bool] * len(CLASSES):
        return None
    return ways[0], ways[1], ways[2], ways[3]
