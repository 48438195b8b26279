"""The cause of wrong answers: runs changed passes, and names a cause only if it wins.

A change wins if it brings most wrong rows of the iteration to what rounding alone would give, and to
at most a third of the right pass's gap. The best fit of all is named. If nothing wins, the finding says
what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

from speclab.clinic import _changes
from speclab.clinic._heads import HeadOracle
from speclab.clinic._passes import Change, Passes
from speclab.clinic._plain import HALF, Measured, Oracle
from speclab.clinic._record import name, word
from speclab.trace.records import Finding

AT_LEVEL = 4.0
"""A row is at the level of rounding if its gap is below this many times the expected one."""
MOST = 0.6
"""Share of the wrong rows that a cause must bring to the level: faults that overlap leave the rest."""
THIRD = 1 / 3
"""Of the right pass's gap: a cause must bring a row below it."""
HALVED = 0.5
"""Of the right pass's cost: a cause must cost less. Of 14 planted faults of the mini family the right cause cost
up to .08, the best wrong one from .58 on."""
CLEAR = 0.15
"""Below this share of the right pass's cost nothing else is tried."""


@dataclass(frozen=True)
class Cause:
    """What is wrong with an iteration's answers. `says`: the change that explains it, "" if none does."""

    finding: Finding
    says: str


@dataclass(frozen=True)
class Fit:
    """A change, the gaps that it leaves, and its cost: the sum over the rows of the logarithm of gap
    over level, plus its weight. `wins`: most wrong rows fall to the level of rounding."""

    change: Change
    gaps: Sequence[float]
    cost: float
    wins: bool


def explain_answers(oracle: Oracle, run: Sequence[Measured], first: int) -> Cause:
    """What is wrong with the answers of the iteration `first` of a run, and which change of its pass
    gives what was recorded."""
    measured = run[first]
    if not measured.wrong:
        return Cause(_missed(measured), "the choice was made otherwise")
    passes = Passes(oracle, measured, run[first - 1].step if first else None)
    # the right pass runs on the rows that were accepted before, whatever was committed
    says = "the cache holds the tokens of the accepted path, and not those that were committed"
    best = _fit(passes, Change("commit", says, lambda: passes.logits))
    right = _cost(measured, measured.gaps)
    explained = best.wins
    for group in () if explained else _groups(oracle, passes):
        for changes in group:
            fits = [_fit(passes, change) for change in changes]
            best = min([best, *fits], key=lambda fit: fit.cost)
        explained = best.wins and best.cost <= HALVED * right
        if explained and best.cost <= CLEAR * right:
            break
    if explained:
        left = median([best.gaps[row] for row in measured.wrong])
        more = f"It is as if {best.change.says}: then the median is {left:.2g}."
        finding = _finding(measured, best.change.kind, more, best.change.fault)
        return Cause(finding, best.change.says)
    kind = "answer"
    more = "No change of the pass that was tried explains it"
    if measured.before:
        more += f"; the gaps of the passes before are {measured.before:.2g} in the median"
    elif oracle.dtype not in ("float32", *HALF):
        kind = "precision"
        more += f", and the recorded precision is {oracle.dtype or 'not known'}"
    return Cause(_finding(measured, kind, f"{more}."), "")


def _groups(oracle: Oracle, passes: Passes) -> Iterator[list[Iterator[Change]]]:
    """All changes, the fastest first; a head runs no trees by itself."""
    if isinstance(oracle, HeadOracle):
        yield [_changes.answers(passes), oracle.changes(passes.step)]
        return
    for group in _changes.GROUPS:
        yield [make(passes) for make in group]


def _fit(passes: Passes, change: Change) -> Fit:
    measured = passes.measured
    gaps = passes.gaps(change)
    good = 0
    for row in measured.wrong:
        most = min(AT_LEVEL * measured.levels[row], THIRD * measured.gaps[row])
        good += 1 if gaps[row] <= most else 0
    wins = good >= MOST * len(measured.wrong)
    return Fit(change, gaps, _cost(measured, gaps) + change.weight, wins)


def _cost(measured: Measured, gaps: Sequence[float]) -> float:
    """In nats; of rows that were right only what is above the level counts."""
    cost = 0.0
    for row, gap in enumerate(gaps):
        level = max(measured.levels[row], 1e-9)
        if row not in measured.wrong:
            level *= AT_LEVEL
        cost += log(min(max(gap / level, 1.0), 1e9))
    return cost


def _finding(measured: Measured, kind: str, more: str, fault: str = "") -> Finding:
    """Which rows are wrong, by how much, and what explains it."""
    step = measured.step
    wrong = measured.wrong
    n = len(measured.gaps)
    rows = f"Rows {', '.join(map(str, wrong[:6]))}{', …' if wrong[6:] else ''} of {n}"
    if len(wrong) == n:
        rows = f"All {n} rows"
    rows += " have wrong answers"
    if len(wrong) == 1:
        rows = f"Row {wrong[0]} of {n} has a wrong answer"
    depths = sorted({int(step.tree.depth[row]) for row in wrong})
    gaps = [measured.gaps[row] for row in wrong]
    sentence = (
        f"{rows} (at depths {depths[0]} to {depths[-1]}; gap to the plain pass: median {median(gaps):.2g}, "
        f"largest {max(gaps):.2g}; rounding: {median(measured.levels):.1g}). {more}"
    )
    return Finding(step.index, wrong[0], kind, sentence, fault, len(wrong))


def _missed(measured: Measured) -> Finding:
    """A choice that is wrong where no recorded top-k is."""
    step = measured.step
    row = measured.misses[0]
    node = step.nodes[row]
    sentence = (
        f"{name(step, row)} has the choice {word(step, node.target_choice)}, which is "
        f"{measured.choices[row]:.2g} below the best token in the logarithm"
    )
    if not node.target_top:
        return Finding(step.index, row, "answer", f"{sentence}. Record top-k to find the cause.")
    return Finding(step.index, row, "choice", f"{sentence}, though the recorded top-k is right.")
