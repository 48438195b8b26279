"""Finds the cause of wrong answers: runs changed passes, and names a cause only if it wins.

A change wins if it brings most wrong rows of the iteration to what rounding alone would give, and to
at most a third of the right pass's gap. The best fit of all is named, with the next other kind if it
is close. If nothing wins, the finding says what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import median
from typing import NamedTuple

from speclab.clinic._detectors import name
from speclab.clinic._passes import Change
from speclab.clinic._plain import HALF, TINY, Measured, Oracle
from speclab.clinic._search import UNCHANGED, Search
from speclab.clinic._variants import variants
from speclab.trace.records import Finding

AT_LEVEL = 4.0
"""A row is at the level of rounding if its gap is below this many times the expected one."""
MOST = 0.6
"""Share of the wrong rows that a cause must bring to the level."""
THIRD = 1 / 3
"""Of the right pass's gap: a cause must bring a row below it."""
HALVED = 0.5
"""Of the right pass's cost: a cause must cost less."""
CLOSE_CALL = 1.5
"""Another kind is named beside the best if its cost is below this many times the best one's."""
CLEAR = 0.15
"""Below this share of the right pass's cost, nothing else is tried."""


class Fit(NamedTuple):
    """A change and how it fits: the `gaps` it leaves; its `cost`, the sum over wrong rows of the
    logarithm of gap over level, plus the change's weight; whether it `wins`: most wrong rows fall to
    the level of rounding and to a third of their gap."""

    change: Change
    gaps: tuple[float, ...]
    cost: float
    wins: bool


def fit_of(change: Change, gaps: Sequence[float], measured: Measured) -> Fit:
    good = [
        row
        for row in measured.wrong
        if gaps[row] <= min(AT_LEVEL * measured.levels[row], THIRD * measured.gaps[row])
    ]
    wins = len(good) >= MOST * len(measured.wrong)
    return Fit(change, tuple(gaps), cost_of(gaps, measured) + change.weight, wins)


def cost_of(gaps: Sequence[float], measured: Measured) -> float:
    """In nats; of rows that were right only what is above the level counts."""
    cost = 0.0
    for row, (gap, level) in enumerate(zip(gaps, measured.levels, strict=True)):
        usual = level if row in measured.wrong else AT_LEVEL * level
        cost += log(min(max(gap / max(usual, TINY), 1.0), 1e9))
    return cost


def explain_answers(oracle: Oracle, run: Sequence[Measured], first: int) -> tuple[Finding, bool]:
    """What is wrong with the answers of the iteration `first` of a run, and which change of its pass
    gives what was recorded; and whether one does."""
    measured = run[first]
    if not measured.wrong:
        return _missed(measured), True
    step = measured.step
    search = Search(oracle, measured, run[first - 1].step if first else None)
    unchanged = fit_of(UNCHANGED, search.gaps(UNCHANGED), measured)
    if unchanged.wins:  # on the rows that were accepted before, whatever was committed
        says = "the cache holds the tokens of the accepted path, and not those that were committed"
        return _named(measured, [unchanged._replace(change=Change("commit", says))]), True
    right = cost_of(measured.gaps, measured)
    fits: list[Fit] = []
    tries = ((search.simple(), CLEAR), (search.scanned(), HALVED), (variants(search), HALVED))
    for changes, enough in tries:  # the fastest first
        fits += [fit_of(change, search.gaps(change), measured) for change in changes]
        fits.sort(key=lambda fit: fit.cost)
        best = fits[0]
        won = best.wins and best.cost <= HALVED * right
        if won and best.cost <= enough * right:
            break
    if won:
        return _named(measured, fits), True
    kind = "answer"
    more = "No change of the pass that was tried explains it"
    if measured.before:
        more += f"; the gaps of the passes before are {measured.before:.2g} in the median"
    elif oracle.dtype not in ("float32", *HALF):
        kind = "precision"
        more += f", and the recorded precision is {oracle.dtype or 'not known'}"
    sentence = f"{_measured(measured)} {more}."
    return Finding(step.index, measured.wrong[0], kind, sentence, count=len(measured.wrong)), False


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


def _named(measured: Measured, fits: Sequence[Fit]) -> Finding:
    best = fits[0]
    kind = best.change.kind
    left = median([best.gaps[row] for row in measured.wrong])
    sentence = (
        f"{_measured(measured)} It is as if {best.change.says}: then the median is {left:.2g}"
    )
    enough = CLOSE_CALL * best.cost + 1
    for close in [
        fit for fit in fits if fit.change.kind != kind and fit.wins and fit.cost < enough
    ][:1]:
        sentence += f"; almost as well, as if {close.change.says} ({close.change.kind})"
    count = len(measured.wrong)
    fault = best.change.fault
    return Finding(measured.step.index, measured.wrong[0], kind, sentence + ".", fault, count)


def _measured(measured: Measured) -> str:
    """Which rows are wrong, and by how much."""
    wrong = measured.wrong
    n = len(measured.gaps)
    depths = sorted({int(measured.step.tree.depth[row]) for row in wrong})
    about = f"depth{f's {depths[0]} to' if depths[1:] else ''} {depths[-1]}"
    rows = ", ".join(map(str, wrong[:6])) + ", …" * (len(wrong) > 6)
    which = f"{'Rows' if len(wrong) > 1 else 'Row'} {rows} of {n}"
    if len(wrong) == n:
        which = f"All {n} rows" if n > 1 else "The only row"
    has = f"{'have wrong answers' if len(wrong) > 1 else 'has a wrong answer'}"
    gaps = [measured.gaps[row] for row in wrong]
    return (
        f"{which} {has} (at {about}; gap to the plain pass: median {median(gaps):.2g}, largest "
        f"{max(gaps):.2g}; rounding: {median(measured.levels):.1g})."
    )
