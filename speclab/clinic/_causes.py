"""Finds the cause of wrong answers: runs changed passes, and names a cause only if it wins.

A change wins if it brings most wrong rows of the iteration to what rounding alone would give, and to
at most a third of the right pass's gap. The best fit of all is named, with the next other kind if it
is close. If nothing wins, two changes at once are tried; then the finding says what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, log
from statistics import median

import numpy as np

from speclab.clinic._detectors import name
from speclab.clinic._measure import TINY, Measured
from speclab.clinic._oracle import HALF, Oracle
from speclab.clinic._passes import Bench, Change
from speclab.clinic._search import Search
from speclab.clinic._variants import turn, variants
from speclab.trace.records import Finding

LEVEL = 3.0
"""A row is at the level of rounding if its gap is below this many times the expected one."""
MOST = 0.6
"""Share of the wrong rows that a cause must bring to the level."""
THIRD = 1 / 3
CLOSE_CALL = 1.5
"""Another kind is named beside the best if its cost is below this many times the best one's."""
STRUCTURE = 0.85
"""Below this share of the right pass's cost, a change has something to do with the cause."""
CLEAR = 0.15
"""Below this share of the right pass's cost, nothing else is tried."""
BASES = 3
"""Changes that are tried as the larger of two faults."""
RIGHT = Change("answer", "")
"""The right pass."""


@dataclass(frozen=True)
class Fit:
    """A change and how it fits: the `gaps` it leaves; its `cost`, the sum over rows of the logarithm of
    gap over level, plus the change's weight."""

    change: Change
    gaps: tuple[float, ...]
    cost: float

    def wins(self, measured: Measured) -> bool:
        """Whether most wrong rows come to the level, and to a third."""
        good = [
            row
            for row in measured.wrong
            if self.gaps[row] <= LEVEL * measured.levels[row]
            and self.gaps[row] <= THIRD * measured.gaps[row]
        ]
        return len(good) >= MOST * len(measured.wrong)


def cost_of(gaps: Sequence[float], levels: Sequence[float]) -> float:
    ratios = [gap / max(level, TINY) for gap, level in zip(gaps, levels, strict=True)]
    return sum(log(min(max(ratio, 1.0), 1e9)) for ratio in ratios)


def explain_answers(
    oracle: Oracle, measured: Measured, before: Measured | None
) -> tuple[Finding, bool]:
    """What is wrong with the answers of an iteration, and which change of its pass gives what was
    recorded; and whether one does."""
    step = measured.step
    if not measured.wrong:
        return _missed(measured), True
    bench = Bench(oracle, step, None if before is None else before.step)
    (unchanged,) = _fits(bench, measured, [RIGHT])
    if unchanged.wins(measured):  # on the rows that were accepted before, whatever was committed
        says = "the cache holds the tokens of the accepted path, and not those that were committed"
        return _named(measured, replace(unchanged, change=Change("commit", says)), ()), True
    fits = _tried(bench, measured)
    right = cost_of(measured.gaps, measured.levels)
    best = _winner(fits, measured)
    if best is None:
        best = _two(bench, measured, fits)
    if best is not None:
        return _named(measured, best, fits), True
    nearest = min(fits, key=lambda fit: fit.cost)
    structure = nearest.cost < STRUCTURE * right
    if not structure and (dtype := _rounding(oracle, measured)):
        sentence = (
            f"{_measured(measured)} This is as in {dtype}, and no change of the pass explains it."
        )
        return Finding(step.index, measured.wrong[0], "precision", sentence), False
    more = "No change of the pass that was tried explains it"
    if structure:
        more += f"; the nearest is that {nearest.change.says} ({nearest.change.kind})"
    sentence = f"{_measured(measured)} {more}."
    return Finding(step.index, measured.wrong[0], "answer", sentence), False


def _missed(measured: Measured) -> Finding:
    """A choice that is wrong where no recorded top-k is."""
    step = measured.step
    row = measured.misses[0]
    node = step.nodes[row]
    sentence = (
        f"{name(step, row)} has the choice {node.target_choice}, which is {measured.choices[row]:.2g} "
        "below the best token in the logarithm"
    )
    if not node.target_top:
        return Finding(step.index, row, "answer", f"{sentence}. Record top-k to find the cause.")
    return Finding(step.index, row, "choice", f"{sentence}, though the recorded top-k is right.")


def _tried(bench: Bench, measured: Measured) -> list[Fit]:
    """All fits, the best first; changes of the model are tried if nothing simpler wins."""
    search = Search(bench, measured, RIGHT)
    fits = _fits(bench, measured, search.simple())
    best = _winner(fits, measured)
    if best is not None and best.cost < CLEAR * cost_of(measured.gaps, measured.levels):
        return sorted(fits, key=lambda fit: fit.cost)
    fits += _fits(bench, measured, search.scanned())
    if _winner(fits, measured) is None:
        fits += _fits(bench, measured, variants(bench, measured))
        fits += _turned(bench, measured, fits)
    return sorted(fits, key=lambda fit: fit.cost)


