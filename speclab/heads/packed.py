"""Products of a draft head by packed weights."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from speclab.models.lean import Linear


def with_packed(module: nn.Module) -> nn.Module:
    """A copy of a module that multiplies by packed weights, and shares all other tensors and its
    `lm_head`."""
    copies: dict[int, Any] = {
        id(tensor): tensor for tensor in module.state_dict(keep_vars=True).values()
    }
    for name, part in module.named_modules():
        if type(part) is nn.Linear and name != "lm_head":
            copies[id(part)] = Linear(part)
    return copy.deepcopy(module, copies)
