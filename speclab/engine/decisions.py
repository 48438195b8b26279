"""How tokens are decided inside transformers' `generate`: by the library's processors, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from speclab.engine.sampling import inverse_cdf, transform, uniform
from speclab.errors import SettingsError
from speclab.models.answer import Answer
from speclab.settings import SessionSettings

LogitsProcessors = Callable[[Any, Tensor], Tensor]
"""Ids `[1, L]` and scores `[1, V]` float32 to scores `[1, V]`: transformers' `LogitsProcessorList`."""


class Decisions:
    """Decides the tokens of one text, each from the row of logits that stands after the ids before it.

    A row is processed when it is asked for, which only rows of the accepted path are, from the top down. So processors
    see the very calls that `generate` makes: one for each token, with the ids of its own path, padding included. Those
    that count their calls or keep a cache of their own work as they do there.

    Args:
        processors: the library's, those that shape a sampled distribution (temperature, top-p, …) included.
        settings: temperature 0 for the argmax, else 1; the seed.
        padding: ids before the text that no pass is made of, `[1, k]` int64, on the device that processors work on.
        width: columns that processors expect.
        always: go through this class even where a row's own argmax is all that is asked.

    Attributes:
        rows: for each place in the text (padding excluded) that was asked for, what it was decided from: the bare
            logits and the processed ones, each `[1, width]` float32.
    """

    def __init__(
        self,
        processors: LogitsProcessors,
        settings: SessionSettings,
        padding: Tensor,
        width: int,
        *,
        always: bool,
    ) -> None:
        self._process, self._settings, self._padding, self._width = processors, settings, padding, width
        self._always = always
        self.rows: dict[int, tuple[Tensor, Tensor]] = {}
        self._chosen: dict[int, int] = {}

    def of(self, answer: Answer, prefix: Sequence[int], paths: Sequence[Sequence[int]] = ((),)) -> Answer:
        """Rows that share a prefix, with the tokens that follow them; see `engine.decode.LogitsRules`."""
        return PathAnswer(answer.rows, self, prefix, paths) if self._always and answer.rows is not None else answer

    def scores(self, ids: Sequence[int], row: Tensor) -> Tensor:
        """The processed logits after `ids`, `[1, width]`; `row`: the bare ones, `[V]`."""
        bare = row.to(self._padding.device, torch.float32, copy=True)[None]
        bare = pad(bare, (0, self._width - bare.shape[1]), value=-torch.inf)  # ids that the draft does not have
        before = torch.tensor([ids], dtype=torch.long, device=self._padding.device)
        scores = self._process(torch.cat((self._padding, before), 1), bare)
        self.rows[len(ids)] = bare, scores
        return scores

    def choice(self, ids: Sequence[int], row: Tensor) -> int:
        """The token after `ids`: the argmax, or a draw by the seed and the place."""
        place = len(ids)
        if place not in self._chosen:
            scores = self.scores(ids, row)
            if self._settings.temperature == 0:
                self._chosen[place] = int(scores.argmax())
            else:
                probs = transform(scores, self._settings)
                if not probs.isfinite().all():
                    raise SettingsError(
                        f"the logits processors leave no token to draw at place {place} of the text: loosen them"
                    )
                self._chosen[place] = inverse_cdf(probs, [uniform(self._settings.seed, place)])[0]
        return self._chosen[place]


class PathAnswer(Answer):
    """Rows after different paths. `rows` are bare; `choose` and `row` process the one row that is asked for.

    Args:
        bare: `[m, V]`.
        prefix, paths: as in `Decisions.of`.
    """

    def __init__(
        self, bare: Tensor, decisions: Decisions, prefix: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> None:
        super().__init__(bare)
        self._decisions, self._prefix, self._paths = decisions, prefix, paths

    def choose(self, row: int) -> int:
        """The target's token after a row."""
        return self._decisions.choice([*self._prefix, *self._paths[row]], self._logits[row])

    def row(self, index: int) -> Tensor:
        """The processed row, `[V]`."""
        scores = self._decisions.scores([*self._prefix, *self._paths[index]], self._logits[index])
        return scores[0, : self._logits.shape[-1]]

    def __getitem__(self, index: slice | Sequence[int]) -> Answer:
        paths = self._paths[index] if isinstance(index, slice) else [self._paths[row] for row in index]
        return PathAnswer(self._logits[index], self._decisions, self._prefix, paths)
