"""Runs one step's tree again, with changes: in tokens, positions, mask, visible cache entries, cache
contents, or the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.clinic._faults import NO_WINDOW
from speclab.clinic._plain import Oracle, row_pass
from speclab.models.runner import Runner
from speclab.trace.records import Step

ROWS = 256
"""Most copies of a row in one pass."""
BOTH = ("keys", "values")


@dataclass(frozen=True)
class Change:
    """A hypothesis: the `kind` of the fault, and what the engine did, a clause for a sentence.

    `given`: what the rows were given: `tokens` `[n]`, `positions` `[n]`, `entries` of the cache `[c]`
    or `[n, c]`, and of the `tree` `[n, n]`; what is not named is right. `make`: makes the runner that
    holds the text, by default the right one; the rows see all its entries. `after`: what is
    done to the logits. `fault`: the name in `clinic.FAULTS`, if any. `weight`: how much better it
    must fit than a simpler one, in nats.
    """

    kind: str
    says: str
    given: Mapping[str, Any] = field(default_factory=dict)
    make: Callable[[], Runner] | None = None
    after: Callable[[Tensor], Tensor] = lambda logits: logits
    fault: str = ""
    weight: float = 0.0


UNCHANGED = Change("answer", "")
"""The right pass."""


class ChangedPasses:
    """Changed passes of one step, and the gaps of what they answer.

    Attributes:
        right: the right runner; with all rows of the step before, which begin at entry `start`.
        path: those that stay. rejected: logits of them all, None if there is no step before.
        own: what the rows are given if all is right.
    """

    def __init__(self, oracle: Oracle, step: Step, before: Step | None) -> None:
        self.oracle = oracle
        self.step = step
        self.before = None if before is None or 0 in before.drafted else before
        self.n = len(step.tree)
        self.text = oracle.text[: step.prefix_length]
        self.start = len(self.text)
        self.path: list[int] = []
        self.rejected: Tensor | None = None
        if self.before is not None:
            self.start = self.before.prefix_length
            self.path = list(self.before.path)[: len(self.before.committed)]
        self.right = self.fresh(self.text[: self.start])
        if self.before is not None:
            tree = self.before.tree
            places = (self.start + tree.depth).tolist()
            answers = self.right.logits(tree.token.tolist(), places, tree.ancestor_mask())
            self.rejected = answers.logits.clone()
        entry = np.arange(self.right.length)
        self.own: dict[str, Any] = {
            "tokens": step.tree.token,
            "positions": step.prefix_length + step.tree.depth,
            "entries": (entry < self.start) | np.isin(entry - self.start, self.path),
            "tree": step.tree.ancestor_mask(),
        }

    def fresh(
        self,
        text: Sequence[int] | None = None,
        model: PreTrainedModel | None = None,
        places: Sequence[int] | None = None,
        **plan: Any,
    ) -> Runner:
        """A runner of a model, by default the right one, after a text, by default that of the step,
        at these positions; with other masks."""
        runner = self.oracle.pair.target.beside(model or self.oracle.model, **plan)
        runner.allow_nonfinite = True
        tokens = self.text if text is None else text
        seen = None if places is None else np.tri(len(tokens), dtype=np.bool_)
        if tokens:
            runner.logits(tokens, places, seen)
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
                changed = part in parts and only in (None, index)
                source = [self.start + row for row in (rows if changed else self.path)]
                right = getattr(self.right.cache.layers[index], part)
                getattr(layer, part)[:, :, self.start :] = right[:, :, source]
        return runner

    def moved(self, change: Change, by: int) -> Change:
        """The change with all positions so many further."""
        positions = {"positions": self.own["positions"] + by}
        return replace(change, given={**change.given, **positions})

    def gaps(self, change: Change) -> list[float]:
        """Of every row; infinite if the pass cannot be."""
        positions = change.given.get("positions", self.own["positions"])
        if min(positions) < 0 or max(positions) >= (self.right.context or NO_WINDOW):
            return [inf] * self.n
        answers = change.after(self.logits(change))
        return self.oracle.gaps(self.step, self.oracle.log_probs(self.step, answers))

    def logits(self, change: Change) -> Tensor:
        """`[n, V]`."""
        self.oracle.report(self.step)
        runner = self.right if change.make is None else change.make()
        given = self._given(change, runner)
        seen = np.hstack([given["entries"], given["tree"]])
        return row_pass(runner, given["tokens"], given["positions"], seen)

    def _given(self, change: Change, runner: Runner) -> dict[str, Any]:
        """What the rows of a pass are given: tokens, positions, cache entries `[n, c]`, tree `[n, n]`."""
        given = {**self.own, **change.given}
        if change.make is not None:
            given["entries"] = np.True_  # all of this runner's own
        given["entries"] = np.broadcast_to(given["entries"], (self.n, runner.length))
        return {name: np.asarray(values) for name, values in given.items()}

    def copies(
        self, row: int, what: str, options: Sequence[Any], given: Mapping[str, Any]
    ) -> list[float]:
        """The gap of `row` with each of these `tokens`, `positions`, `entries` `[c]` or rows of the
        `tree` `[n]`: one pass has many copies of the row beside the tree. A copy sees itself.

        `given`: changes of the other rows.
        """
        result: list[float] = []
        rows = self._given(Change("", "", given), self.right)
        for start in range(0, len(options), ROWS):
            part = options[start : start + ROWS]
            m = len(part)
            index = [*range(self.n), *[row] * m]
            copied = {name: values[index] for name, values in rows.items()}
            copied[what][self.n :] = part
            copied["tree"][self.n :, row] = False
            itself = np.eye(self.n + m, dtype=np.bool_)[:, self.n :]
            seen = np.hstack([copied["entries"], copied["tree"], itself])
            self.oracle.report(self.step)
            answers = row_pass(self.right, copied["tokens"], copied["positions"], seen)[self.n :]
            one = replace(self.step, nodes=(self.step.nodes[row],) * m)
            result += self.oracle.gaps(one, self.oracle.log_probs(self.step, answers, [row] * m))
        return result
