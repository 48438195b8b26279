"""The target's choice: argmax, or a draw from its transformed law by noise that is tied to the position (`noise`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from speclab.engine.acceptance import Choice, Probabilities, uniform
from speclab.models.transfers import Logits, to_device
from speclab.settings import SessionSettings


def transform(logits: Tensor, settings: SessionSettings) -> Tensor:
    """Temperature, then top-k, then top-p, then renormalise.

    Args:
        logits: `[n, vocabulary]`, any float dtype.

    Returns:
        `[n, vocabulary]` float64 probabilities. At temperature 0 the untransformed law: the choice is the argmax.
    """
    scores = (logits.cpu() if logits.device.type == "mps" else logits).double()  # an Apple GPU has no float64
    if settings.temperature == 0:
        return scores.softmax(-1)
    # The largest score goes to 0 first, so that no temperature, however small, overflows.
    scores = (scores - scores.amax(-1, keepdim=True)) / settings.temperature
    if settings.top_k is not None and settings.top_k < scores.shape[-1]:
        floor = scores.topk(settings.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < floor, -torch.inf)
    law = scores.softmax(-1)
    if settings.top_p is not None and settings.top_p < 1:
        law = _nucleus(law, settings.top_p)
    return law


def probabilities(logits: Tensor, settings: SessionSettings) -> Probabilities:
    """`transform` of one row `[V]`, as a NumPy array."""
    law: Probabilities = transform(logits, settings).cpu().numpy()
    return law


def _nucleus(law: Tensor, top_p: float) -> Tensor:
    ordered, order = law.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(law).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))
    return kept / kept.sum(-1, keepdim=True)


def draw(law: Tensor, noise: float) -> int:
    """The token whose share of the cumulative `law` (`[vocabulary]` float64) holds `noise`."""
    cumulative = law.cumsum(-1)
    token = int(torch.searchsorted(cumulative, cumulative[-1] * noise, right=True))
    return min(token, int(law.nonzero()[-1]))


def draws(laws: Tensor, noise: Sequence[float]) -> list[int]:
    """`draw` of every row of `[n, vocabulary]`, in one transfer."""
    cumulative = laws.double().cumsum(-1)
    total = cumulative[:, -1:].contiguous()
    wanted = total * to_device(np.array(noise), total.device)[:, None]
    tokens = torch.searchsorted(cumulative, wanted, right=True)
    drawn: list[int] = torch.minimum(tokens, torch.searchsorted(cumulative, total))[:, 0].tolist()
    return drawn


def chooser(logits: Logits, positions: Sequence[int], settings: SessionSettings) -> Choice:
    """What the target chooses after each row, worked out when asked.

    Args:
        logits: `n` rows.
        positions: for each row, the place in the text of the token that follows it.
    """
    if settings.temperature == 0:
        return logits.choices.__getitem__
    drawn: dict[int, int] = {}

    def choose(row: int) -> int:
        if row not in drawn and logits.rows.device.type != "cpu":  # all at once: each alone would wait for the device
            noise = [uniform(settings.seed, position) for position in positions]
            drawn.update(enumerate(draws(transform(logits.rows, settings), noise)))
        if row not in drawn:
            drawn[row] = draw(transform(logits.rows[row], settings), uniform(settings.seed, positions[row]))
        return drawn[row]

    return choose
