"""The plain answers, and how far recorded answers are from them.

The expected answer after a node is that of the target on the node's path alone, as plain text,
without a tree mask. A recorded answer's gap is its largest difference of a log-probability. What
rounding gives is measured: the pair's own pass over the tree in the recorded precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf, log, sqrt
from statistics import mean, median
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from speclab.clinic._detectors import GREEDY
from speclab.clinic._lines import precision
from speclab.errors import SettingsError
from speclab.models.paths import PathRunner
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.sampling import transform
from speclab.settings import SessionSettings
from speclab.trace.records import UNKNOWN, Step, Trace
from speclab.tree import Bools, Ints

FLOOR = -12.0
"""Less probable tokens (nats) count as equally improbable."""
FACTOR = 6.0
"""A row is wrong if its gap is above this many times its level; healthy rows reached 4.1 (speclab
default)."""
RAISED = 2.0
"""The same for a row of an iteration whose gaps are too large on average."""
FLOAT32 = 5e-3 / FACTOR
"""Level in float32: kernels differ by less."""
FLOAT32_MOST = 5e-3
"""The highest level that a run in float32 may set for itself: a cache in float16 gave 0.005."""
EXCESS = 0.8
"""An iteration's gaps are too large on average if the mean logarithm of gap over level is above this
plus `SPREAD` over the root of the number of rows; healthy ones reached 0.51 (speclab default)."""
SPREAD = 1.2
TINY = 1e-9
"""Stands for a level of 0."""
SAMPLE = 24
"""Iterations whose reference is measured before any is judged."""
AHEAD = 256
"""Tokens of the text that one pass runs ahead: a pass of few tokens takes as long."""
HALF = {"float16": torch.float16, "bfloat16": torch.bfloat16}
Model = TypeVar("Model", bound=nn.Module)
Passes = Callable[[Step], Tensor]
"""Logits `[n, V]` of the nodes of a step; steps come in their order."""
Watch = Callable[[Step, Tensor, float], object]
"""Called with each step, its plain logits `[n, V]`, and the usual size of rounding so far."""
Progress = Callable[[int, int], object]
"""Called before each pass with the iterations compared so far and their number; what it raises ends the work."""


def lowered(model: Model, dtype: str) -> Model:
    """A copy in a lower precision; below 16 bits only the weights are rounded, in blocks of 32."""
    if dtype == "float32":
        return model
    twin = deepcopy(model)
    if dtype in HALF:
        return twin.to(HALF[dtype])
    with torch.no_grad():
        for weights in twin.parameters():
            if weights.ndim < 2 or weights.numel() % 32:
                continue
            blocks = weights.view(-1, 32)
            scale = blocks.abs().amax(1, keepdim=True).clamp_min(1e-12)
            scale /= 7 if dtype == "int4" else 127
            blocks.copy_((blocks / scale).round() * scale)
    return twin


class Oracle:
    """The models of a pair on the text of a trace.

    Attributes:
        model: the target in float32; at least what the pair and the record have.
        steps: with prefix lengths computed from the text; recorded cache lengths are ignored.
        dtype: the precision of the record, "" if its name is not known.
        drafts: whether it stands for a draft.
    """

    drafts = False

    def __init__(
        self,
        trace: Trace,
        pair: ModelPair,
        progress: Progress | None = None,
        close: float | None = None,
    ) -> None:
        if close is not None and not close >= 0:  # NaN is neither
            raise SettingsError(
                f"Expected close as a difference of log-probabilities from 0 on, got {close!r}."
            )
        self.pair = pair
        self.trace = trace
        self.close = close
        self.progress = progress
        self.outside = "format" in trace.models
        offset = int(trace.models.get("position_offset") or 0)
        self.pads = -min(offset, 0) if self.outside else 0
        self.text = pair.target.shown([*trace.prompt_ids, *trace.token_ids][self.pads :])
        length = len([*trace.prompt_ids, *trace.tokens_at(0)]) - self.pads
        steps = []
        for step in trace.steps:
            steps.append(replace(step, prefix_length=length - (0 not in step.drafted)))
            length += len(step.committed)
        self.steps = tuple(steps)
        # another decoder's logits are recorded before temperature and top-p
        self.settings = SessionSettings() if self.outside else SessionSettings.of(trace.settings)
        own = precision(str(pair.target.dtype))
        recorded = precision(str(trace.models.get("target_dtype") or own))
        self.dtype = own if recorded == "float32" else recorded
        target = pair.target.model
        self.model = target if own == "float32" else deepcopy(target).float()
        most = self.settings.max_new_tokens
        processors = pair.rules.processors(target, len(trace.prompt_ids), most)
        self._processors = None if self.outside else processors
        self._runner = self._admitted()

    def _admitted(self) -> Runner:
        """What runs the trees: of a session each path by itself, without a tree mask. Of another decoder
        all paths at once, 3 times as fast: the pair's own mask was compared with plain passes when
        the pair was loaded (`models.probe`).
        """
        target = self.pair.target
        kind = type(target) if self.outside or isinstance(target, PathRunner) else PathRunner
        runner = target.beside(self.model, kind)
        runner.allow_nonfinite = True
        return runner

    def answers(self, step: Step) -> Tensor:
        """Logits after each node `[n, V]`; steps come in their order."""
        self.report(step)
        return tree_pass(self._runner, self.text, step)

    def reference(self, dtype: str) -> Passes:
        """The pair's own passes over the trees in a precision: how far a healthy answer is off."""
        runner = self.pair.target.beside(lowered(self.model, dtype))
        return lambda step: tree_pass(runner, self.text, step)

    def report(self, step: Step) -> None:
        """Report that a pass of this step comes next."""
        if self.progress is not None:
            self.progress(step.index, len(self.trace.steps))

    def log_probs(self, step: Step, logits: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """What is recorded of logits `[m, V]` of these nodes, by default of all: of a session what it
        sampled by, of another decoder the log-softmax.
        """
        if self.outside:
            return logits.float().log_softmax(-1).clamp_min(FLOOR).cpu()
        if self._processors is not None:
            prefix = self.text[: step.prefix_length]
            asked = range(len(step.tree)) if nodes is None else nodes
            paths = [step.tree.token[list(step.tree.path(node))].tolist() for node in asked]
            rows = zip(paths, logits, strict=True)
            logits = torch.stack([self._processors([*prefix, *path], row) for path, row in rows])
        return transform(logits, self.settings).float().log().clamp_min(FLOOR).cpu()

    def gaps(self, step: Step, right: Tensor, given: Tensor | None = None) -> list[float]:
        """For each node the largest difference of a recorded log-probability; or that of `given`
        log-probabilities `[n, V]` of the recorded tokens."""
        rows = [None] * len(right) if given is None else given
        return [
            gap_of(node.target_top, *each)
            for node, *each in zip(step.nodes, right, rows, strict=True)
        ]

    def choices(self, step: Step, log_probs: Tensor) -> list[float]:
        """For each node how far its recorded choice is below the best token; 0 without a greedy choice."""
        if step.rule != GREEDY or self.trace.models.get("processed"):
            return [0.0] * len(step.nodes)
        chosen = [max(node.target_choice, 0) for node in step.nodes]
        below = log_probs.amax(-1) - log_probs[range(len(chosen)), chosen]
        unknown = {node.index for node in step.nodes if node.target_choice == UNKNOWN}
        unknown |= {*step.not_numbers}
        return [0.0 if node in unknown else gap for node, gap in enumerate(below.tolist())]


def gap_of(top: Sequence[tuple[int, float]], right: Tensor, given: Tensor | None = None) -> float:
    """The largest difference of log-probabilities, as recorded or as given `[V]`; infinite if the row
    has no numbers."""
    if not top:
        return 0.0
    tokens, probs = map(list, zip(*top, strict=True))
    recorded = torch.tensor(probs).log().clamp_min(FLOOR) if given is None else given[tokens]
    gap = float((recorded - right[tokens].float().cpu()).abs().max())
    return inf if gap != gap else gap


def tree_pass(runner: Runner, text: Sequence[int], step: Step) -> Tensor:
    """Logits `[n, V]` of a step's tree after its prefix; the text is prefilled up to 256 tokens ahead."""
    length = step.prefix_length
    # a path is behind the whole text
    ahead = 0 if isinstance(runner, PathRunner) else AHEAD
    if runner.length < length:
        runner.extend(text[runner.length : length + ahead])
    depth = step.tree.depth
    before = np.tile(np.arange(runner.length) < length, (len(depth), 1))
    seen = np.hstack([before, step.tree.ancestor_mask()])
    return row_pass(runner, step.tree.token, length + depth, seen)


def row_pass(
    runner: Runner,
    tokens: Ints,
    positions: Ints,
    seen: Bools,
) -> Tensor:
    """Logits `[m, V]` of rows that see `seen` `[m, entries + m]`."""
    held = runner.length
    count = len(tokens)
    if count == 1:  # a pass of one row takes no mask, and so no window
        seen = np.hstack([np.repeat(seen[:, :held], 2, 0), np.eye(2, dtype=np.bool_)])
        tokens, positions = tokens.repeat(2), positions.repeat(2)
    answers = runner.logits(tokens.tolist(), positions.tolist(), seen).logits[:count]
    runner.crop(held)
    return answers


@dataclass(frozen=True)
class Measured:
    """One iteration, by row.

    `gaps`: of the recorded answers to the plain ones. `choices`: how far each recorded choice is
    below the best token. `levels`: the gaps that rounding alone would give. `reference`: the gaps of
    the pair's own pass in the recorded precision, empty if not measured. `wrong`: rows whose gap
    rounding cannot explain. `before`: the median gap of the iterations before, where it is the
    level.
    """

    step: Step
    gaps: tuple[float, ...]
    choices: tuple[float, ...]
    reference: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()
    wrong: tuple[int, ...] = ()
    before: float = 0.0

    @property
    def compared(self) -> tuple[tuple[float, float | None] | None, ...]:
        """The gap of each node and that of the reference, as `Step.gaps`."""
        reference = self.reference or [None] * len(self.gaps)
        return tuple(
            [
                (min(gap, -FLOOR), other) if node.target_top else None
                for node, gap, other in zip(self.step.nodes, self.gaps, reference, strict=True)
            ]
        )

    @property
    def misses(self) -> list[int]:
        """Rows whose choice is too far below the best token for a tie."""
        return [row for row, gap in enumerate(self.choices) if gap > FACTOR * self.levels[row]]

    @property
    def ties(self) -> list[int]:
        """Rows whose choice is not the best token, but as close as rounding."""
        return [row for row, gap in enumerate(self.choices) if gap and row not in self.misses]


def measure(oracle: Oracle, references: int = SAMPLE, watch: Watch | None = None) -> list[Measured]:
    """Measure every iteration of the run, and up to `references` of them beside the reference.

    Rows without recorded top-k and choice have the gap 0.
    """
    rounded = oracle.dtype != "float32" and oracle.close is None
    reference = oracle.reference(oracle.dtype or "int4") if rounded or references > SAMPLE else None
    stride = max(1, len(oracle.steps) // references)  # the reference is spread over the run
    measured: list[Measured] = []
    known: list[float] = []
    usual = 0.0
    for step in oracle.steps:
        logits = oracle.answers(step)
        right = oracle.log_probs(step, logits)
        one = Measured(step, tuple(oracle.gaps(step, right)), tuple(oracle.choices(step, right)))
        needed = step.index % stride == 0 or bool(_wrong(one, [usual] * len(one.gaps), EXCESS))
        if reference is not None and needed:
            given = oracle.log_probs(step, reference(step))
            one = replace(one, reference=tuple(oracle.gaps(step, right, given)))
            known += [gap for gap in one.reference if gap]
            usual = median(known or [0.0])
        measured.append(one)
        if watch is not None:
            watch(step, logits, max(usual, FLOAT32))
    return _judge(oracle, measured, usual)


def _judge(oracle: Oracle, measured: Sequence[Measured], usual: float) -> list[Measured]:
    """With levels and wrong rows. `usual`: the median gap of the reference."""
    gaps = [gap for one in measured for gap in one.gaps if gap]
    own = max(median(gaps or [0.0]), FLOAT32)
    usual = max(usual, FLOAT32)
    rough = oracle.close is None and oracle.dtype not in (*HALF, "float32")
    if oracle.close is not None:
        usual = oracle.close / FACTOR
    elif oracle.dtype not in HALF:
        usual = min(own, usual if rough else FLOAT32_MOST)
    before: list[float] = []
    judged = []
    for one in measured:
        levels = [usual] * len(one.gaps)
        if one.reference and oracle.dtype in HALF:
            levels = [sqrt((gap * gap + usual * usual) / 2) for gap in one.reference]
        if rough and before:
            # The reference rounds otherwise than the engine, so the run's own passes say more.
            one = replace(one, before=median(before))
            levels = [min(usual, max(one.before, FLOAT32))] * len(one.gaps)
        wrong = _wrong(one, levels, EXCESS if oracle.close is None else inf)
        judged.append(replace(one, levels=tuple(levels), wrong=wrong))
        before += [gap for gap in one.gaps if gap and not wrong]
    return judged


def _wrong(one: Measured, levels: Sequence[float], excess: float) -> tuple[int, ...]:
    """The rows far above their levels; those above twice their levels if all are too large."""
    ratios = [gap / max(level, TINY) for gap, level in zip(one.gaps, levels, strict=True)]
    logs = [log(min(max(ratio, 0.01), 1e6)) for ratio in ratios if ratio]
    raised = bool(logs) and mean(logs) > excess + SPREAD / sqrt(len(logs))
    return tuple(
        [row for row, ratio in enumerate(ratios) if ratio > (RAISED if raised else FACTOR)]
    )
