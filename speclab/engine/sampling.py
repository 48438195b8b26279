"""The target's choice: argmax, or a draw from its transformed distribution.

The random number of a draw depends on the seed and the position in the text alone. So going back, forks and other
strategies repeat it, and every strategy that chooses its candidates beforehand gives the text of plain sampling.
Drawing and accepting sampled candidates use separate random numbers (`PositionalRng`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from speclab.engine.acceptance import Probabilities
from speclab.models.answer import Answer
from speclab.models.transfers import to_device
from speclab.settings import SessionSettings

RowProcessor = Callable[[Sequence[int], Tensor], Tensor]
"""(ids before a token, prompt included; the target's logits for it `[V]`) to processed logits `[V]`."""


def uniform(seed: int, position: int) -> float:
    """The random number in [0, 1) for the token at `position` of the text (prompt included)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())


class RngPurpose(IntEnum):
    """Two purposes share no random number with each other or with `uniform`."""

    ACCEPTANCE = 1
    DRAFTING = 2


class PositionalRng:
    """An `acceptance.Rng` for one seed, position of the text and purpose.

    For acceptance it is the position that is decided, for drafting that of the tree's root. Every position is a root at
    most once, so iterations share no random numbers, whatever the shapes of their trees.
    """

    def __init__(self, seed: int, position: int, purpose: RngPurpose) -> None:
        # Philox counts up the first word of its counter. The position is the second word, so streams never overlap.
        self._random = np.random.Generator(np.random.Philox(key=seed + (purpose << 64), counter=position << 64))

    def accepts(self, probability: float) -> bool:
        return self._random.random() < probability

    def draws(self, probs: Probabilities) -> int:
        """A token of `probs`, `[V]` float64."""
        return inverse_cdf(torch.from_numpy(probs)[None], [self._random.random()])[0]


def inverse_cdf(probs: Tensor, uniforms: Sequence[float]) -> list[int]:
    """For each row of `probs` `[n, V]`, the token whose interval of the cumulative distribution contains its number.

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


class Targets:
    """The target's predictions after each of `n` rows; logits are processed and tokens drawn on first use.

    So processors see the same calls as in plain decoding: one per accepted token, from the top down.

    Args:
        answer: `n` rows.
        positions: for each row, the position in the text of the next token.
        settings: how to choose.
        process: transforms the logits before a token is chosen; None leaves them unchanged.
        ids: the ids before the next token of a row; needed with `process`.
    """

    def __init__(
        self,
        answer: Answer,
        positions: Sequence[int],
        settings: SessionSettings,
        process: RowProcessor | None = None,
        ids: Callable[[int], Sequence[int]] | None = None,
    ) -> None:
        self.answer, self.settings = answer, settings
        self._positions, self._process, self._ids = positions, process, ids
        self._processed: dict[int, Tensor] = {}
        self._chosen: dict[int, int] = {}
        if answer.rows is None or (settings.temperature == 0 and process is None):
            self._chosen = dict(enumerate(answer.choice.tolist()))

    @property
    def processed(self) -> bool:
        return self._process is not None

    def row(self, index: int) -> Tensor:
        """The logits `[V]` that decide after a row."""
        if self._process is None or self._ids is None:
            return self.answer.row(index)
        if index not in self._processed:
            self._processed[index] = self._process(self._ids(index), self.answer.row(index))
        return self._processed[index]

    def rows(self) -> Tensor:
        """All of them, `[n, V]`."""
        if self._process is None:
            return self.answer.logits
        return torch.stack([self.row(index) for index in range(len(self.answer))])

    def probs(self, index: int) -> Probabilities:
        """The distribution after a row, after temperature, top-k and top-p, `[V]` float64."""
        distribution: Probabilities = transform(self.row(index), self.settings).cpu().numpy()
        return distribution

    def choose(self, index: int) -> int:
        if index not in self._chosen:
            if self.settings.temperature == 0:
                self._chosen[index] = int(self.row(index).argmax())
            else:
                self._draw(index)
        return self._chosen[index]

    def _draw(self, index: int) -> None:
        # On a device draw all rows in one transfer; on the CPU only the row that is needed.
        alone = self._process is not None or self.answer.logits.device.type == "cpu"
        rows = [index] if alone else range(len(self.answer))
        logits = self.row(index)[None] if alone else self.answer.logits
        uniforms = [uniform(self.settings.seed, self._positions[row]) for row in rows]
        self._chosen.update(zip(rows, inverse_cdf(transform(logits, self.settings), uniforms), strict=True))
