"""How far each recorded answer is from the plain one, beside how far a healthy answer would be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log, sqrt
from statistics import mean, median

from torch import Tensor

from speclab.clinic._oracle import (
    FACTOR,
    FLOAT32,
    FLOAT32_MOST,
    HALF,
    SAMPLE,
    SHARE,
    Oracle,
)
from speclab.trace.records import Step

COARSE = 1.3
"""As `SHARE`, below 16 bits, where the engine's way of rounding is not known."""
TINY = 1e-9
Watch = Callable[[Step, Tensor], object]


@dataclass(frozen=True)
class Measured:
    """One iteration: the `gaps` of its rows, and their `levels`, what rounding alone would give.

    `choices`: how far each recorded choice is below the best token. `reference`: the gaps of the
    pair's own pass in the recorded precision, empty if not measured. `wrong`: rows whose gap rounding
    does not explain. `excess`: the mean logarithm of gap over level.
    """

    step: Step
    gaps: tuple[float, ...]
    choices: tuple[float, ...]
    reference: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()
    wrong: tuple[int, ...] = ()
    excess: float = 0.0

    @property
    def misses(self) -> tuple[int, ...]:
        """Rows whose choice is too far below the best token for a tie."""
        return tuple(
            [row for row, gap in enumerate(self.choices) if gap > FACTOR * self.levels[row]]
        )

    @property
    def ties(self) -> tuple[int, ...]:
        """Rows whose choice is not the best token, but as close as rounding."""
        return tuple(
            [row for row, gap in enumerate(self.choices) if 0 < gap <= FACTOR * self.levels[row]]
        )


def measure(oracle: Oracle, references: int = SAMPLE, watch: Watch | None = None) -> list[Measured]:
    """Every iteration of the run; up to `references` of them beside the reference. `watch` is called
    with each step and its right log-probabilities.

    Rows without recorded top-k and choice have the gap 0.
    """
    lowered = references > SAMPLE or (oracle.dtype != "float32" and oracle.close is None)
    reference = oracle.reference(oracle.dtype or "int4") if lowered else None
    stride = max(1, len(oracle.steps) // references) if references > SAMPLE else 1
    measured: list[Measured] = []
    usual = 0.0
    for step in oracle.steps:
        right = oracle.log_probs(step, oracle.answers(step))
        if watch is not None:
            watch(step, right)
        one = Measured(step, tuple(oracle.gaps(step, right)), tuple(oracle.choices(step, right)))
        if reference is not None:
            asked = step.index % stride == 0 and step.index // stride < references
            if asked or _judged(one, [usual] * len(one.gaps), SHARE).wrong:
                one = replace(one, reference=tuple(oracle.healthy(reference, step, right)))
                seen = [gap for each in (*measured, one) for gap in each.reference]
                usual = median(seen)
        measured.append(one)
    return _judge(oracle, measured)


def _judge(oracle: Oracle, measured: Sequence[Measured]) -> list[Measured]:
    known = [gap for one in measured for gap in one.reference]
    own = median([gap for one in measured for gap in one.gaps if gap] or [0.0])
    share = SHARE if oracle.dtype in (*HALF, "float32") else COARSE
    if oracle.close is not None:
        usual = oracle.close / FACTOR
    elif oracle.dtype == "float32" or not known:
        usual = min(max(own, FLOAT32), FLOAT32_MOST)
    else:
        usual = max(median(known), FLOAT32)
        usual = usual if oracle.dtype else max(min(usual, own), FLOAT32)
    judged = []
    for one in measured:
        levels = [usual] * len(one.gaps)
        if one.reference and oracle.dtype not in ("", "float32"):
            levels = [sqrt((gap * gap + usual * usual) / 2) for gap in one.reference]
        judged.append(_judged(one, levels, share if oracle.close is None else 99.0))
    return judged


def _judged(one: Measured, levels: Sequence[float], share: float) -> Measured:
    """With the rows that rounding does not explain: far above their level, or, if the whole iteration
    is above, twice their level."""
    ratios = [gap / max(level, TINY) for gap, level in zip(one.gaps, levels, strict=True)]
    asked = [ratio for ratio in ratios if ratio]
    excess = mean([log(min(max(ratio, 0.01), 1e6)) for ratio in asked]) if asked else 0.0
    wrong = [row for row, ratio in enumerate(ratios) if ratio > FACTOR]
    if asked and excess > share + 1.2 / sqrt(len(asked)):
        wrong = [row for row, ratio in enumerate(ratios) if ratio > 2]
    return replace(one, levels=tuple(levels), wrong=tuple(wrong), excess=excess)
