"""The target's choice after each row of a pass: argmax, or a draw from its transformed distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from speclab.models.answer import Answer
from speclab.sampling import Probabilities, inverse_cdf, transform, uniform
from speclab.settings import SessionSettings

RowProcessor = Callable[[Sequence[int], Tensor], Tensor]
"""(ids before a token, prompt included; the target's logits for it `[V]`) to processed logits `[V]`."""


class Targets:
    """The target's predictions after each of `n` rows; logits are processed and tokens drawn on
    first use.

    So processors see the same calls as in plain decoding: one per accepted token, from the top
    down.

    Args:
        answer: `n` rows.
        positions: for each row, the position in the text of the next token.
        settings: how to choose.
        process: transforms the logits before a token is chosen; None leaves them unchanged.
        ids: the ids before the next token of a row; for `process`.
    """

    def __init__(
        self,
        answer: Answer,
        positions: Sequence[int],
        settings: SessionSettings,
        process: RowProcessor | None,
        ids: Callable[[int], Sequence[int]],
    ) -> None:
        self.answer = answer
        self.settings = settings
        self._positions = positions
        self._process = process
        self._ids = ids
        self._processed: dict[int, Tensor] = {}
        self._chosen: dict[int, int] = {}
        if answer.rows is None or (settings.temperature == 0 and process is None):
            self._chosen = dict(enumerate(answer.choice.tolist()))

    def row(self, index: int) -> Tensor:
        """The logits `[V]` that decide after a row."""
        if self._process is None:
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
        rows: Sequence[int] = range(len(self.answer))
        logits = self.answer.logits
        if self._process is not None or logits.device.type == "cpu":
            rows = [index]
            logits = self.row(index)[None]
        uniforms = [uniform(self.settings.seed, self._positions[row]) for row in rows]
        self._chosen.update(
            zip(rows, inverse_cdf(transform(logits, self.settings), uniforms), strict=True)
        )
