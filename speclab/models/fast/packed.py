"""Packed weights: on a CPU in float32, a copy of small models' weights in the layout that oneDNN multiplies by.

The library's float32 product repacks its weights at every call, which for the few rows of a draft tree takes as long as
the product itself. The operators are torch's own, but private ones, so they have to earn their place. Measured on two
threads of an otherwise idle CPU: on the mini family's target (11 M parameters) eight rows cost 1.05 to 1.2 one-row
passes instead of 1.5; on a model of 135 M parameters one row is slower with packed weights and sixteen take as long.
So the rule is one of size alone: models of up to `PACKED_BYTES` are packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PACKED_BYTES = 1 << 27
"""Larger models (128 MiB of weights, 33 M parameters) are not packed."""


class Linear:
    """`x Wᵀ + b` on the weights of one module, or of several that read the same rows: their outputs lie side by side.

    Args:
        modules: `nn.Linear` layers of one dtype and device.
        pack: multiply by a packed copy of the weights; `repack` makes it, at first and after a change.
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
        """One number for each 64 weights, their product with a fixed vector.

        A write that no version counter sees changes it, unless the product rounds the change away, as passes then do.
        """
        weights = [module.weight.detach() for module in self.modules]
        rows = [weight.reshape(-1, 64 if weight.numel() % 64 == 0 else weight.shape[-1]) for weight in weights]
        return [torch.mv(part, _checksum_vector(part.shape[1])) for part in rows]


@cache
def _checksum_vector(length: int) -> Tensor:
    """Numbers from 1 to 2 of either sign: none so small that it would hide a change."""
    draw = torch.Generator().manual_seed(0)
    return (1 + torch.rand(length, generator=draw)) * torch.randint(0, 2, (length,), generator=draw).mul(2).sub(1)


class PackedWeights:
    """Keeps the packed copies of many layers equal to their weights.

    Args:
        linears: some may not be packed.
    """

    def __init__(self, linears: Sequence[Linear]) -> None:
        self._linears = [linear for linear in linears if linear.pack]
        held = [module._parameters for linear in self._linears for module in linear.modules]
        self._places = [(weights, name) for weights in held for name, weight in weights.items() if weight is not None]
        self._seen: list[tuple[int, int]] = []

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


def worth_packing(model: nn.Module) -> bool:
    """Whether a model's weights are packed: float32 on a CPU with oneDNN, and no more than `PACKED_BYTES`."""
    weights = list(model.parameters())
    if sum(weight.nbytes for weight in weights) > PACKED_BYTES or any(map(torch.is_inference, weights)):
        return False
    kinds = {(weight.device.type, weight.dtype) for weight in weights}
    return kinds == {("cpu", torch.float32)} and _works()


@cache
def _product() -> Callable[..., Tensor]:
    product: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.default
    return product


@cache
def _works() -> bool:
    """Private operators may change in any version: tried once, and not used where they fail."""
    module, rows = nn.Linear(16, 16), torch.linspace(-1, 1, 32).view(2, 16)
    try:
        with torch.inference_mode():
            linear = Linear(module, pack=True)
            linear.repack()
            return torch.allclose(linear(rows), module(rows), atol=1e-5)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
