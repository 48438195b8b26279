"""Logits must be numbers: a pass that overflowed, or damaged weights, must not choose a token."""

from __future__ import annotations

import torch
from torch import Tensor

from speclab.errors import LogitsError


def numbers(logits: Tensor, name: str) -> Tensor:
    """The logits `[..., V]` themselves. One maximum a row finds them out: NaN wins it, and it may not be infinite.

    Raises:
        LogitsError: a row has a NaN, an infinity, or nothing but minus infinity.
    """
    if not torch.isfinite(logits.amax(-1)).all():
        raise LogitsError(
            f"{name} gave logits that are no numbers (NaN or infinity) in {str(logits.dtype).removeprefix('torch.')}: "
            f"{way_out(logits.dtype)}"
        )
    return logits


def way_out(dtype: torch.dtype) -> str:
    """What to do about a model whose logits are no numbers in this dtype."""
    if dtype.itemsize < 4:
        return "load it with dtype='float32', in which larger numbers fit"
    return "its weights are damaged, or hold such numbers themselves: load them again, or choose another model"
