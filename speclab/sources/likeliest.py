"""The likeliest next tokens of many rows at once."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.inference_mode()
def likeliest(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Ids and probabilities of the `width` likeliest tokens of each row, best first.

    Args:
        logits: `[n, V]`, any float dtype.

    Returns:
        `[n, min(width, V)]` int64 ids and float32 probabilities.
    """
    law = logits.float().softmax(-1)  # on CPU twice as fast as logsumexp
    probabilities, ids = law.topk(min(width, law.shape[-1]))
    return ids, probabilities
