"""Changed passes of one wrong iteration: other tokens, positions, masks, visible entries or caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.clinic._faults import NO_WINDOW
from speclab.clinic._gaps import Measured
from speclab.clinic._plain import Oracle, row_pass
from speclab.models.runner import Runner
from speclab.trace.records import Step
from speclab.tree import Bools, Ints

ROWS = 256
"""Most copies of a row in one pass: more fill the memory."""
BOTH = ("keys", "values")


@dataclass(frozen=True)
class Rows:
    """What the `n` rows of a pass are given: `tokens` and `positions` `[n]`, which of the cache's
    `entries` they see `[n, c]`, and which rows of the `tree` `[n, n]`."""

    tokens: Ints
    positions: Ints
    entries: Bools
    tree: Bools


class Passes:
    """Passes of one step, and the gaps of their answers.

    Attributes:
        wrong, first: the wrong rows, and the first of them.
        before: the step before, None if there is none. Its rows are in the cache of `right` from entry
            `start` on; those of `path` stay. rejected: logits of them all.
        own: what the rows are given if all is right.
        logits: of the right pass.
    """

    def __init__(self, oracle: Oracle, measured: Measured, before: Step | None) -> None:
        self.oracle = oracle
        self.measured = measured
        self.step = measured.step
        self.wrong = list(measured.wrong)
        self.first = self.wrong[0]
        self.n = len(self.step.tree)
        self.text = oracle.text[: self.step.prefix_length]
        self.start = len(self.text)
        self.before: Step | None = None
        self.path: list[int] = []
        self.rejected: Tensor | None = None
        if oracle.head is not None:  # a head runs no trees by itself
            self.logits = oracle.answers(self.step)
            return
        if before is not None and 0 not in before.drafted:
            self.before = before
            self.start = before.prefix_length
            self.path = list(before.path)[: len(before.committed)]
        self.right = self.fresh(self.text[: self.start])
        if self.before is not None:
            tree = self.before.tree
            places = (self.start + tree.depth).tolist()
            answers = self.right.logits(tree.token.tolist(), places, tree.ancestor_mask())
            self.rejected = answers.logits.clone()
        entry = np.arange(self.right.length)
        entries = (entry < self.start) | np.isin(entry - self.start, self.path)
        self.own = Rows(
            tokens=self.step.tree.token,
            positions=self.step.prefix_length + self.step.tree.depth,
            entries=np.tile(entries, (self.n, 1)),
            tree=self.step.tree.ancestor_mask(),
        )
        self.logits = self.run(self.own)

    def fresh(
        self,
        text: Sequence[int],
        model: PreTrainedModel | None = None,
        places: Sequence[int] | None = None,
        **plan: Any,
    ) -> Runner:
        """A runner after a text: of another model, at these positions, with other masks."""
        runner = self.oracle.runner.beside(model or self.oracle.model, **plan)
        runner.allow_nonfinite = True
        if text:
            seen = None if places is None else np.tri(len(text), dtype=np.bool_)
            runner.logits(text, places, seen)
        return runner

    @torch.inference_mode()
    def written(
        self, rows: Sequence[int], parts: Sequence[str] = BOTH, only: int | None = None
    ) -> Runner:
        """The right cache, with these rows of the step before in the place of those that stay; or with
        their keys or values alone, or in one layer."""
        runner = self.right.fork(self.right.length, lean=False)
        runner.keep(self.start, range(self.start, self.start + len(rows)))
        for index, layer in enumerate(runner.cache.layers):
            for part in BOTH:
                source = self.path
                if part in parts and only in (None, index):
                    source = list(rows)
                right = getattr(self.right.cache.layers[index], part)[:, :, self.start :]
                getattr(layer, part)[:, :, self.start :] = right[:, :, source]
        return runner

    @torch.inference_mode()
    def reread(self, rows: Sequence[int], shift: int = 0) -> Runner:
        """The cache after the root of the step before, with these rows of its tree, and the committed
        tokens read behind them, with their positions shifted."""
        runner = self.right.fork(self.right.length, lean=False)
        runner.keep(self.start, [self.start] + [self.start + row for row in rows])
        tokens = self.text[self.start + 1 :]
        if tokens:
            count = len(tokens)
            first = self.start + 1 + shift
            seen = np.tri(count, runner.length + count, runner.length, dtype=np.bool_)
            runner.logits(tokens, range(first, first + count), seen)
        return runner

    def run(self, rows: Rows, make: Callable[[], Runner] | None = None) -> Tensor:
        """Logits `[n, V]` of a changed pass, not numbers if it cannot be.

        Args:
            make: makes the runner, whose entries all rows see; by default the right one.
        """
        if min(rows.positions) < 0 or max(rows.positions) >= (self.right.context or NO_WINDOW):
            return torch.full((self.n, self.oracle.pair.vocab_size), torch.nan)
        self.oracle.report(self.step)
        runner = self.right
        entries = rows.entries
        if make is not None:
            runner = make()
            entries = np.ones((self.n, runner.length), dtype=np.bool_)
        seen = np.hstack([entries, rows.tree])
        return row_pass(runner, rows.tokens, rows.positions, seen)

    def copies(self, row: int, what: str, options: Sequence[Any], given: Rows) -> list[float]:
        """The gap of `row` with each of these `tokens`, `positions`, `entries` `[c]` or rows of the
        `tree` `[n]`: one pass has many copies of the row beside the tree. A copy sees itself.

        `given`: what all rows are given.
        """
        gaps: list[float] = []
        node = self.step.nodes[row]
        for start in range(0, len(options), ROWS):
            part = options[start : start + ROWS]
            m = len(part)
            index = np.append(np.arange(self.n), np.repeat(row, m))
            copied = {name: values[index] for name, values in vars(given).items()}
            copied[what][self.n :] = part
            copied["tree"][self.n :, row] = False
            itself = np.eye(self.n + m, dtype=np.bool_)[:, self.n :]
            seen = np.hstack([copied["entries"], copied["tree"], itself])
            self.oracle.report(self.step)
            answers = row_pass(self.right, copied["tokens"], copied["positions"], seen)[self.n :]
            for right in self.oracle.log_probs(self.step, answers, [row] * m):
                gaps.append(self.oracle.gap(node, right))
        return gaps

    def best(self, what: str, options: Mapping[int, Sequence[Any]]) -> tuple[Rows, list[int]]:
        """For each row, the option that cuts its gap to a third, given the choices for earlier rows;
        and the changed rows."""
        rows = replace(self.own, **{what: getattr(self.own, what).copy()})
        values = getattr(rows, what)
        moved = []
        for row, choices in options.items():
            own = values[row].copy()
            gaps = self.copies(row, what, choices, rows)
            if min(gaps) < self.measured.gaps[row] / 3:
                values[row] = choices[int(np.argmin(gaps))]
            if np.any(values[row] != own):
                moved.append(row)
        return rows, moved
