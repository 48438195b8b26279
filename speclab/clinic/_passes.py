"""Runs one step's tree again, with changes: in tokens, positions, mask, visible cache entries, cache
contents, or the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.clinic._detectors import path_of
from speclab.clinic._faults import NO_WINDOW
from speclab.clinic._oracle import Oracle, row_pass
from speclab.models.masks import Mask, MaskPlan
from speclab.models.runner import Runner
from speclab.trace.records import Step
from speclab.tree import Bools

ROWS = 256
"""Rows of one pass, into which several changed trees are packed."""


@dataclass(frozen=True)
class SoftPlan(MaskPlan):
    """A mask that adds `hidden` instead of the lowest number."""

    hidden: float = 0.0

    def build(self, *given: Any) -> Mask:
        mask = super().build(*given)
        if isinstance(mask, dict):
            return {kind: rows.clamp_min(self.hidden) for kind, rows in mask.items()}
        assert mask is not None
        return mask.clamp_min(self.hidden)


@dataclass(frozen=True)
class Variant:
    """What computes a changed pass: a runner behind the text, which `make` makes; by default the right
    one. `soft`: its mask lets one tree see another, so each pass has one tree."""

    name: str = ""
    make: Callable[[Bench], Runner] | None = None
    soft: bool = False


RIGHT = Variant()


class Change(NamedTuple):
    """A hypothesis: the `kind` of the fault, and what it changes in the pass; None leaves it right.

    `says`: what the engine did, a clause for a sentence. `tree`: `[n, n]`, which rows each row
    sees. `entries`: `[c]` or `[n, c]` bool, which cache entries. `after`: what is done to the
    logits. `fault`: the name in `clinic.FAULTS`, if any. `weight`: how much better it must fit than
    a simpler one, in nats.
    """

    kind: str
    says: str
    tokens: tuple[int, ...] | None = None
    positions: tuple[int, ...] | None = None
    tree: Bools | None = None
    entries: Bools | None = None
    variant: Variant = RIGHT
    after: Callable[[Tensor], Tensor] | None = None
    fault: str = ""
    weight: float = 0.0


UNCHANGED = Change("answer", "")
"""The right pass."""


class Bench:
    """Changed passes of one step, and the gaps of what they answer.

    Attributes:
        right: the right runner, with rejected rows of the step before.
        kept: its entries of the text.
        rejected: logits of all rows of the step before, None if it has none.
    """

    def __init__(self, oracle: Oracle, step: Step, before: Step | None) -> None:
        self.oracle = oracle
        self.step = step
        self.before = None if before is None or before.root_choice is not None else before
        self.n = len(step.tree)
        self.tree = step.tree.ancestor_mask()
        self.depth: list[int] = step.tree.depth.tolist()
        self.tokens: list[int] = step.tree.token.tolist()
        self.positions = [step.prefix_length + depth for depth in self.depth]
        self.text = oracle.text[: step.prefix_length]
        self.most: int = oracle.pair.target.context or NO_WINDOW
        self.kept = [*range(step.prefix_length)]
        self.rejected: Tensor | None = None
        self.right = self.fresh() if self.before is None else self._after(self.before)
        self._last: tuple[str, Runner] = ("", self.right)

    def fresh(
        self,
        model: PreTrainedModel | None = None,
        *,
        text: Sequence[int] | None = None,
        places: Sequence[int] | None = None,
        **plan: Any,
    ) -> Runner:
        """A runner of a model, by default the right one, behind a text, by default that of the step,
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
        start = self.start
        runner.keep(start, self.kept[start:])
        return runner

    @property
    def start(self) -> int:
        """Entries before the rows of the step before."""
        return self.right.length if self.before is None else self.before.prefix_length

    def _after(self, before: Step) -> Runner:
        """Runs the tree of the step before, and keeps all of its rows."""
        held = before.prefix_length
        runner = self.fresh(text=self.text[:held])
        places = [held + depth for depth in before.tree.depth.tolist()]
        tokens = before.tree.token.tolist()
        answers = runner.logits(tokens, places, before.tree.ancestor_mask())
        self.rejected = answers.logits.clone()
        self.kept[held:] = [held + row for row in path_of(before)[: len(before.committed)]]
        return runner

    def runner(self, variant: Variant) -> Runner:
        if variant.make is None:
            return self.right
        if self._last[0] != variant.name:
            self._last = variant.name, variant.make(self)
        return self._last[1]

    @property
    def entries(self) -> Bools:
        """`[c]`: the cache entries of the text, without rejected rows of the iteration before."""
        return np.isin(np.arange(self.right.length), self.kept)

    def gaps(self, changes: Sequence[Change]) -> list[list[float]]:
        """Of every row, for each change; infinite if the pass cannot be."""
        found: dict[int, list[float]] = {}
        groups: dict[str, list[int]] = {}
        for index, change in enumerate(changes):
            if (
                change.positions
                and not 0 <= min(change.positions) <= max(change.positions) < self.most
            ):
                found[index] = [inf] * self.n
            else:
                groups.setdefault(change.variant.name, []).append(index)
        for group in groups.values():
            size = 1 if changes[group[0]].variant.soft else max(1, ROWS // self.n)
            for start in range(0, len(group), size):
                part = group[start : start + size]
                answers = self._run([changes[index] for index in part])
                for index, logits in zip(part, answers, strict=True):
                    after = changes[index].after
                    log_probs = self.oracle.log_probs(self.step, after(logits) if after else logits)
                    found[index] = self.oracle.gaps(self.step, log_probs)
        return [found[index] for index in range(len(changes))]

    def logits(self, change: Change) -> Tensor:
        """`[n, V]`."""
        return self._run([change])[0]

    def _run(self, changes: Sequence[Change]) -> list[Tensor]:
        self.oracle.report(self.step)
        tokens, positions, entries, trees = zip(*map(self._given, changes), strict=True)
        tree = torch.block_diag(*map(torch.from_numpy, trees)).numpy()
        seen = np.hstack([np.concatenate(entries), tree])
        runner = self.runner(changes[0].variant)
        answers = row_pass(runner, np.concatenate(tokens), np.concatenate(positions), seen)
        return list(answers.split(self.n))

    def _given(self, change: Change) -> tuple[Any, ...]:
        """What the rows of a pass are given: tokens, positions, cache entries `[n, c]`, tree `[n, n]`."""
        runner = self.runner(change.variant)
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
        runner = self.right
        node = self.step.nodes[row]
        result: list[float] = []
        for start in range(0, len(options), ROWS):
            part = list(options[start : start + ROWS])
            m = len(part)
            copied = [*range(self.n), *[row] * m]
            tokens, positions, entries, tree = [each[copied] for each in self._given(others)]
            {"tokens": tokens, "positions": positions, "entries": entries, "tree": tree}[what][
                self.n :
            ] = part
            tree[self.n :, row] = False
            own = np.concatenate([np.zeros((self.n, m), np.bool_), np.eye(m, dtype=np.bool_)])
            self.oracle.report(self.step)
            seen = np.concatenate([entries, tree, own], axis=1)
            answers = row_pass(runner, tokens, positions, seen)[self.n :]
            one = replace(self.step, nodes=(node,) * m)
            result += self.oracle.gaps(one, self.oracle.log_probs(self.step, answers, [row] * m))
        return result
