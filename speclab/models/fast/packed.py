"""Packed weights: on a CPU, a copy of the weights in the layout that oneDNN multiplies by.

The library's product repacks its weights at every call, which for the few rows of a draft tree can take longer than the
product itself; packed once, it may also take an activation, a sum or a product in the same pass over memory. Whether
that pays depends on the processor, so it is measured on a model's own layers when it is loaded. The operators are
torch's own, but private ones: tried once, and not used where they fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speclab.models import memory

PAYS: bool | None = None
"""Whether packing pays here; None: measured. Set it where the choice may not depend on the clock."""
SAMPLE_BYTES = 1 << 26
"""Of weights to measure on: more than most caches hold, as a pass reads them."""
ROWS = (1, 8)
"""Rows to measure with, plain decoding's and a small tree's; and how often, each in turn."""
ROUNDS = 3
_FUSED = {
    "SiLUActivation": ("swish", ""),
    "SiLU": ("swish", ""),
    "GELUActivation": ("gelu", "none"),
    "NewGELUActivation": ("gelu", "tanh"),
    "GELUTanh": ("gelu", "tanh"),
    "ReLU": ("relu", ""),
}
"""Activations that oneDNN applies with a product, by the library's class."""


class Linear:
    """`act(x Wᵀ + b)` on the weights of one module, or of several that read the same rows, outputs side by side.

    Args:
        modules: `nn.Linear` layers of one dtype and device.
        pack: multiply by a packed copy of the weights; `repack` makes it, at first and after a change.
    """

    def __init__(self, *modules: nn.Linear, act: Any = None, pack: bool = False) -> None:
        self.modules, self.act, self.pack = modules, act, pack
        self._fused = _FUSED.get(type(act).__name__) if act is not None else ("none", "")

    @property
    def fused(self) -> bool:
        """Whether oneDNN does all of it, the activation too."""
        return self.pack and self._fused is not None

    def __call__(self, rows: Tensor, *, plus: Tensor | None = None, times: Tensor | None = None) -> Tensor:
        """`[m, in]` to `[m, out]`, plus or times another `[m, out]`."""
        if not self.pack:
            return self._by_library(rows, plus, times)
        plain, with_other = _products()
        other, how = (plus, "add") if times is None else (times, "mul")
        if other is not None:
            return with_other(rows, other, self._packed, self._bias, how)
        if self._fused is None:
            return torch.as_tensor(self.act(plain(rows, self._packed, self._bias, "none", [], "")))
        name, algorithm = self._fused
        return plain(rows, self._packed, self._bias, name, [], algorithm)

    def _by_library(self, rows: Tensor, plus: Tensor | None, times: Tensor | None) -> Tensor:
        outputs = [F.linear(rows, module.weight, module.bias) for module in self.modules]
        product = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        product = product if self.act is None else self.act(product)
        if plus is not None:
            return plus + product
        return product if times is None else product * times

    def repack(self) -> None:
        """Copies the weights as they are now."""
        weights = torch.cat([module.weight.detach() for module in self.modules])
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weights)
        self._bias, self._checksums = self._biases(), self._current_checksums()

    def outdated(self) -> bool:
        """Whether the weights are other than those packed; reads all of them once."""
        bias, now = self._bias, self._biases()
        same = bias is now if bias is None or now is None else torch.equal(bias, now)
        return not (same and all(map(torch.equal, self._checksums, self._current_checksums())))

    def _biases(self) -> Tensor | None:
        given: list[tuple[Tensor | None, int]] = [(module.bias, module.out_features) for module in self.modules]
        if all(bias is None for bias, _ in given):
            return None
        zeros = self.modules[0].weight.new_zeros
        return torch.cat([zeros(size) if bias is None else bias.detach() for bias, size in given])

    def _current_checksums(self) -> list[Tensor]:
        return [_checksums(module.weight.detach()) for module in self.modules]


def _checksums(weight: Tensor) -> Tensor:
    """The sums of each 16 words of a weight's bits, as whole numbers, which hide no change however small.

    A write that no version counter sees changes them, unless changes within 16 words cancel.
    """
    word = next(it for it in (torch.int64, torch.int32, torch.int16) if weight.nbytes % it.itemsize == 0)
    words = weight.reshape(-1).view(word)
    return words.view(-1, 16 if len(words) % 16 == 0 else len(words)).sum(1)


