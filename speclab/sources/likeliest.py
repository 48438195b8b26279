"""The likeliest next tokens of many rows at once."""

from __future__ import annotations

import torch
from torch import Tensor

STRIPES = 16
"""A wide row is searched as so many stripes, first by the largest of each place in them; measured: 16 of 8 to 64."""
FEW = 1 << 16
"""Fewer numbers than this are searched as they stand; measured on a CPU."""


@torch.inference_mode()
def likeliest(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Ids and probabilities of the `width` likeliest tokens of each row, best first, on the device of the logits.

    Args:
        logits: `[n, V]`, any float dtype.

    Returns:
        `[n, min(width, V)]` int64 ids and float32 probabilities.
    """
    law = logits.float().softmax(-1)  # on CPU twice as fast as logsumexp
    probabilities, ids = largest(law, min(width, law.shape[-1]))
    return ids, probabilities


def largest(rows: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """What `rows.topk(width)` gives, values and places `[n, width]`, three to eight times as fast where rows are wide.

    The `width` largest lie in the `width` columns of stripes that have the largest maxima, so the rest is not looked
    at. Of equal values any may come first, as in `topk`.
    """
    count, columns = rows.shape[-1], rows.shape[-1] // STRIPES
    if columns <= 2 * width or rows.numel() < FEW:
        found = rows.topk(width)
        return found.values, found.indices
    whole = columns * STRIPES
    striped = rows[:, :whole].unflatten(1, (STRIPES, columns))
    best = striped.amax(1).topk(width, sorted=False).indices
    places = (best[:, None] + torch.arange(0, whole, columns, device=rows.device)[:, None]).flatten(1)
    if whole < count:
        rest = torch.arange(whole, count, device=rows.device)
        places = torch.cat([places, rest.expand(len(rows), -1)], 1)
    found = rows.gather(1, places).topk(width)
    return found.values, places.gather(1, found.indices)
