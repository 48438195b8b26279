"""The target's choice: argmax, or a draw from its transformed distribution by random numbers tied to the position.

The target's own draw for a position depends on the seed and that position alone, so that going back, forks and other
strategies meet the same: every strategy that chooses its candidates beforehand gives the very text that plain sampling
gives. Where candidates are drawn, drawing and acceptance have random numbers of their own (`PositionalRng`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from speclab.engine.acceptance import Choice, Probabilities
from speclab.models.answer import Answer
from speclab.models.transfers import to_device
from speclab.settings import SessionSettings


def uniform(seed: int, position: int) -> float:
    """The random number in [0, 1) for the token at `position` of the text (prompt included)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())


class RngPurpose(IntEnum):
    """What random numbers are for; those of two purposes have nothing in common, nor have they with `uniform`."""

    ACCEPTANCE = 1
    DRAFTING = 2


class PositionalRng:
    """An `acceptance.Rng`: as many numbers as wanted for one seed, one position of the text and one purpose.

    For acceptance it is the position that is decided. For drafting it is the position of the tree's root: every
    position is a root at most once, so no iteration sees the numbers of another, whatever the shapes of their trees.
    """

    def __init__(self, seed: int, position: int, purpose: RngPurpose) -> None:
        # Philox counts up the first word of its counter: the position lies in the second, so no two streams overlap.
        self._random = np.random.Generator(np.random.Philox(key=seed + (purpose << 64), counter=position << 64))

    def accepts(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def draws(self, probs: Probabilities) -> int:
        """A token of `probs`, `[V]` float64."""
        return inverse_cdf(torch.from_numpy(probs)[None], [self._random.random()])[0]


def inverse_cdf(probs: Tensor, uniforms: Sequence[float]) -> list[int]:
    """For each row of `probs` `[n, V]` the token whose interval of the cumulative distribution holds its number.

    One transfer from the device. A token of probability 0 is never drawn, whatever the rounding of the sums.
    """
    cumulative = probs.double().cumsum(-1)  # [n, V]
    total = cumulative[:, -1:].contiguous()  # [n, 1], 1 but for rounding
    wanted = total * to_device(np.array(uniforms), total.device)[:, None]
    tokens = torch.searchsorted(cumulative, wanted, right=True)  # the first token whose sum exceeds the number
    last = torch.searchsorted(cumulative, total)  # the last token that adds to the sum
    drawn: list[int] = torch.minimum(tokens, last)[:, 0].tolist()
    return drawn


def transform(logits: Tensor, settings: SessionSettings) -> Tensor:
    """Temperature, then top-k, then top-p, then renormalise.

    Args:
        logits: `[n, V]`, any float dtype.

    Returns:
        `[n, V]` float64 probabilities. At temperature 0 the untransformed softmax: the choice is the argmax.
    """
    scores = (logits.cpu() if logits.device.type == "mps" else logits).double()  # an Apple GPU has no float64
    if settings.temperature == 0:
        return scores.softmax(-1)
    # The largest score goes to 0 first, so that no temperature, however small, overflows.
    scores = (scores - scores.amax(-1, keepdim=True)) / settings.temperature
    if settings.top_k is not None and settings.top_k < scores.shape[-1]:
        floor = scores.topk(settings.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < floor, -torch.inf)
    probs = scores.softmax(-1)
    if settings.top_p is not None and settings.top_p < 1:
        probs = _nucleus(probs, settings.top_p)
    return probs


def probabilities(logits: Tensor, settings: SessionSettings) -> Probabilities:
    """`transform` of one row `[V]`, as a NumPy array."""
    probs: Probabilities = transform(logits, settings).cpu().numpy()
    return probs


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))
    return kept / kept.sum(-1, keepdim=True)


def chooser(answer: Answer, positions: Sequence[int], settings: SessionSettings) -> Choice:
    """What the target chooses after each row, worked out when asked.

    Args:
        answer: `n` rows.
        positions: for each row, the position in the text of the token that follows it.
    """
    if hasattr(answer, "choose"):
        choose_row: Choice = answer.choose
        return choose_row
    rows = answer.rows
    if settings.temperature == 0 or rows is None:
        best: list[int] = answer.choice.tolist()
        return best.__getitem__
    chosen: dict[int, int] = {}

    def choose(row: int) -> int:
        if row not in chosen:
            # On a device all rows at once, since each alone would wait for it; on the CPU only what is asked for.
            drawn = range(row, row + 1) if rows.device.type == "cpu" else range(len(positions))
            probs = transform(rows[drawn.start : drawn.stop], settings)
            tokens = inverse_cdf(probs, [uniform(settings.seed, positions[each]) for each in drawn])
            chosen.update(zip(drawn, tokens, strict=True))
        return chosen[row]

    return choose
