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
        dtype = str(logits.dtype).removeprefix("torch.")
        raise LogitsError(
            f"{name} gave logits that are no numbers (NaN or infinity) in {dtype}: load it with dtype='float32', or "
            "where it is float32 already, its weights are damaged: download them again"
        )
    return logits
