"""Linear layers on a module's own weights; on a CPU in float32, on a copy laid out for few rows.

The library's float32 product lays its weights out anew at every call, which for the few rows of a draft tree takes as
long as the product itself. oneDNN keeps a copy in its own layout: on the mini family's target, eight rows then take as
long as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speclab.models import memory

PACKED_BYTES = 1 << 29
"""Models with more weights than this (512 MiB, ours) are not laid out anew: it would take as much memory again."""


class Linear:
    """`x Wᵀ + b` on the weights of one module, or of several that read the same rows: their outputs lie side by side.

    Args:
        modules: `nn.Linear` layers of one dtype and device.
        pack: multiply with a copy of the weights, laid out for few rows; `lay_out` makes it, and makes it anew.
    """

    def __init__(self, *modules: nn.Linear, pack: bool) -> None:
        self.modules, self.pack = modules, pack

    def __call__(self, rows: Tensor) -> Tensor:
        """`[m, in]` to `[m, out]`."""
        if not self.pack:
            outputs = [F.linear(rows, module.weight, module.bias) for module in self.modules]
            return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        product: Tensor = _product()(rows, self._packed, self._bias, "none", [], "")
        return product

    def lay_out(self) -> None:
        """Copies the weights as they are now."""
        weights = torch.cat([module.weight.detach() for module in self.modules])
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weights)
        self._bias, self._prints = self._biases(), self._fingerprints()

    def outdated(self) -> bool:
        """Whether the weights are other than those laid out; reads all of them once."""
        bias, now = self._bias, self._biases()
        same = bias is now if bias is None or now is None else torch.equal(bias, now)
        return not (same and all(map(torch.equal, self._prints, self._fingerprints())))

    def _biases(self) -> Tensor | None:
        given: list[tuple[Tensor | None, int]] = [(module.bias, module.out_features) for module in self.modules]
        if all(bias is None for bias, _ in given):
            return None
        zeros = self.modules[0].weight.new_zeros
        return torch.cat([zeros(size) if bias is None else bias.detach() for bias, size in given])

    def _fingerprints(self) -> list[Tensor]:
        return [fingerprint(module.weight.detach()) for module in self.modules]


def fingerprint(weight: Tensor) -> Tensor:
    """What a weight is known by: one number for each 64 of its own, their product with a fixed vector.

    A write that no version counter sees changes it, unless the product rounds the change away, as passes then do too.
    """
    rows = weight.reshape(-1, 64 if weight.numel() % 64 == 0 else weight.shape[-1])
    return torch.mv(rows, _vector(rows.shape[1]))


@cache
def _vector(length: int) -> Tensor:
    """Numbers from 1 to 2 of either sign: none so small that it would hide a change."""
    draw = torch.Generator().manual_seed(0)
    return (1 + torch.rand(length, generator=draw)) * torch.randint(0, 2, (length,), generator=draw).mul(2).sub(1)


class Copies:
    """Keeps the packed copies of many layers true to their weights.

    Args:
        linears: some may not be packed.
    """

    def __init__(self, linears: Sequence[Linear]) -> None:
        self._linears = [linear for linear in linears if linear.pack]
        held = [module._parameters for linear in self._linears for module in linear.modules]
        self._places = [(weights, name) for weights in held for name, weight in weights.items() if weight is not None]
        self._seen: list[tuple[int, int]] = []

    def refresh(self) -> None:
        """Lays the weights out where one was written or exchanged since; called at every pass, so one look for all."""
        weights = [held.get(name) for held, name in self._places]
        now = [(id(weight), weight._version) for weight in weights if weight is not None]
        if now != self._seen:
            for linear in self._linears:
                linear.lay_out()
            self._held, self._seen = weights, now  # held, so that no other weight can come to have its id

    def compare(self) -> bool:
        """Whether the copies hold what the weights do, value by value; those that did not are laid out anew."""
        if not self._seen:
            return True  # nothing is laid out yet
        outdated = [linear for linear in self._linears if linear.outdated()]
        for linear in outdated:
            linear.lay_out()
        return not outdated


def packable(model: nn.Module) -> bool:
    """Whether to keep a copy of its weights: float32 on a CPU with oneDNN, no more than `PACKED_BYTES`, and room."""
    weights = list(model.parameters())
    size, room = sum(weight.nbytes for weight in weights), memory.free(torch.device("cpu"))
    if size > PACKED_BYTES or (room is not None and 2 * size > room) or any(map(torch.is_inference, weights)):
        return False
    kinds = {(weight.device.type, weight.dtype) for weight in weights}
    return kinds == {("cpu", torch.float32)} and _works()


@cache
def _product() -> Callable[..., Tensor]:
    product: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
    return product


@cache
def _works() -> bool:
    """These operators are torch's own but not promised to anyone: tried once, and done without where they fail."""
    module, rows = nn.Linear(16, 16), torch.linspace(-1, 1, 32).view(2, 16)
    try:
        with torch.inference_mode():
            linear = Linear(module, pack=True)
            linear.lay_out()
            return torch.allclose(linear(rows), module(rows), atol=1e-5)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
