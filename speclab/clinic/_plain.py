"""The plain answers, and how far recorded answers are from them.

The expected answer after a node is that of the model on the node's path alone, as plain text, without
a tree mask. A recorded answer's gap is its largest difference of a log-probability. What rounding
gives is measured: the model's own pass over the tree in the recorded precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf, log, sqrt
from statistics import mean, median
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from speclab.clinic._lines import precision
from speclab.clinic._record import GREEDY
from speclab.errors import SettingsError
from speclab.models.paths import PathRunner
from speclab.models.runner import Runner
from speclab.pair import ModelPair
from speclab.sampling import transform
from speclab.settings import SessionSettings
from speclab.trace.records import UNKNOWN, Step, Trace
from speclab.tree import Bools, Ints

FLOOR = -12.0
"""Less probable tokens (nats) count as equally improbable: float32 rounds them by more than faults do."""
FACTOR = 6.0
"""A row is wrong if its gap is above this many times its level. Healthy rows reached 4.1."""
RAISED = 2.0
"""The same for a row of an iteration whose gaps are too large on average. Three hidden entries of a prefix
were named in bfloat16 with it (19 rows of 19), and not without it (6 rows)."""
FLOAT32 = 5e-3 / FACTOR
"""The least level: kernels differ by less in float32."""
FLOAT32_MOST = 5e-3
"""The highest level that a run in float32 may set for itself: a cache in float16 gave 0.005."""
EXCESS = 0.8
SPREAD = 1.2
"""An iteration of n rows is raised if the mean logarithm of gap over level is above EXCESS + SPREAD / √n.
Healthy ones reached 0.51."""
SAMPLE = 24
"""Iterations whose reference is measured before any is judged: the median of so many is steady."""
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
    """What a model of a pair answers on the text of a trace: the target, a draft model or a head.

    A draft's steps have its proposals in the place of the target's answers.

    Args:
        draft: the draft's runner; without it, the target answers.
        heat: the temperature at which a draft's log-probabilities are recorded.

    Attributes:
        model: the module in float32.
        steps: with prefix lengths computed from the text; recorded cache lengths are ignored.
        dtype: the precision of the record, "" if its name is not known.
    """

    def __init__(
        self,
        trace: Trace,
        pair: ModelPair,
        progress: Progress | None = None,
        close: float | None = None,
        draft: Any = None,
        heat: float = 1.0,
    ) -> None:
        if close is not None and not close >= 0:  # NaN is neither
            raise SettingsError(
                f"Expected close as a difference of log-probabilities from 0 on, got {close!r}."
            )
        self.pair = pair
        self.trace = trace
        self.close = close
        self.progress = progress
        self.heat = heat
        self.runner: Any = pair.target if draft is None else draft
        self.drafts = draft is not None
        self.outside = self.drafts or "format" in trace.models
        pads = -min(int(trace.models.get("position_offset") or 0), 0) if self.outside else 0
        reader = self.runner if isinstance(self.runner, Runner) else pair.target  # of a head
        self.text = reader.shown([*trace.prompt_ids, *trace.token_ids][pads:])
        length = len([*trace.prompt_ids, *trace.tokens_at(0)]) - pads
        steps = []
        for step in trace.steps:
            before = length if 0 in step.drafted else length - 1
            steps.append(replace(step, prefix_length=before))
            length += len(step.committed)
        self.steps = tuple(steps)
        # another decoder's logits are recorded before temperature and top-p
        self.settings: SessionSettings | None = None
        self._processors = None
        if not self.outside:
            self.settings = SessionSettings.of(trace.settings)
            most = self.settings.max_new_tokens
            self._processors = pair.rules.processors(pair.target.model, len(trace.prompt_ids), most)
        own = precision(str(self.runner.dtype))
        recorded = precision(str(trace.models.get("target_dtype") or own))
        self.dtype = own if recorded == "float32" else recorded
        model = self.runner.model
        self.model = model if own == "float32" else deepcopy(model).float()
        self.answers = self.passes("float32", plain=True)

    def passes(self, dtype: str, *, plain: bool = False) -> Passes:
        """The model's own passes over the trees in a precision.

        Args:
            plain: run a session's paths one by one, without a tree mask. Another decoder's run at
                once, 3 times as fast: the mask was compared with plain passes when the pair was
                loaded.
        """
        kind = type(self.runner)
        if plain and not self.outside and not issubclass(kind, PathRunner):
            kind = PathRunner
        runner = self.runner.beside(lowered(self.model, dtype), kind)
        runner.allow_nonfinite = True

        def logits(step: Step) -> Tensor:
            self.report(step)
            return tree_pass(runner, self.text, step)

        return logits

    def report(self, step: Step) -> None:
        """Report that a pass of this step comes next."""
        if self.progress is not None:
            self.progress(step.index, len(self.trace.steps))

    def log_probs(self, step: Step, logits: Tensor, nodes: Sequence[int] | None = None) -> Tensor:
        """What is recorded of logits `[m, V]` of these nodes, by default of all."""
        if self._processors is not None:
            prefix = self.text[: step.prefix_length]
            rows = []
            asked = range(len(logits)) if nodes is None else nodes
            for node, row in zip(asked, logits, strict=True):
                path = step.tree.token[list(step.tree.path(node))].tolist()
                rows.append(self._processors([*prefix, *path], row))
            logits = torch.stack(rows)
        if self.settings is not None:
            return transform(logits, self.settings).float().log().clamp_min(FLOOR).cpu()
        return (logits.float() / self.heat).log_softmax(-1).clamp_min(FLOOR).cpu()

    def gaps(self, step: Step, right: Tensor, given: Tensor | None = None) -> list[float]:
        """For each node the largest difference of a recorded log-probability; or that of `given`
        log-probabilities `[n, V]` of the recorded tokens. Infinite if a row has no numbers."""
        gaps = []
        for row, node in enumerate(step.nodes):
            other = None if given is None else given[row]
            gaps.append(self.gap(differences(node.target_top, right[row], other)))
        return gaps

    def gap(self, difference: Tensor) -> float:
        """The largest difference. A draft's may be normalised over fewer tokens than it has, by a smaller
        vocabulary or a cut, so all of a row may be too high by one constant."""
        if not len(difference):
            return 0.0
        low, high = float(difference.min()), float(difference.max())
        if low != low:
            return inf
        constant = max(0.0, (low + high) / 2) if self.drafts else 0.0
        return max(high - constant, constant - low)

    def choices(self, step: Step, log_probs: Tensor) -> list[float]:
        """For each node how far its recorded choice is below the best token; 0 without a greedy choice."""
        below = [0.0] * len(step.nodes)
        if step.rule == GREEDY and not self.trace.models.get("processed"):
            for row, node in enumerate(step.nodes):
                if node.target_choice != UNKNOWN and row not in step.not_numbers:
                    below[row] = float(log_probs[row].max() - log_probs[row, node.target_choice])
        return below


def differences(
    top: Sequence[tuple[int, float]], right: Tensor, given: Tensor | None = None
) -> Tensor:
    """Recorded (or given) log-probabilities less the right ones `[V]`, of the recorded tokens."""
    tokens = [token for token, _ in top]
    recorded = torch.tensor([prob for _, prob in top]).log().clamp_min(FLOOR)
    if given is not None:
        recorded = given[tokens]
    return recorded - right[tokens].float().cpu()


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


def row_pass(runner: Runner, tokens: Ints, positions: Ints, seen: Bools) -> Tensor:
    """Logits `[m, V]` of rows that see `seen` `[m, entries + m]`; the cache stays as it was."""
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
    the model's own pass in the recorded precision, empty if not measured. `wrong`: rows whose gap
    rounding cannot explain. `before`: the median gap of the iterations before, where it is the
    level.
    """

    step: Step
    gaps: Sequence[float]
    choices: Sequence[float]
    reference: Sequence[float] = ()
    levels: Sequence[float] = ()
    wrong: Sequence[int] = ()
    before: float = 0.0

    @property
    def compared(self) -> tuple[tuple[float, float | None] | None, ...]:
        """The gap of each node and that of the reference, as `Step.gaps`."""
        rows: list[tuple[float, float | None] | None] = []
        for row, node in enumerate(self.step.nodes):
            reference = self.reference[row] if self.reference else None
            rows.append((min(self.gaps[row], -FLOOR), reference) if node.target_top else None)
        return tuple(rows)

    @property
    def misses(self) -> list[int]:
        """Rows whose choice is too far below the best token for a tie."""
        return [row for row, gap in enumerate(self.choices) if gap > FACTOR * self.levels[row]]