def _turned(bench: Bench, measured: Measured, fits: Sequence[Fit]) -> list[Fit]:
    """The best of the changes that have a factor, with better factors: a search by halves."""
    turned = [fit for fit in fits if fit.change.factor]
    if not turned:
        return []
    best = min(turned, key=lambda fit: fit.cost)
    if best.cost > STRUCTURE * cost_of(measured.gaps, measured.levels):
        return []
    found: list[Fit] = []
    step = 0.2
    for _ in range(6):
        factors = [best.change.factor * (1 + each) for each in (step, -step)]
        what = best.change.variant.name.split()[0]
        near = [turn(bench, what, factor) for factor in factors]
        found += _fits(bench, measured, near)
        best = min([best, *found], key=lambda fit: fit.cost)
        step /= 2
    return found


def _fits(
    bench: Bench, measured: Measured, changes: Iterable[Change], base: Change = RIGHT
) -> list[Fit]:
    composed = [each for change in changes if (each := change.on(base)) is not None]
    gaps = bench.gaps(composed)
    return [
        Fit(change, tuple(theirs), cost_of(theirs, measured.levels) + change.weight)
        for change, theirs in zip(composed, gaps, strict=True)
    ]


def _winner(fits: Sequence[Fit], measured: Measured) -> Fit | None:
    """The best fit, if it wins."""
    right = cost_of(measured.gaps, measured.levels)
    best = min(fits, key=lambda fit: fit.cost, default=None)
    if best is not None and best.cost <= right / 2 and best.wins(measured):
        return best
    return None


def _two(bench: Bench, measured: Measured, fits: Sequence[Fit]) -> Fit | None:
    """The larger of two faults: a change on top of which another one wins, or that helps much more
    than any other kind."""
    right = cost_of(measured.gaps, measured.levels)
    bases = [fit for fit in fits if fit.cost < 0.85 * right][:BASES]
    both: list[tuple[float, Fit]] = []
    for base in bases:
        search = Search(bench, measured, base.change)
        top = _fits(bench, measured, search.simple(), base.change)
        won = _winner(top, measured)
        if won is not None:
            both.append((won.cost, base))
    if both:
        return min(both, key=lambda pair: pair[0])[1]
    if not bases:
        return None
    first = bases[0]
    ratios = [first.gaps[row] / measured.gaps[row] for row in measured.wrong]
    others = [fit.cost for fit in fits if fit.change.kind != first.change.kind]
    clear = min(others, default=inf) > CLOSE_CALL * first.cost
    return first if clear and median(ratios) <= THIRD else None


def _named(measured: Measured, best: Fit, fits: Sequence[Fit]) -> Finding:
    change = best.change
    left = median([best.gaps[row] for row in measured.wrong])
    sentence = f"{_measured(measured)} It is as if {change.says}: then the median is {left:.2g}"
    close = next(
        (fit for fit in fits if fit.change.kind != change.kind and fit.wins(measured)), None
    )
    if close is not None and close.cost < CLOSE_CALL * best.cost + 1:
        sentence += f"; almost as well, as if {close.change.says} ({close.change.kind})"
    node = measured.wrong[0]
    return Finding(measured.step.index, node, change.kind, sentence + ".", change.fault)


def _measured(measured: Measured) -> str:
    """Which rows are wrong, and by how much."""
    step = measured.step
    wrong = list(measured.wrong)
    n = len(measured.gaps)
    depths = sorted({int(step.tree.depth[row]) for row in wrong})
    rows = ", ".join(map(str, wrong[:6])) + (", …" if len(wrong) > 6 else "")
    which = "All rows" if len(wrong) == n else f"Row{'s' * (len(wrong) > 1)} {rows} of {n}"
    gaps = [measured.gaps[row] for row in wrong]
    about = (
        f"at depth {depths[0]}" if len(depths) == 1 else f"at depths {depths[0]} to {depths[-1]}"
    )
    has = "have wrong answers" if len(wrong) > 1 else "has a wrong answer"
    usual = median(measured.levels)
    return (
        f"{which} {has} ({about}; gap to the plain pass: median {median(gaps):.2g}, largest "
        f"{max(gaps):.2g}; rounding: {usual:.1g})."
    )


def _rounding(oracle: Oracle, measured: Measured) -> str:
    """The lower precision whose gaps are like the recorded ones, in all rows; "" if there is none."""
    gaps = np.array(measured.gaps)
    asked = gaps[gaps > 0]
    if len(asked) < MOST * len(gaps) or not len(asked) or asked.max() > 8 * np.median(asked):
        return ""
    if measured.gaps[0] < np.median(asked) / 5:
        return ""
    fit = ("", 1.0)
    order = ["bfloat16", "float8", "int8", "int4", "float16"]
    for dtype in order:
        if dtype == oracle.dtype or (dtype == "float16" and oracle.dtype in HALF):
            continue
        fresh = Oracle(oracle.trace, oracle.pair)
        right = fresh.log_probs(measured.step, fresh.answers(measured.step))
        typical = median(fresh.healthy(fresh.reference(dtype), measured.step, right))
        apart = abs(log(max(float(np.median(asked)), TINY) / max(typical, TINY)))
        if apart < fit[1]:
            fit = dtype, apart
    return fit[0]
