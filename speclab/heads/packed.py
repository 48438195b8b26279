"""Products of a draft head by packed weights."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from speclab.models.lean import Linear


class _Packed(nn.Module):
    """A `Linear` in a module."""

    def __init__(self, module: nn.Linear) -> None:
        super().__init__()
        self.product = Linear(module)

    def forward(self, rows: Tensor) -> Tensor:
        return self.product(rows)


def with_packed(module: nn.Module) -> nn.Module:
    """A copy of a module that multiplies by packed weights, and shares all other tensors and its
    `lm_head`."""
    copies: dict[int, Any] = {
        id(tensor): tensor for tensor in module.state_dict(keep_vars=True).values()
    }
    for name, part in module.named_modules():
        if type(part) is nn.Linear and name != "lm_head":
            copies[id(part)] = _Packed(part)
    return copy.deepcopy(module, copies)
