"""The draft model's passes over one growing tree, on a draft cache that lives on from one iteration to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from speclab.drafters.base import Top
from speclab.settings import SessionSettings
from speclab.tree import Floats

if TYPE_CHECKING:
    from torch import Tensor

    from speclab.models.runner import Runner

TOP = 8
"""Likeliest next tokens kept of every expanded node, at least."""


class Row(NamedTuple):
    """A node the draft model is to look behind."""

    node: int
    parent: int
    token: int


class DraftPasses:
    """Runs the draft model over the nodes of one tree; a row sees the committed text and its own ancestors.

    The cache holds committed tokens first, then one row for every expanded node. Committed tokens that it lacks go in
    with the first pass, so catching up with the target costs no pass of its own.

    Args:
        runner: the draft model.
        width: likeliest next tokens wanted of each node.
        sampling: to warp the draft's laws as the target's, for draws; then `laws` holds them, `[V]` float64 by node.
    """

    def __init__(self, runner: Runner, width: int, sampling: SessionSettings | None = None) -> None:
        self._runner = runner
        self._sampling = sampling
        self.laws: dict[int, Floats] = {}
        self._width = max(width, TOP)
        self._prefix = runner.length
        self._path: dict[int, tuple[int, ...]] = {}

    def after_root(self, tokens: Sequence[int]) -> Top:
        """Next tokens after a verified root, which is the last of `tokens` and becomes node 0."""
        self._prefix = len(tokens) - 1
        self._path = {0: (0,)}
        return self._catch_up(tokens, 0)

    def after_text(self, tokens: Sequence[int]) -> Top:
        """Next tokens after all of `tokens`: the candidates for a drafted root."""
        self._prefix = len(tokens)
        return self._catch_up(tokens, -1)

    def after(self, rows: Sequence[Row]) -> list[Top]:
        """Next tokens after each row, all rows in one pass; their parents have been passed before."""
        start = self._runner.length - self._prefix
        visible = np.zeros((len(rows), start + len(rows)), dtype=np.bool_)
        for place, row in enumerate(rows):
            path = (*self._path.get(row.parent, ()), start + place)
            self._path[row.node] = path
            visible[place, path] = True
        positions = [self._prefix + len(self._path[row.node]) - 1 for row in rows]
        logits = self._runner.forward([row.token for row in rows], positions, visible)
        return self._tops(logits, [row.node for row in rows])

    def renumber(self, place: Mapping[int, int]) -> None:
        """Takes over the numbers of the finished tree, after pruning; a node without a place was pruned."""
        self._path = {place[node]: path for node, path in self._path.items() if node in place}

    def settle(self, path: Iterable[int]) -> None:
        """Keeps the rows of the committed `path` (nodes from the root down) and drops the rest of the tree."""
        slots = [self._prefix + self._path[node][-1] for node in path if node in self._path]
        self._runner.keep(min(self._prefix, self._runner.length), slots)

    def _catch_up(self, tokens: Sequence[int], node: int) -> Top:
        return self._tops(self._runner.extend(tokens[self._runner.length :])[None], [node])[0]

    def _tops(self, logits: Tensor, nodes: Sequence[int]) -> list[Top]:
        if self._sampling is None:
            return likeliest(logits, self._width)
        from speclab.sampling import transform  # brings torch, which settings and records do without

        laws = transform(logits, self._sampling)
        self.laws.update(zip(nodes, laws.cpu().numpy(), strict=True))
        best = laws.topk(min(self._width, laws.shape[-1]), dim=-1)
        columns = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [tuple((t, log(p)) for t, p in zip(*column, strict=True) if p > 0) for column in columns]


def likeliest(logits: Tensor, width: int) -> list[Top]:
    """The `width` likeliest tokens of each row of `[m, V]` and their log-probabilities, best first.

    From another device they come in one transfer: drafting a level waits for nothing else.
    """
    from speclab.sources.likeliest import largest, on_host  # brings torch, which settings and records do without

    law = logits.float().log_softmax(-1)
    log_probs, ids = largest(law, min(width, law.shape[-1]))
    rows = on_host(ids, log_probs)
    columns = zip(rows[:, 0].tolist(), rows.view(np.float32)[:, 1].tolist(), strict=True)
    return [tuple(zip(tokens, probs, strict=True)) for tokens, probs in columns]
