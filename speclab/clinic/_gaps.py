"""How far the recorded answers are from the plain ones, and what of it rounding explains.

What rounding gives is measured: the model's own pass over the tree in the recorded precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, log, sqrt
from statistics import mean, median

from torch import Tensor

from speclab.clinic._plain import FLOOR, HALF, Oracle
from speclab.trace.records import Step

FACTOR = 6.0
"""A row is wrong if its gap is above this many times its level. Healthy rows reached 4.1."""
RAISED = 2.0
"""The same for a row of an iteration whose gaps are too large on average. Three hidden entries of a prefix
were named in bfloat16 with it (19 rows of 19), and not without it (6 rows)."""
EXCESS = 0.8
SPREAD = 1.2
"""An iteration of n rows is raised if the mean logarithm of gap over level is above EXCESS + SPREAD / √n.
Healthy ones reached 0.51."""
FLOAT32 = 5e-3 / FACTOR
"""The least level: kernels differ by less in float32."""
FLOAT32_MOST = 5e-3
"""The highest level that a run in float32 may set for itself: a cache in float16 gave 0.005."""
EXACT = 1e-6
"""Where passes are bit for bit nothing is rounding, but that probabilities are recorded in float32."""
LEAST = 1e-9
"""Stands for a level of 0, by which nothing can be divided."""
SAMPLE = 24
"""Iterations whose reference is measured before any is judged: the median of so many is steady."""
Watch = Callable[[Step, Tensor, float], object]
"""Called with each step, its plain logits `[n, V]`, and the usual size of rounding so far."""


@dataclass(frozen=True)
class Measured:
    """One iteration, by row.

    `gaps`: of the recorded answers to the plain ones. `choices`: how far each recorded choice is
    below the best token. `levels`: the gaps that rounding alone would give. `reference`: the gaps of
    the model's own pass in the recorded precision, empty if not measured. `wrong`: rows whose gap
    rounding cannot explain; `misses`: whose choice is too far below the best token for a tie.
    `before`: the median gap of the iterations before, where it is the level.
    """

    step: Step
    gaps: Sequence[float]
    choices: Sequence[float]
    reference: Sequence[float] = ()
    levels: Sequence[float] = ()
    wrong: Sequence[int] = ()
    misses: Sequence[int] = ()
    before: float = 0.0

    @property
    def compared(self) -> tuple[tuple[float, float | None] | None, ...]:
        """The gap of each node and that of the reference, as `Step.gaps`."""
        rows: list[tuple[float, float | None] | None] = []
        for row, node in enumerate(self.step.nodes):
            reference = self.reference[row] if self.reference else None
            rows.append((min(self.gaps[row], -FLOOR), reference) if node.target_top else None)
        return tuple(rows)


def measure(oracle: Oracle, references: int = SAMPLE, watch: Watch | None = None) -> list[Measured]:
    """Measure every iteration of the run, and up to `references` of them beside the reference.

    Rows without recorded top-k and choice have the gap 0.
    """
    reference = None
    if references > SAMPLE or (oracle.dtype != "float32" and oracle.close is None):
        reference = oracle.passes(oracle.dtype or "int4")
    stride = max(1, len(oracle.steps) // references)  # the reference is spread over the run
    run: list[Measured] = []
    gaps: list[float] = []
    usual = 0.0
    for step in oracle.steps:
        logits = oracle.answers(step)
        right = oracle.log_probs(step, logits)
        measured = Measured(step, oracle.gaps(step, right), oracle.choices(step, right))
        suspect = _beyond(measured.gaps, [usual] * len(step.nodes), EXCESS)
        if reference is not None and (step.index % stride == 0 or suspect):
            given = oracle.log_probs(step, reference(step))
            measured = replace(measured, reference=oracle.gaps(step, right, given))
            gaps += filter(None, measured.reference)
            usual = median(gaps or [0.0])
        run.append(measured)
        if watch is not None:
            watch(step, logits, max(usual, FLOAT32))
    return _judged(oracle, run, max(usual, FLOAT32))


def _judged(oracle: Oracle, run: Sequence[Measured], usual: float) -> list[Measured]:
    """With levels and wrong rows. `usual`: the median gap of the reference."""
    every: list[float] = []
    for measured in run:
        every += filter(None, measured.gaps)
    own = max(median(every or [0.0]), FLOAT32)
    excess = EXCESS
    half = oracle.dtype in HALF
    rough = not half and oracle.dtype != "float32"
    if oracle.close is not None:
        usual = oracle.close / FACTOR
        excess = inf
        half = rough = False
    elif rough:
        usual = min(own, usual)
    elif not half:
        usual = min(own, FLOAT32_MOST)
    before: list[float] = []
    judged = []
    for measured in run:
        levels = [usual] * len(measured.gaps)
        if half and measured.reference:
            levels = [sqrt((gap * gap + usual * usual) / 2) for gap in measured.reference]
        if rough and before:
            # the reference rounds otherwise than the engine, so the run's own passes say more
            measured = replace(measured, before=median(before))
            levels = [min(usual, max(measured.before, FLOAT32))] * len(measured.gaps)
        wrong = _beyond(measured.gaps, levels, excess)
        misses = _above(measured.choices, levels, FACTOR)
        if oracle.exact:  # nothing is rounding, but a fault may be larger than that
            nothing = [EXACT] * len(levels)
            wrong = wrong or _above(measured.gaps, nothing, 1.0)
            misses = _above(measured.choices, nothing, 1.0)
        judged.append(replace(measured, levels=levels, wrong=wrong, misses=misses))
        if not wrong:
            before += filter(None, measured.gaps)
    return judged


def _beyond(gaps: Sequence[float], levels: Sequence[float], excess: float) -> list[int]:
    """The rows far above their levels; those above twice their levels if all are too large."""
    logs = []
    for gap, level in zip(gaps, levels, strict=True):
        if gap:
            logs.append(log(min(max(gap / max(level, LEAST), 0.01), 1e6)))
    if logs and mean(logs) > excess + SPREAD / sqrt(len(logs)):
        return _above(gaps, levels, RAISED)
    return _above(gaps, levels, FACTOR)


def _above(gaps: Sequence[float], levels: Sequence[float], factor: float) -> list[int]:
    """The rows whose gap is more than so many times their level."""
    rows = []
    for row, (gap, level) in enumerate(zip(gaps, levels, strict=True)):
        if gap > factor * max(level, LEAST):
            rows.append(row)
    return rows
