"""Runs one step's tree again, with changes: in tokens, positions, mask, visible cache entries, cache
contents, or the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from speclab.clinic._detectors import path_of
from speclab.clinic._faults import NO_WINDOW
from speclab.clinic._plain import Oracle, row_pass
from speclab.models.runner import Runner
from speclab.trace.records import Step
from speclab.tree import Bools

ROWS = 256
"""Most copies of a row in one pass."""


class Change(NamedTuple):
    """A hypothesis: the `kind` of the fault, and what it changes in the pass; None leaves it right.

    `says`: what the engine did, a clause for a sentence. `tree`: `[n, n]`, which rows each row
    sees. `entries`: `[c]` or `[n, c]` bool, which cache entries. `make`: the runner that holds the
    text, by default the right one. `after`: what is done to the logits. `fault`: the name in
    `clinic.FAULTS`, if any. `weight`: how much better it must fit than a simpler one, in nats.
    """

    kind: str
    says: str
    tokens: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None
    tree: Bools | None = None
    entries: Bools | None = None
    make: Callable[[ChangedPasses], Runner] | None = None
    after: Callable[[Tensor], Tensor] | None = None
    fault: str = ""
    weight: float = 0.0


UNCHANGED = Change("answer", "")
"""The right pass."""


class ChangedPasses:
    """Changed passes of one step, and the gaps of what they answer.

    Attributes:
        right: the right runner, with rejected rows of the step before.
        kept: its entries of the text.
        path: the rows of the step before that stay.
        rejected: logits of all rows of the step before, None if it has none.
    """

    def __init__(self, oracle: Oracle, step: Step, before: Step | None) -> None:
        self.oracle = oracle
        self.step = step
        self.before = None if before is None or before.root_choice is not None else before
        self.n = len(step.tree)
        self.tree = step.tree.ancestor_mask()
        self.tokens: list[int] = step.tree.token.tolist()
        self.positions = (step.prefix_length + step.tree.depth).tolist()
        self.text = oracle.text[: step.prefix_length]
        self.most = oracle.pair.target.context or NO_WINDOW
        self.kept = [*range(step.prefix_length)]
        self.path: list[int] = []
        self.rejected: Tensor | None = None
        if self.before is None:
            self.start = step.prefix_length  # entries before the rows of the step before
            self.right = self.fresh()
        else:
            self.start = self.before.prefix_length
            self.right = self._after(self.before)

    def fresh(
        self,
        model: PreTrainedModel | None = None,
        *,
        text: Sequence[int] | None = None,
        places: Sequence[int] | None = None,
        **plan: Any,
    ) -> Runner:
        """A runner of a model, by default the right one, after a text, by default that of the step,
        at these positions; with other masks."""
        runner = self.oracle.pair.target.beside(model or self.oracle.model, **plan)
        runner.allow_nonfinite = True
        tokens = self.text if text is None else text
        if tokens:
            runner.logits(
                tokens, places, None if places is None else np.tri(len(tokens), dtype=bool)
            )
        return runner

    def copied(self) -> Runner:
        """The right cache without rejected rows."""
        runner = self.right.fork(self.right.length, lean=False)
        runner.keep(self.start, self.kept[self.start :])
        return runner

    def _after(self, before: Step) -> Runner:
        """Run the tree of the step before, and keep all of its rows."""
        runner = self.fresh(text=self.text[: self.start])
        places = [self.start + depth for depth in before.tree.depth.tolist()]
        tokens = before.tree.token.tolist()
        answers = runner.logits(tokens, places, before.tree.ancestor_mask())
        self.rejected = answers.logits.clone()
        self.path = list(path_of(before))[: len(before.committed)]
        self.kept[self.start :] = [self.start + row for row in self.path]
        return runner

    @property
    def entries(self) -> Bools:
        """`[c]`: the cache entries of the text, without rejected rows of the step before."""
        return np.isin(np.arange(self.right.length), self.kept)

    def moved(self, change: Change, by: int) -> Change:
        """The change with all positions so many further."""
        return change._replace(positions=tuple([place + by for place in self.positions]))

    def gaps(self, change: Change) -> list[float]:
        """Of every row; infinite if the pass cannot be."""
        places = change.positions or (0,)
        if not 0 <= min(places) <= max(places) < self.most:
            return [inf] * self.n
        logits = self.logits(change)
        answers = change.after(logits) if change.after else logits
        return self.oracle.gaps(self.step, self.oracle.log_probs(self.step, answers))

    def logits(self, change: Change = UNCHANGED) -> Tensor:
        """`[n, V]`."""
        self.oracle.report(self.step)
        runner = self.right if change.make is None else change.make(self)
        tokens, positions, entries, tree = self._given(change, runner)
        return row_pass(runner, tokens, positions, np.hstack([entries, tree]))

    def _given(self, change: Change, runner: Runner) -> tuple[Any, ...]:
        """What the rows of a pass are given: tokens, positions, cache entries `[n, c]`, tree `[n, n]`."""
        entries = np.ones((self.n, runner.length), dtype=np.bool_)
        if change.entries is not None:
            entries[:] = change.entries
        elif runner is self.right:
            entries[:] = self.entries
        tree = self.tree if change.tree is None else change.tree
        tokens = np.array(change.tokens or self.tokens)
        return tokens, np.array(change.positions or self.positions), entries, np.array(tree)

    def copies(
        self, row: int, what: str, options: Sequence[Any], others: Change = UNCHANGED
    ) -> list[float]:
        """The gap of `row` with each of these `tokens`, `positions`, `entries` `[c]` or rows of the
        `tree` `[n]`: one pass has many copies of the row beside the tree. A copy sees itself.

        `others`: changes of the other rows.
        """
        node = self.step.nodes[row]
        result: list[float] = []
        for start in range(0, len(options), ROWS):
            part = list(options[start : start + ROWS])
            m = len(part)
            copied = [*range(self.n), *[row] * m]
            names = ("tokens", "positions", "entries", "tree")
            given = {
                name: value[copied]
                for name, value in zip(names, self._given(others, self.right), strict=True)
            }
            given[what][self.n :] = part
            given["tree"][self.n :, row] = False
            own = np.concatenate([np.zeros((self.n, m), np.bool_), np.eye(m, dtype=np.bool_)])
            self.oracle.report(self.step)
            seen = np.concatenate([given["entries"], given["tree"], own], axis=1)
            answers = row_pass(self.right, given["tokens"], given["positions"], seen)[self.n :]
            one = replace(self.step, nodes=(node,) * m)
            result += self.oracle.gaps(one, self.oracle.log_probs(self.step, answers, [row] * m))
        return result
