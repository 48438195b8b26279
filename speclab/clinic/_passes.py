"""Changed passes of one wrong iteration: other tokens, positions, masks, visible entries or caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.clinic._faults import NO_WINDOW
from speclab.clinic._plain import Measured, Oracle, row_pass
from speclab.models.runner import Runner
from speclab.trace.records import Step

ROWS = 256
"""Most copies of a row in one pass: more fill the memory."""
LEAST_RANKS = 4
"""Recorded tokens of a row from which on their probabilities tell it apart from other rows."""
BOTH = ("keys", "values")


@dataclass(frozen=True)
class Change:
    """A hypothesis: what the engine did, and what it would have answered.

    `kind`: of the finding. `says`: a clause for a sentence. `run`: logits `[n, V]`. `fault`: the name
    in `clinic.FAULTS`, if any. `weight`: how much better it must fit than a simpler one, in nats.
    `ranks`: compare the recorded probabilities in their order, whatever tokens they belong to.
    """

    kind: str
    says: str
    run: Callable[[], Tensor]
    fault: str = ""
    weight: float = 0.0
    ranks: bool = False


class Passes:
    """Passes of one step, and the gaps of their answers.

    Attributes:
        wrong, first: the wrong rows, and the first of them.
        before: the step before, None if there is none. Its rows are in the cache of `right` from entry
            `start` on; those of `path` stay. rejected: logits of them all.
        own: what the rows are given if all is right: `tokens` `[n]`, `positions` `[n]`, `entries` of
            the cache `[c]`, rows of the `tree` `[n, n]`.
        logits: of the right pass.
    """

    def __init__(self, oracle: Oracle, measured: Measured, before: Step | None) -> None:
        self.oracle = oracle
        self.measured = measured
        self.step = measured.step
        self.wrong = list(measured.wrong)
        self.first = self.wrong[0]
        self.before = None if before is None or 0 in before.drafted else before
        self.n = len(self.step.tree)
        self.text = oracle.text[: self.step.prefix_length]
        self.start = len(self.text)
        self.path: list[int] = []
        self.rejected: Tensor | None = None
        if not isinstance(oracle.runner, Runner):  # a head runs no trees by itself
            self.logits = oracle.answers(self.step)
            return
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
            "tokens": self.step.tree.token,
            "positions": self.step.prefix_length + self.step.tree.depth,
            "entries": (entry < self.start) | np.isin(entry - self.start, self.path),
            "tree": self.step.tree.ancestor_mask(),
        }
        self.logits = self.run()

    def fresh(
        self,
        text: Sequence[int] | None = None,
        model: PreTrainedModel | None = None,
        places: Sequence[int] | None = None,
        **plan: Any,
    ) -> Runner:
        """A runner after a text, by default that of the step: of another model, at these positions,
        with other masks."""
        runner: Runner = self.oracle.runner.beside(model or self.oracle.model, **plan)
        runner.allow_nonfinite = True
        tokens = self.text if text is None else text
        if tokens:
            seen = None if places is None else np.tri(len(tokens), dtype=np.bool_)
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

    def run(self, make: Callable[[], Runner] | None = None, shift: int = 0, **given: Any) -> Tensor:
        """Logits `[n, V]` of a changed pass, not numbers if it cannot be.

        Args:
            make: makes the runner, whose entries all rows see; by default the right one.
            shift: of all positions.
            given: what is not as in `own`.
        """
        rows = {**self.own, **given}
        positions = rows["positions"] + shift
        if min(positions) < 0 or max(positions) >= (self.right.context or NO_WINDOW):
            return torch.full((self.n, self.oracle.pair.vocab_size), torch.nan)
        self.oracle.report(self.step)
        runner = self.right
        entries = rows["entries"]
        if make is not None:
            runner = make()
            entries = np.True_
        entries = np.broadcast_to(entries, (self.n, runner.length))
        seen = np.hstack([entries, rows["tree"]])
        return row_pass(runner, np.asarray(rows["tokens"]), positions, seen)

    def change(
        self, kind: str, says: str, fault: str = "", weight: float = 0.0, **changed: Any
    ) -> Change:
        """A changed pass as a hypothesis; `changed`: as in `run`."""
        return Change(kind, says, partial(self.run, **changed), fault, weight)

    def gaps(self, change: Change) -> list[float]:
        """Of every row, if the engine had answered so."""
        right = self.oracle.log_probs(self.step, change.run())
        step = self.step
        if change.ranks:
            nodes = []
            for node in step.nodes:
                count = len(node.target_top)
                if count >= LEAST_RANKS:
                    tokens = right[node.index].topk(count).indices.tolist()
                    probs = [prob for _, prob in node.target_top]
                    node = replace(node, target_top=tuple(zip(tokens, probs, strict=True)))
                nodes.append(node)
            step = replace(step, nodes=tuple(nodes))
        return self.oracle.gaps(step, right)

    def copies(
        self, row: int, what: str, options: Sequence[Any], given: Mapping[str, Any]
    ) -> list[float]:
        """The gap of `row` with each of these `tokens`, `positions`, `entries` `[c]` or rows of the
        `tree` `[n]`: one pass has many copies of the row beside the tree. A copy sees itself.

        `given`: changes of the other rows.
        """
        gaps: list[float] = []
        rows = {name: np.asarray(values) for name, values in {**self.own, **given}.items()}
        rows["entries"] = np.tile(rows["entries"], (self.n, 1))
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
            gaps += self.oracle.gaps(one, self.oracle.log_probs(self.step, answers, [row] * m))
        return gaps
