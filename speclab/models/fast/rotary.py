"""Rotary position embeddings: tables made once by the module's own rule, and their use in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

FIRST_POSITIONS = 1024


class Rotary:
    """Cosines and sines of every position that was needed so far.

    Args:
        module: the model's rotary module, called as `(x, positions)`; its angles may not depend on the length.
        like: a tensor of the dtype and device that they are wanted in.
    """

    def __init__(self, module: nn.Module, like: Tensor) -> None:
        self._module: Any = module
        self._like = like
        self._cos = self._sin = like.new_empty(0)

    def reserve(self, positions: int) -> None:
        """Makes the tables reach that many positions."""
        if positions > len(self._cos):
            wanted = torch.arange(max(positions, 2 * len(self._cos), FIRST_POSITIONS), device=self._like.device)
            cos, sin = self._module(self._like, wanted[None])
            self._frequencies = self._module.inv_freq.clone()
            half = cos.shape[-1] // 2  # the second half repeats the first
            self._cos, self._sin = cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()

    def holds(self) -> bool:
        """Whether the tables, if there are any yet, are still what the module's frequencies give."""
        return not len(self._cos) or torch.equal(self._frequencies, self._module.inv_freq)

    @property
    def tables(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines by position; who keeps them may read them after others took their place."""
        return self._cos, self._sin

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each `[m, half]`, of `positions` `[m]`, which were reserved."""
        return self._cos.index_select(0, positions), self._sin.index_select(0, positions)


def turn(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Turns the first `2 * half` features of every head in place; what lies beyond stays.

    Args:
        heads: `[m, …, dim]`.
        cos, sin: `[m, half]`.
    """
    half = cos.shape[-1]
    shape = (len(cos), *(1,) * (heads.ndim - 2), half)
    cos, sin = cos.view(shape), sin.view(shape)
    low, high = heads[..., :half], heads[..., half : 2 * half]
    from_low, from_high = low * sin, high * sin
    low.mul_(cos).sub_(from_high)
    high.mul_(cos).add_(from_low)
