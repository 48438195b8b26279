"""The target's choice: argmax, or a draw from its transformed law by noise that is tied to the position.

The noise for a place in the text depends on the seed and that place alone. So a draw is the same whichever strategy
asks for it, however often, and after going back: every strategy that chooses its candidates beforehand gives the very
text that plain sampling gives. Where candidates are drawn, drawing and acceptance have streams of their own (`Stream`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from speclab.acceptance import Choice, Probabilities
from speclab.settings import SessionSettings


def uniform(seed: int, position: int) -> float:
    """The noise in [0, 1) for the token at `position` of the text (prompt included)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())


class Use(IntEnum):
    """What a stream is for; streams of two uses have nothing in common, nor have they with `uniform`."""

    ACCEPTANCE = 1
    DRAFTING = 2


class Stream:
    """An `acceptance.Chance`: as many numbers as wanted for one seed, one place in the text and one use.

    An acceptance stream belongs to the place it decides. A drafting stream belongs to the place of the tree's root:
    every place is a root at most once, so no iteration sees the noise of another, whatever the shapes of their trees.
    """

    def __init__(self, seed: int, place: int, use: Use) -> None:
        # Philox counts up its first word as it goes: the place lies in the second, so no stream runs into the next.
        self._random = np.random.Generator(np.random.Philox(key=seed + (use << 64), counter=place << 64))

    def accepts(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def draws(self, law: Probabilities) -> int:
        """A token of `law`, `[V]` float64."""
        return draw(torch.from_numpy(law), self._random.random())


def transform(logits: Tensor, settings: SessionSettings) -> Tensor:
    """Temperature, then top-k, then top-p, then renormalise.

    Args:
        logits: `[n, vocabulary]`, any float dtype.

    Returns:
        `[n, vocabulary]` float64 probabilities. At temperature 0 the untransformed law: the choice is the argmax.
    """
    scores = logits.double()
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


def chooser(logits: Tensor, positions: Sequence[int], settings: SessionSettings) -> Choice:
    """What the target chooses after each row, computed when asked.

    Args:
        logits: `[n, vocabulary]`.
        positions: for each row, the place in the text of the token that follows it.
    """
    if settings.temperature == 0:
        return logits.argmax(-1).tolist().__getitem__
    drawn: dict[int, int] = {}

    def choose(row: int) -> int:
        if row not in drawn:
            drawn[row] = draw(transform(logits[row], settings), uniform(settings.seed, positions[row]))
        return drawn[row]

    return choose