class PackedWeights:
    """Keeps the packed copies of many layers equal to their weights.

    Args:
        pack: whether they multiply by packed copies from now on; else there is nothing to keep.
    """

    def __init__(self, linears: Sequence[Linear], *, pack: bool) -> None:
        for linear in linears:
            linear.pack = pack
        self._linears = list(linears) if pack else []
        held = [module._parameters for linear in self._linears for module in linear.modules]
        self._places = [(weights, name) for weights in held for name, weight in weights.items() if weight is not None]
        self._seen: list[tuple[int, int]] = []

    @property
    def fused(self) -> bool:
        """Whether oneDNN does all that the layers do, their activations too."""
        return bool(self._linears) and all(linear.fused for linear in self._linears)

    def refresh(self) -> None:
        """Repacks where a weight was written or exchanged since; called at every pass, so one look for all."""
        now = [(id(weight), weight._version) for held, name in self._places if (weight := held.get(name)) is not None]
        if now != self._seen:
            for linear in self._linears:
                linear.repack()
            # Held, so that no other weight can come to have its id.
            self._held, self._seen = [held.get(name) for held, name in self._places], now

    def compare(self) -> bool:
        """Whether the copies hold what the weights do, value by value; those that did not are repacked."""
        if not self._seen:
            return True  # nothing is packed yet
        outdated = [linear for linear in self._linears if linear.outdated()]
        for linear in outdated:
            linear.repack()
        return not outdated


def worth_packing(linears: Sequence[Linear]) -> bool:
    """Whether products with packed weights are the faster ones here, and there is memory for a second copy of them."""
    if not can_pack(linears):
        return False
    return _measured(linears) if PAYS is None else PAYS


def can_pack(linears: Sequence[Linear]) -> bool:
    """Whether weights can be packed: on a CPU, in a dtype that oneDNN takes there, with memory to spare."""
    weights = [module.weight for linear in linears for module in linear.modules]
    if {weight.device.type for weight in weights} != {"cpu"} or any(map(torch.is_inference, weights)):
        return False
    free, takes = memory.free(torch.device("cpu")), memory.needed(sum(weight.numel() for weight in weights), 1)
    return (free is None or free > takes * weights[0].itemsize) and _works(weights[0].dtype)


_FOUND: dict[tuple[Any, ...], bool] = {}
"""What was measured in this process, by shape, dtype and threads."""


def _measured(linears: Sequence[Linear]) -> bool:
    """Whether packed products take less time than the library's, on some of the layers with the most weights.

    The minimum of a few rounds, taken in turn, so that a busy moment of the machine falls on both; as much counts what
    is won with one row as what is won with a few.
    """
    alike: dict[tuple[int, int], list[Linear]] = {}
    for linear in linears:
        size = sum(module.weight.nbytes for module in linear.modules)
        alike.setdefault((linear.modules[0].in_features, size), []).append(linear)
    largest = max(alike, key=lambda shape: (shape[1] <= SAMPLE_BYTES, shape[1] * len(alike[shape])))
    chosen = alike[largest][: max(1, SAMPLE_BYTES // largest[1])]
    weight = chosen[0].modules[0].weight
    key = (largest, len(chosen), weight.dtype, torch.get_num_threads())
    if key not in _FOUND:
        packed = [Linear(*linear.modules, act=linear.act, pack=True) for linear in chosen]
        plain = [Linear(*linear.modules, act=linear.act) for linear in chosen]
        with torch.inference_mode():
            for linear in packed:
                linear.repack()
            ratios = [_ratio(packed, plain, torch.ones((count, largest[0]), dtype=weight.dtype)) for count in ROWS]
        _FOUND[key] = ratios[0] * ratios[1] < 1.0
    return _FOUND[key]


def _ratio(some: Sequence[Linear], others: Sequence[Linear], rows: Tensor) -> float:
    """The time of some products by that of others."""
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for place, linears in enumerate((some, others)):
            start = perf_counter()
            for linear in linears:
                linear(rows)
            least[place] = min(least[place], perf_counter() - start)
    return least[0] / least[1]


@cache
def _products() -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The product alone, with an activation, and the product with a sum or a product after it."""
    operators: Any = torch.ops.mkldnn._linear_pointwise
    return operators.default, operators.binary


@cache
def _works(dtype: torch.dtype) -> bool:
    """Private operators may change in any version: tried once, and not used where they fail."""
    module, rows = nn.Linear(16, 16, dtype=dtype), torch.linspace(-1, 1, 32, dtype=dtype).view(2, 16)
    try:
        with torch.inference_mode():
            linear = Linear(module, act=nn.SiLU(), pack=True)
            linear.repack()
            want, bound = module(rows), 1e-5 if dtype == torch.float32 else 0.05
            found = (linear(rows) - F.silu(want)).abs().max() + (linear(rows, plus=rows) - want - rows).abs().max()
            return float(found) < bound
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
