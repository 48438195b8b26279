"""The draft model's passes over one growing tree, on a draft cache that lives on from one iteration to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from speclab.drafters.base import TopK
from speclab.settings import SessionSettings
from speclab.tree import Floats

if TYPE_CHECKING:
    from speclab.models.runner import Runner
    from speclab.models.transfers import Logits

TOP = 8
"""Likeliest next tokens kept of every expanded node, at least."""


class Row(NamedTuple):
    """A node the draft model is to look behind."""

    node: int
    parent: int
    token: int


class DraftForward:
    """Runs the draft model over the nodes of one tree; a row sees the committed text and its own ancestors.

    The cache holds committed tokens first, then one row for every expanded node. Committed tokens that it lacks go in
    with the first pass, so catching up with the target costs no pass of its own.

    Args:
        runner: the draft model.
        width: likeliest next tokens wanted of each node.
        sampling: to warp the draft's distributions as the target's, for draws; then `draft_probs` holds them, `[V]`
            float64 by node.
    """

    def __init__(self, runner: Runner, width: int, sampling: SessionSettings | None = None) -> None:
        self._runner = runner
        self._sampling = sampling
        self.draft_probs: dict[int, Floats] = {}
        self._width = max(width, TOP)
        self._wanted = self._width if sampling is None else 0
        self._prefix = runner.length
        self._path: dict[int, tuple[int, ...]] = {}

    def after_root(self, tokens: Sequence[int]) -> TopK:
        """Next tokens after a verified root, which is the last of `tokens` and becomes node 0."""
        self._prefix = len(tokens) - 1
        self._path = {0: (0,)}
        return self._catch_up(tokens, 0)

    def after_text(self, tokens: Sequence[int]) -> TopK:
        """Next tokens after all of `tokens`: the candidates for a drafted root."""
        self._prefix = len(tokens)
        return self._catch_up(tokens, -1)

    def after(self, rows: Sequence[Row]) -> list[TopK]:
        """Next tokens after each row, all rows in one pass; their parents have been passed before."""
        start = self._runner.length - self._prefix
        visible = np.zeros((len(rows), start + len(rows)), dtype=np.bool_)
        for place, row in enumerate(rows):
            path = (*self._path.get(row.parent, ()), start + place)
            self._path[row.node] = path
            visible[place, path] = True
        positions = [self._prefix + len(self._path[row.node]) - 1 for row in rows]
        logits = self._runner.logits([row.token for row in rows], positions, visible, likeliest=self._wanted)
        return self._tops(logits, [row.node for row in rows])

    def renumber(self, place: Mapping[int, int]) -> None:
        """Takes over the numbers of the finished tree, after pruning; a node without a place was pruned."""
        self._path = {place[node]: path for node, path in self._path.items() if node in place}

    def commit_cache(self, path: Iterable[int]) -> None:
        """Keeps the rows of the committed `path` (nodes from the root down) and drops the rest of the tree."""
        slots = [self._prefix + self._path[node][-1] for node in path if node in self._path]
        self._runner.keep(min(self._prefix, self._runner.length), slots)

    def _catch_up(self, tokens: Sequence[int], node: int) -> TopK:
        return self._tops(self._runner.logits(tokens[self._runner.length :], likeliest=self._wanted), [node])[0]

    def _tops(self, logits: Logits, nodes: Sequence[int]) -> list[TopK]:
        if self._sampling is None:
            return logits.likeliest(self._width)
        from speclab.engine.sampling import transform  # brings torch, which settings and records do without

        probs = transform(logits.rows, self._sampling).cpu()
        self.draft_probs.update(zip(nodes, probs.numpy(), strict=True))
        best = probs.topk(min(self._width, probs.shape[-1]), dim=-1)
        columns = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [tuple((t, log(p)) for t, p in zip(*column, strict=True) if p > 0) for column in columns]
