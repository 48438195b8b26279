"""Finds the cause of wrong answers: runs changed passes, and names a cause only if it wins.

A change wins if it brings most wrong rows of the iteration to what rounding alone would give, and to
at most a third of the right pass's gap. The best fit of all is named. If nothing wins, the finding says
what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import median
from typing import NamedTuple

from speclab.clinic._detectors import name
from speclab.clinic._draft_oracles import HeadOracle, HeadSearch
from speclab.clinic._passes import UNCHANGED, Change
from speclab.clinic._plain import HALF, TINY, Measured, Oracle
from speclab.clinic._search import Search
from speclab.trace.records import Finding

AT_LEVEL = 4.0
"""A row is at the level of rounding if its gap is below this many times the expected one."""
MOST = 0.6
"""Share of the wrong rows that a cause must bring to the level."""
THIRD = 1 / 3
"""Of the right pass's gap: a cause must bring a row below it."""
HALVED = 0.5
"""Of the right pass's cost: a cause must cost less."""
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
    search = (
        HeadSearch(oracle, measured)
        if isinstance(oracle, HeadOracle)
        else Search(oracle, measured, run[first - 1].step if first else None)
    )
    unchanged = fit_of(UNCHANGED, search.gaps(UNCHANGED), measured)
    if unchanged.wins:  # on the rows that were accepted before, whatever was committed
        says = "the cache holds the tokens of the accepted path, and not those that were committed"
        return _named(measured, unchanged._replace(change=Change("commit", says))), True
    right = cost_of(measured.gaps, measured)
    fits: list[Fit] = []
    for changes in search.tries():  # the fastest first
        fits += [fit_of(change, search.gaps(change), measured) for change in changes]
        best = min(fits, key=lambda fit: fit.cost)
        if best.wins and best.cost <= CLEAR * right:
            break
    if best.wins and best.cost <= HALVED * right:
        return _named(measured, best), True
    kind = "answer"
    more = "No change of the pass that was tried explains it"
    if measured.before:
        more += f"; the gaps of the passes before are {measured.before:.2g} in the median"
    elif oracle.dtype not in ("float32", *HALF):
        kind = "precision"
        more += f", and the recorded precision is {oracle.dtype or 'not known'}"
    return _finding(measured, kind, f"{more}."), False


def _finding(measured: Measured, kind: str, more: str, fault: str = "") -> Finding:
    """Which rows are wrong, by how much, and what explains it."""
    step = measured.step
    wrong = measured.wrong
    n = len(measured.gaps)
    depths = sorted({int(step.tree.depth[row]) for row in wrong})
    about = f"depth{f's {depths[0]} to' if depths[1:] else ''} {depths[-1]}"
    rows = ", ".join(map(str, wrong[:6])) + ", …" * (len(wrong) > 6)
    which = f"{'Rows' if len(wrong) > 1 else 'Row'} {rows} of {n}"
    if len(wrong) == n:
        which = f"All {n} rows" if n > 1 else "The only row"
    has = "have wrong answers" if len(wrong) > 1 else "has a wrong answer"
    gaps = [measured.gaps[row] for row in wrong]
    sentence = (
        f"{which} {has} (at {about}; gap to the plain pass: median {median(gaps):.2g}, largest "
        f"{max(gaps):.2g}; rounding: {median(measured.levels):.1g}). {more}"
    )
    return Finding(step.index, wrong[0], kind, sentence, fault, len(wrong))


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


def _named(measured: Measured, best: Fit) -> Finding:
    change = best.change
    left = median([best.gaps[row] for row in measured.wrong])
    more = f"It is as if {change.says}: then the median is {left:.2g}."
    return _finding(measured, change.kind, more, change.fault)