def measure(oracle: Oracle, references: int = SAMPLE, watch: Watch | None = None) -> list[Measured]:
    """Measure every iteration of the run, and up to `references` of them beside the reference.

    Rows without recorded top-k and choice have the gap 0.
    """
    rounded = oracle.dtype != "float32" and oracle.close is None
    reference = oracle.passes(oracle.dtype or "int4") if rounded or references > SAMPLE else None
    stride = max(1, len(oracle.steps) // references)  # the reference is spread over the run
    run: list[Measured] = []
    gaps: list[float] = []
    usual = 0.0
    for step in oracle.steps:
        logits = oracle.answers(step)
        right = oracle.log_probs(step, logits)
        measured = Measured(step, oracle.gaps(step, right), oracle.choices(step, right))
        suspect = bool(_wrong(measured.gaps, [usual] * len(step.nodes), EXCESS))
        if reference is not None and (step.index % stride == 0 or suspect):
            given = oracle.log_probs(step, reference(step))
            measured = replace(measured, reference=oracle.gaps(step, right, given))
            gaps += [gap for gap in measured.reference if gap]
            usual = median(gaps or [0.0])
        run.append(measured)
        if watch is not None:
            watch(step, logits, max(usual, FLOAT32))
    return _judged(oracle, run, max(usual, FLOAT32))


def _judged(oracle: Oracle, run: Sequence[Measured], usual: float) -> list[Measured]:
    """With levels and wrong rows. `usual`: the median gap of the reference."""
    gaps: list[float] = []
    for measured in run:
        gaps += [gap for gap in measured.gaps if gap]
    own = max(median(gaps or [0.0]), FLOAT32)
    rough = oracle.close is None and oracle.dtype not in (*HALF, "float32")
    if oracle.close is not None:
        usual = oracle.close / FACTOR
    elif rough:
        usual = min(own, usual)
    elif oracle.dtype == "float32":
        usual = min(own, FLOAT32_MOST)
    before: list[float] = []
    judged = []
    for measured in run:
        levels = [usual] * len(measured.gaps)
        if measured.reference and oracle.dtype in HALF and oracle.close is None:
            levels = [sqrt((gap * gap + usual * usual) / 2) for gap in measured.reference]
        if rough and before:
            # The reference rounds otherwise than the engine, so the run's own passes say more.
            measured = replace(measured, before=median(before))
            levels = [min(usual, max(measured.before, FLOAT32))] * len(measured.gaps)
        wrong = _wrong(measured.gaps, levels, EXCESS if oracle.close is None else inf)
        judged.append(replace(measured, levels=levels, wrong=wrong))
        if not wrong:
            before += [gap for gap in measured.gaps if gap]
    return judged


def _wrong(gaps: Sequence[float], levels: Sequence[float], excess: float) -> list[int]:
    """The rows far above their levels; those above twice their levels if all are too large."""
    ratios = [gap / max(level, 1e-9) for gap, level in zip(gaps, levels, strict=True)]
    logs = [log(min(max(ratio, 0.01), 1e6)) for ratio in ratios if ratio]
    raised = bool(logs) and mean(logs) > excess + SPREAD / sqrt(len(logs))
    most = RAISED if raised else FACTOR
    return [row for row, ratio in enumerate(ratios) if ratio > most]
