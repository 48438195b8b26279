"""Finds the cause of wrong answers: runs changed passes, and names a cause only if it wins.

A change wins if it brings most wrong rows of the iteration to what rounding alone would give, and to
at most a third of the right pass's gap. The best fit of all is named, with the next other kind if it
is close. If nothing wins, the finding says what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

from speclab.clinic._detectors import name
from speclab.clinic._measure import TINY, Measured
from speclab.clinic._oracle import HALF, Oracle
from speclab.clinic._passes import UNCHANGED, Bench, Change
from speclab.clinic._search import Search
from speclab.clinic._variants import variants
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
    (unchanged,) = _fits(bench, measured, [UNCHANGED])
    if unchanged.wins(measured):  # on the rows that were accepted before, whatever was committed
        says = "the cache holds the tokens of the accepted path, and not those that were committed"
        return _named(measured, replace(unchanged, change=Change("commit", says)), ()), True
    fits = _tried(bench, measured)
    right = cost_of(measured.gaps, measured.levels)
    best = _winner(fits, measured)
    if best is not None:
        return _named(measured, best, fits), True
    nearest = min(fits, key=lambda fit: fit.cost)
    structure = nearest.cost < STRUCTURE * right
    if not structure and oracle.dtype not in ("float32", *HALF):
        sentence = (
            f"{_measured(measured)} No change of the pass explains it, and the recorded precision is "
            f"{oracle.dtype or 'not known'}."
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
    """All fits, the best first; what is slower to try is tried only if nothing simpler wins."""
    search = Search(bench, measured)
    fits = _fits(bench, measured, search.simple())
    best = _winner(fits, measured)
    if best is None or best.cost >= CLEAR * cost_of(measured.gaps, measured.levels):
        fits += _fits(bench, measured, search.scanned())
        if _winner(fits, measured) is None:
            fits += _fits(bench, measured, variants(bench, measured))
    return sorted(fits, key=lambda fit: fit.cost)


def _fits(bench: Bench, measured: Measured, changes: Iterable[Change]) -> list[Fit]:
    tried = list(changes)
    return [
        Fit(change, tuple(gaps), cost_of(gaps, measured.levels) + change.weight)
        for change, gaps in zip(tried, bench.gaps(tried), strict=True)
    ]


def _winner(fits: Sequence[Fit], measured: Measured) -> Fit | None:
    """The best fit, if it wins."""
    right = cost_of(measured.gaps, measured.levels)
    best = min(fits, key=lambda fit: fit.cost, default=None)
    if best is not None and best.cost <= right / 2 and best.wins(measured):
        return best
    return None


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
