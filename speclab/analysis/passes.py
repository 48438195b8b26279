"""Runs one step's tree again, with changes: in tokens, positions, mask, visible cache entries, cache
contents, or the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from speclab.analysis.detectors import path_of
from speclab.analysis.faults import NO_WINDOW
from speclab.analysis.oracle import Oracle
from speclab.models.masks import Mask, MaskPlan
from speclab.models.runner import Runner
from speclab.trace.records import Step
from speclab.tree import Bools

ROWS = 256
"""Rows of one pass, into which several changed trees are packed."""


@dataclass(frozen=True)
class SoftPlan(MaskPlan):
    """A mask that adds `shown` and `hidden` instead of 0 and the lowest number."""

    shown: float = 0.0
    hidden: float = 0.0

    def build(self, *given: Any) -> Mask:
        mask = super().build(*given)
        if isinstance(mask, dict):
            return {kind: self._soft(rows) for kind, rows in mask.items()}
        assert mask is not None
        return self._soft(mask)

    def _soft(self, mask: Tensor) -> Tensor:
        return torch.where(mask == 0, self.shown, self.hidden).to(mask.dtype)


Rewrite = Callable[[int, Tensor, Tensor, Tensor, Tensor], object]


@dataclass(frozen=True)
class Variant:
    """What computes a changed pass: by default the right model behind the right cache.

    `model`: makes another model; `tree_only`: which runs the tree's pass alone, behind the right
    cache. `plan`: other masks of the tree's pass; `whole_plan`: of all passes. `pads`: tokens of
    id 0 before the text, `counted` in its positions or all at 0. `longer`: entries behind the
    prefix. `cache(layer, kept_keys, kept_values, keys, values)`: writes to what a layer kept of the
    rows of the step before, from all of them.
    """

    name: str = ""
    model: Callable[[], PreTrainedModel] | None = None
    tree_only: bool = False
    plan: Mapping[str, Any] | None = None
    whole_plan: Mapping[str, Any] | None = None
    pads: int = 0
    counted: bool = False
    longer: int = 0
    cache: Rewrite | None = None


RIGHT = Variant()


class Change(NamedTuple):
    """A hypothesis: the `kind` of the fault, and what it changes in the pass; None leaves it right.

    `says`: what the engine did, a clause for a sentence. `tree`: `[n, n]`, which rows each row
    sees. `entries`: `[c]` or `[n, c]` bool, which cache entries. `after`: what is done to the
    logits. `fault`: the name in `clinic.FAULTS`, if any. `weight`: how much better it must fit than
    a simpler one, in nats. `factor`: of a number of the model.
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
    factor: float = 0.0

    def on(self, base: Change) -> Change | None:
        """Both changes at once; None if they change the same thing."""
        names = ("tokens", "positions", "tree", "entries", "after")
        both = {}
        for name in names:
            mine = getattr(self, name)
            theirs = getattr(base, name)
            if mine is not None and theirs is not None:
                return None
            both[name] = theirs if mine is None else mine
        if self.variant.name and base.variant.name:
            return None
        variant = self.variant if self.variant.name else base.variant
        if variant.name and both["entries"] is not None:
            return None
        return self._replace(variant=variant, **both)


class _Passes:
    """Passes of one variant behind the same cache.

    Attributes:
        kept: the cache entries of the text; the right variant has rejected rows of the step before,
            too.
        rejected: logits of all rows of the step before, None if it has none.
    """

    rejected: Tensor | None = None

    def __init__(self, bench: Bench, variant: Variant) -> None:
        target = bench.oracle.pair.target
        self.most = target.context or NO_WINDOW
        model = bench.oracle.model if variant.model is None else variant.model()
        first = bench.oracle.model if variant.tree_only else model
        plan = replace(target.plan, **(variant.whole_plan or {}))
        text = bench.oracle.text[: bench.step.prefix_length + variant.longer]
        text = [*[0] * variant.pads, *text]
        if (
            variant.name
            and first is bench.oracle.model
            and plan == target.plan
            and len(text) == bench.step.prefix_length
        ):
            self._copy(bench, variant)
        else:
            self.runner = Runner(first, target.name, plan, lean=False)
            self.runner.vocab_size = target.vocab_size
            self.runner.allow_nonfinite = True
            self.kept = [*range(len(text))]
            if variant.pads:
                self._padded(variant, text)
            elif variant.name or bench.before is None:
                self.runner.extend(text)
            else:
                self._after(bench.before, text)
        self.runner.model = model
        if variant.plan is not None:
            kind = SoftPlan if "shown" in variant.plan else MaskPlan
            self.runner.plan = kind(**{"window": plan.window, "kinds": plan.kinds, **variant.plan})
        self.entries = self.runner.length

    def _padded(self, variant: Variant, text: Sequence[int]) -> None:
        """Pads are at position 0, or count as the text does."""
        start = 0 if variant.counted else variant.pads
        places = [max(0, place - start) for place in range(len(text))]
        self.runner.logits(text, places, np.tri(len(text), dtype=np.bool_))

    def _after(self, before: Step, text: Sequence[int]) -> None:
        """Runs the tree of the step before, and keeps all of its rows."""
        held = before.prefix_length
        self.runner.extend(text[:held])
        depth = before.tree.depth.tolist()
        places = [held + each for each in depth]
        tokens = before.tree.token.tolist()
        self.rejected = self.runner.logits(
            tokens, places, before.tree.ancestor_mask()
        ).logits.clone()
        rows = path_of(before)[: len(before.committed)]
        self.kept = [*range(held), *[held + row for row in rows]]

    def _copy(self, bench: Bench, variant: Variant) -> None:
        """The right cache without rejected rows, and with what the variant writes into it."""
        right = bench.right
        held = right.runner.length if bench.before is None else bench.before.prefix_length
        written = [
            (layer.keys[:, :, held:], layer.values[:, :, held:])
            for layer in right.runner.cache.layers
        ]
        self.runner = right.runner.fork(right.entries, lean=False)
        self.runner.keep(held, right.kept[held:])
        self.kept = [*range(self.runner.length)]
        if variant.cache is None:
            return
        with torch.inference_mode():
            layers = zip(self.runner.cache.layers, written, strict=True)
            for index, (layer, rows) in enumerate(layers):
                kept = layer.keys[:, :, held:], layer.values[:, :, held:]
                variant.cache(index, *kept, *rows)

    def __call__(self, tokens: Sequence[int], positions: Sequence[int], seen: Bools) -> Tensor:
        """Logits `[m, V]` of rows that see `seen` `[m, entries + m]`."""
        held = self.runner.length
        if len(tokens) == 1:  # a pass of one row takes no mask, and so no window
            twice = np.eye(2, dtype=np.bool_)
            seen = np.concatenate([np.repeat(seen[:, :held], 2, 0), twice], axis=1)
            tokens, positions = [*tokens] * 2, [*positions] * 2
        answers = self.runner.logits(tokens, positions, seen).logits
        self.runner.crop(held)
        return answers


