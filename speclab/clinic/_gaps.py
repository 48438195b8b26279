"""How far the recorded answers are from the plain ones, and what of it rounding explains.

What rounding gives is measured: the model's own pass over the tree in the recorded precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np
from torch import Tensor

from speclab.clinic._plain import FLOOR, HALF, Oracle
from speclab.trace.records import Step
from speclab.tree import Floats

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
    """One iteration, by row `[n]`.

    `gaps`: of the recorded answers to the plain ones. `choices`: how far each recorded choice is
    below the best token. `levels`: the gaps that rounding alone would give. `reference`: the gaps of
    the model's own pass in the recorded precision, None if not measured. `wrong`: rows whose gap
    rounding cannot explain; `misses`: whose choice is too far below the best token for a tie.
    `before`: the median gap of the iterations before, where it is the level.
    """

    step: Step
    gaps: Floats
    choices: Floats
    levels: Floats
    reference: Floats | None = None
    wrong: Sequence[int] = ()
    misses: Sequence[int] = ()
    before: float = 0.0

    @property
    def compared(self) -> tuple[tuple[float, float | None] | None, ...]:
        """The gap of each node and that of the reference, as `Step.gaps`."""
        rows: list[tuple[float, float | None] | None] = []
        for row, node in enumerate(self.step.nodes):
            reference = None if self.reference is None else float(self.reference[row])
            gap = min(float(self.gaps[row]), -FLOOR)
            rows.append((gap, reference) if node.target_top else None)
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
    rounded: list[Floats] = []
    usual = 0.0
    for step in oracle.steps:
        logits = oracle.answers(step)
        right = oracle.log_probs(step, logits)
        gaps = oracle.gaps(step, right)
        levels = np.full(len(gaps), usual)
        measured = Measured(step, gaps, oracle.choices(step, right), levels)
        suspect = _beyond(gaps, levels, EXCESS)
        if reference is not None and (step.index % stride == 0 or suspect):
            given = oracle.log_probs(step, reference(step))
            rounded.append(oracle.gaps(step, right, given))
            measured = replace(measured, reference=rounded[-1])
            usual = _median(rounded)
        run.append(measured)
        if watch is not None:
            watch(step, logits, max(usual, FLOAT32))
    return _judged(oracle, run, max(usual, FLOAT32))


def _judged(oracle: Oracle, run: Sequence[Measured], usual: float) -> list[Measured]:
    """With levels and wrong rows. `usual`: the median gap of the reference."""
    own = max(_median([measured.gaps for measured in run]), FLOAT32)
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
    before: list[Floats] = []
    judged = []
    for measured in run:
        levels = np.full(len(measured.gaps), usual)
        if half and measured.reference is not None:
            levels = np.sqrt((measured.reference**2 + usual**2) / 2)
        if rough and before:
            # the reference rounds otherwise than the engine, so the run's own passes say more
            measured = replace(measured, before=_median(before))
            levels[:] = min(usual, max(measured.before, FLOAT32))
        wrong = _beyond(measured.gaps, levels, excess)
        misses = _above(measured.choices, FACTOR * levels)
        if oracle.exact:  # nothing is rounding, but a fault may be larger than that
            wrong = wrong or _above(measured.gaps, EXACT)
            misses = _above(measured.choices, EXACT)
        judged.append(replace(measured, levels=levels, wrong=wrong, misses=misses))
        if not wrong and measured.gaps.any():
            before.append(measured.gaps)
    return judged


def _median(parts: Sequence[Floats]) -> float:
    """The median of the gaps that are not 0."""
    every = np.concatenate(parts)
    compared = every[every > 0]
    if not len(compared):
        return 0.0
    return float(np.median(compared))


def _beyond(gaps: Floats, levels: Floats, excess: float) -> list[int]:
    """The rows far above their levels; those above twice their levels if all are too large."""
    levels = np.maximum(levels, LEAST)
    ratios = gaps[gaps > 0] / levels[gaps > 0]
    if len(ratios):
        mean = np.log(ratios.clip(0.01, 1e6)).mean()
        if mean > excess + SPREAD / sqrt(len(ratios)):
            return _above(gaps, RAISED * levels)
    return _above(gaps, FACTOR * levels)


def _above(gaps: Floats, most: Floats | float) -> list[int]:
    """The rows whose gap is above it."""
    rows: list[int] = np.flatnonzero(gaps > most).tolist()
    return rows
