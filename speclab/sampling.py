"""Distributions and draws: temperature, top-k and top-p, and random numbers that depend on the
position alone.

The random number of a draw depends on the seed and the position in the text alone. So going back,
forks and other strategies repeat it, and every strategy that chooses its candidates beforehand
gives the text of plain sampling. Drawing and accepting sampled candidates use separate random
numbers (`PositionalRng`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speclab.models.transfers import to_device
from speclab.settings import SessionSettings

Probabilities = NDArray[Any]
"""A distribution `[V]`: float64, or `fractions.Fraction` in tests of equality."""


def uniform(seed: int, position: int) -> float:
    """The random number in [0, 1) for the token at `position` of the text (prompt included)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())


class Rng(Protocol):
    """The random numbers of one position of the text; a test may enumerate every outcome."""

    def accepts(self, probability: Any) -> bool:
        """True with this probability."""

    def draws(self, probs: Probabilities) -> int:
        """A token, drawn from `probs`."""


class RngPurpose(IntEnum):
    """Two purposes share no random number with each other or with `uniform`."""

    ACCEPTANCE = 1
    DRAFTING = 2


class PositionalRng:
    """An `Rng` for one seed, position of the text and purpose.

    For acceptance it is the position that is decided, for drafting and for a block, whose tokens are
    decided together, that of the tree's root. Every
    position is a root at most once, so iterations share no random numbers, whatever the shapes of
    their trees.
    """

    def __init__(self, seed: int, position: int, purpose: RngPurpose) -> None:
        # Philox counts up the first word of its counter. The position is the second word, so
        # streams never overlap.
        self._random = np.random.Generator(
            np.random.Philox(key=seed + (purpose << 64), counter=position << 64)
        )

    def accepts(self, probability: float) -> bool:
        return bool(self._random.random() < probability)

    def draws(self, probs: Probabilities) -> int:
        """A token of `probs`, `[V]` float64."""
        return inverse_cdf(torch.from_numpy(probs)[None], [self._random.random()])[0]


def inverse_cdf(probs: Tensor, uniforms: Sequence[float]) -> list[int]:
    """For each row of `probs` `[n, V]`, the token whose interval of the cumulative distribution
    contains its number.

    One transfer from the device. A token of probability 0 is never drawn, whatever the rounding of
    the sums.
    """
    cumulative = probs.double().cumsum(-1)  # [n, V]
    total = cumulative[:, -1:].contiguous()  # [n, 1], 1 but for rounding
    wanted = total * to_device(np.array(uniforms), total.device)[:, None]
    # the first token whose sum exceeds the number
    tokens = torch.searchsorted(cumulative, wanted, right=True)
    last = torch.searchsorted(cumulative, total)  # the last token that adds to the sum
    drawn: list[int] = torch.minimum(tokens, last)[:, 0].tolist()
    return drawn


def transform(logits: Tensor, settings: SessionSettings) -> Tensor:
    """Temperature, then top-k, then top-p, then renormalise.

    Args:
        logits: `[n, V]`, any float dtype.

    Returns:
        `[n, V]` float64 probabilities. At temperature 0 the untransformed softmax: the choice is
        the argmax.
    """
    # an Apple GPU has no float64
    scores = (logits.cpu() if logits.device.type == "mps" else logits).double()
    if settings.temperature == 0:
        return scores.softmax(-1)
    # Shift the largest score to 0, so that a small temperature does not overflow.
    scores = (scores - scores.amax(-1, keepdim=True)) / settings.temperature
    if settings.top_k is not None and settings.top_k < scores.shape[-1]:
        floor = scores.topk(settings.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < floor, -torch.inf)
    probs = scores.softmax(-1)
    if settings.top_p is not None and settings.top_p < 1:
        probs = _nucleus(probs, settings.top_p)
    return probs


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.zeros_like(probs).scatter(-1, order, ordered.masked_fill(before >= top_p, 0.0))
    return kept / kept.sum(-1, keepdim=True)


def draw_independent(probs: Probabilities, count: int, rng: Rng) -> list[int]:
    """`count` tokens for `recursive_rejection`; repeats are possible."""
    return [rng.draws(probs) for _ in range(count)]


def draw_without_replacement(probs: Probabilities, count: int, rng: Rng) -> list[int]:
    """`count` different tokens for `rejection_without_replacement`, or as many as are possible."""
    drawn: list[int] = []
    for _ in range(min(count, int(np.count_nonzero(probs)))):
        drawn.append(rng.draws(probs))
        probs = without(probs, drawn[-1])
    return drawn


def without(probs: Probabilities, token: int) -> Probabilities:
    rest = probs.copy()
    rest[token] = 0 * rest[token]
    mass = rest.sum()
    return rest / mass if mass > 0 else rest