class Bench:
    """Changed passes of one step, and the gaps of what they answer."""

    def __init__(self, oracle: Oracle, step: Step, before: Step | None) -> None:
        self.oracle = oracle
        self.step = step
        self.before = None if before is None or before.root_choice is not None else before
        self.n = len(step.tree)
        self.tree = step.tree.ancestor_mask()
        self.depth: list[int] = step.tree.depth.tolist()
        self.tokens: list[int] = step.tree.token.tolist()
        self.positions = [step.prefix_length + depth for depth in self.depth]
        self.right = _Passes(self, RIGHT)
        self.most = self.right.most
        self._last: tuple[str, _Passes] = ("", self.right)

    def passes(self, variant: Variant) -> _Passes:
        if not variant.name:
            return self.right
        if self._last[0] != variant.name:
            self._last = variant.name, _Passes(self, variant)
        return self._last[1]

    @property
    def entries(self) -> Bools:
        """`[c]`: the cache entries of the text, without rejected rows of the iteration before."""
        shown = np.zeros(self.right.entries, dtype=np.bool_)
        shown[self.right.kept] = True
        return shown

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
            # a soft mask would let one tree see another
            soft = "shown" in (changes[group[0]].variant.plan or {})
            size = 1 if soft else max(1, ROWS // self.n)
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
        passes = self.passes(changes[0].variant)
        c, n = passes.entries, self.n
        seen = np.zeros((len(changes) * n, c + len(changes) * n), dtype=np.bool_)
        tokens: list[int] = []
        positions: list[int] = []
        for block, change in enumerate(changes):
            rows = slice(block * n, (block + 1) * n)
            seen[rows, :c] = self._entries(change, passes)
            seen[rows, c + block * n : c + (block + 1) * n] = (
                self.tree if change.tree is None else change.tree
            )
            tokens += change.tokens or self.tokens
            own = change.positions or self.positions
            variant = changes[0].variant
            positions += [place + variant.pads * variant.counted for place in own]
        answers = passes(tokens, positions, seen)[: len(tokens)]
        return list(answers.split(n))

    def copies(self, row: int, base: Change, what: str, options: Sequence[Any]) -> list[float]:
        """The gap of `row` with each of these `tokens`, `positions`, `entries` `[c]` or rows of the
        `tree` `[n]`: one pass has many copies of the row beside the tree. A copy sees itself.
        """
        passes = self.passes(base.variant)
        node = self.step.nodes[row]
        result: list[float] = []
        for start in range(0, len(options), ROWS):
            part = list(options[start : start + ROWS])
            m = len(part)
            copied = [*range(self.n), *[row] * m]
            tokens = np.array(base.tokens or self.tokens)[copied]
            positions = np.array(base.positions or self.positions)[copied]
            entries = self._entries(base, passes)[copied]
            tree = np.array(self.tree if base.tree is None else base.tree)[copied]
            {"tokens": tokens, "positions": positions, "entries": entries, "tree": tree}[what][
                self.n :
            ] = part
            tree[self.n :, row] = False
            own = np.concatenate([np.zeros((self.n, m), np.bool_), np.eye(m, dtype=np.bool_)])
            self.oracle.report(self.step)
            seen = np.concatenate([entries, tree, own], axis=1)
            answers = passes(tokens.tolist(), positions.tolist(), seen)[self.n :]
            answers = base.after(answers) if base.after else answers
            one = replace(self.step, nodes=(node,) * m)
            result += self.oracle.gaps(one, self.oracle.log_probs(self.step, answers, [row] * m))
        return result

    def _entries(self, change: Change, passes: _Passes) -> Bools:
        """`[n, c]`: what the rows see of the cache."""
        shown = np.zeros((self.n, passes.entries), dtype=np.bool_)
        if change.entries is None:
            shown[:, passes.kept] = True
        else:
            shown[:] = change.entries
        return shown
