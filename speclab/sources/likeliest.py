"""The likeliest next tokens of many rows at once."""

from __future__ import annotations

from math import isqrt

import torch
from torch import Tensor

FEWEST_FOLDS = 4
"""Below so many folds of a vocabulary one search is faster."""


@torch.inference_mode()
def likeliest(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Ids and probabilities of the `width` likeliest tokens of each row, best first.

    A vocabulary is searched in two steps, on CPU in a third of the time of one `topk`: the row is folded, and its
    largest values lie in those columns of the folded row whose maxima are largest.

    Args:
        logits: `[n, V]`, any float dtype.

    Returns:
        `[n, min(width, V)]` int64 ids and float32 probabilities.
    """
    law = logits.float().softmax(-1)  # on CPU twice as fast as logsumexp
    vocabulary = law.shape[-1]
    width = min(width, vocabulary)
    folds = 1 << isqrt(vocabulary // width).bit_length() - 1
    if folds < FEWEST_FOLDS:
        probabilities, ids = law.topk(width)
        return ids, probabilities
    whole = vocabulary - vocabulary % folds
    folded = law[:, :whole].unflatten(-1, (folds, -1))
    columns = folded.amax(1).topk(width, sorted=False).indices
    held = folded.gather(2, columns[:, None].expand(-1, folds, -1)).flatten(1)
    probabilities, places = torch.cat([held, law[:, whole:]], 1).topk(width)
    inside = places // width * folded.shape[2] + columns.gather(1, places % width)
    return torch.where(places < held.shape[1], inside, places - held.shape[1] + whole), probabilities
