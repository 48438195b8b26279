"""The answer of a pass: the best token after each row, the most probable tokens, rows of logits on demand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speclab.errors import NotRecordedError

KEPT = 16  # most probable tokens that a session records per row; at least so many are searched
STRIPES = 16  # of a wide row in `topk`; the fastest of 8 to 64
FEW = 1 << 16  # numbers below which `topk` is torch's; measured on a CPU

Ids = NDArray[np.int64]
TopTokens = tuple[Ids, NDArray[np.float32]]
"""Ids and log-probabilities (nats), each `[n, k]`, most probable first; an id of -1 is unknown."""


class Answer:
    """The answer of a pass to its `n` rows: predictions of each row's next token.

    Args:
        logits: `[n, V]` in the model's dtype and on its device; `[n, len(ids)]` for a draft
            vocabulary.
        choice: `[n]`, if it came with the pass; else computed on demand.
        top: the most probable tokens of each row, if they came with the pass.
        ids: the token id of each column of a draft vocabulary.
        vocab_size: `V`, with `ids`.
    """

    def __init__(
        self,
        logits: Tensor,
        *,
        choice: Ids | None = None,
        top: TopTokens | None = None,
        ids: Ids | None = None,
        vocab_size: int = 0,
    ) -> None:
        self._logits = logits
        self._choice = choice
        self._top = top
        self._ids = ids
        self._vocab_size = vocab_size

    def __len__(self) -> int:
        return len(self._logits)

    def __getitem__(self, index: slice | Sequence[int]) -> Answer:
        """Some of the rows."""
        rows: Any = index
        if not isinstance(index, slice):
            rows = np.asarray(index, np.int64)
        part = Answer(self._logits[rows], ids=self._ids, vocab_size=self._vocab_size)
        if self._choice is not None:
            part._choice = self._choice[rows]
        if self._top is not None:
            ids, log_probs = self._top
            part._top = ids[rows], log_probs[rows]
        return part

    @cached_property
    def rows(self) -> Tensor | None:
        """Logits `[n, V]`, -inf outside a draft vocabulary; None for a recorded answer, whose choice is final."""
        if self._ids is None:
            return self._logits
        whole = self._logits.new_full((len(self), self._vocab_size), -torch.inf)
        whole[:, self._ids] = self._logits
        return whole

    @property
    def logits(self) -> Tensor:
        """As `rows`, `[n, V]`.

        Raises:
            NotRecordedError: the answer comes from a record.
        """
        if self.rows is None:
            raise NotRecordedError(
                "It needs all of a model's logits, but a decoded text has only the most probable "
                "tokens."
            )
        return self.rows

    def row(self, index: int) -> Tensor:
        """Logits `[V]` of one row; raises as `logits`."""
        return self.logits[index]

    @cached_property
    def choice(self) -> Ids:
        """`[n]` ids: the argmax of each row, the first of equal ones."""
        if self._choice is not None:
            return self._choice
        best = cast("Ids", self._logits.argmax(-1).cpu().numpy())
        if self._ids is None:
            return best
        return self._ids[best]

    def topk(self, k: int) -> TopTokens:
        """The `k` most probable tokens of each row, or fewer if there are fewer, on the host."""
        if self._top is None or self._top[0].shape[-1] < min(k, self._logits.shape[-1]):
            best, columns = topk(self._logits.float().log_softmax(-1), max(k, KEPT))
            self._top = to_host(best, columns, self._ids)
        ids, log_probs = self._top
        return ids[:, :k], log_probs[:, :k]


def topk(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Equals `rows.topk(k)`, three to eight times as fast for wide rows.

    The `k` largest numbers are in the `k` columns of stripes with the largest maxima, so only those
    are searched. As in torch, equal values have no fixed order.

    Args:
        rows: `[n, V]`, any float dtype.
        k: how many of each row, at most all.

    Returns:
        Values and int64 indices, `[n, min(k, V)]`, largest first.
    """
    count = rows.shape[-1]
    columns = rows.shape[-1] // STRIPES
    if columns <= 2 * k or rows.numel() < FEW:
        best = rows.topk(min(k, count))
        return best.values, best.indices
    whole = columns * STRIPES
    striped = rows[:, :whole].unflatten(1, (STRIPES, columns))
    widest = striped.amax(1).topk(k, sorted=False).indices
    candidates = (
        widest[:, None] + torch.arange(0, whole, columns, device=rows.device)[:, None]
    ).flatten(1)
    if whole < count:
        rest = torch.arange(whole, count, device=rows.device)
        candidates = torch.cat([candidates, rest.expand(len(rows), -1)], 1)
    best = rows.gather(1, candidates).topk(k)
    return best.values, candidates.gather(1, best.indices)


def to_host(log_probs: Tensor, columns: Tensor, ids: Ids | None = None) -> TopTokens:
    """The token ids of columns and their log-probabilities, in one transfer from a device."""
    if columns.device.type == "cpu":
        best = columns.numpy()
        scores = log_probs.numpy()
    else:  # one transfer, so one wait for the device: the bits of the float32 beside the ids
        both = torch.stack((columns.int(), log_probs.view(torch.int32))).cpu().numpy()
        best = both[0].astype(np.int64)
        scores = both[1].view(np.float32)
    if ids is not None:
        best = ids[best]
    return best, scores
