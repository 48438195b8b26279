"""The cause of wrong answers: runs changed passes, and names a cause only if it wins.

A change wins if it brings most wrong rows of the iteration to what rounding alone would give, and all
rows together to half of the right pass's cost. The best fit of all is named. If nothing wins, the finding says
what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from speclab.clinic._changes import GROUPS, LEAST_RANKS, OF_HEADS, Change
from speclab.clinic._gaps import LEAST, Measured
from speclab.clinic._passes import Passes
from speclab.clinic._plain import HALF, Oracle
from speclab.clinic._record import name, word
from speclab.trace.records import Finding, Step
from speclab.tree import Floats

AT_LEVEL = 4.0
"""A row is at the level of rounding if its gap is below this many times the expected one. Of 90 runs, most in
bfloat16, 1 in its place left 40 faults without a name, and 2 one."""
MOST = 0.6
"""Share of the wrong rows that a cause must bring to the level: faults that overlap leave the rest."""
HALVED = 0.5
"""Of the right pass's cost: a cause must cost less, also by the rows that were right. Of 14 planted faults of the
mini family the right cause cost up to .08, the best wrong one from .58 on."""
CLEAR = 0.15
"""Below this share of the right pass's cost nothing else is tried. Without it positions that were one off in
bfloat16 got the name of a prefix."""

ALL_WRONG = "All {n} rows have wrong answers"
ONE_WRONG = "Row {rows} of {n} has a wrong answer"
SOME_WRONG = "Rows {rows} of {n} have wrong answers"
MANY_WRONG = "Rows {rows}, … of {n} have wrong answers"
EXPLAINED = "It is as if {}: then the median is {:.2g}"
UNEXPLAINED = "No change of the pass that was tried explains it"
UNLIKE_BEFORE = UNEXPLAINED + "; the gaps of the passes before are {:.2g} in the median"
PRECISION = UNEXPLAINED + ", and the recorded precision is {}"
EXACT_BITS = UNEXPLAINED + "; this target's passes are bit for bit, so it is not rounding"
KEPT_PATH = "the cache holds the tokens of the accepted path, and not those that were committed"
BELOW = "{} has the choice {}, which is {:.2g} below the best token in the logarithm"
NO_TOPK = BELOW + ". Record top-k to find the cause."
WRONG_CHOICE = BELOW + ", though the recorded top-k is right."


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
    gaps: Floats
    cost: float
    wins: bool


def explain_answers(oracle: Oracle, run: Sequence[Measured], first: int) -> Cause:
    """What is wrong with the answers of the iteration `first` of a run, and which change of its pass
    gives what was recorded."""
    measured = run[first]
    if not measured.wrong:
        return Cause(_missed(measured), "the choice was made otherwise")
    before = run[first - 1].step if first else None
    best = _best_fit(oracle, Passes(oracle, measured, before))
    if best is not None:
        left = np.median(best.gaps[measured.wrong])
        why = EXPLAINED.format(best.change.says, left)
        finding = _finding(measured, best.change.kind, why)
        return Cause(replace(finding, fault=best.change.fault), best.change.says)
    kind = "answer"
    why = UNEXPLAINED
    if oracle.exact:
        why = EXACT_BITS
    elif measured.before:
        why = UNLIKE_BEFORE.format(measured.before)
    elif oracle.dtype not in ("float32", *HALF):
        kind = "precision"
        why = PRECISION.format(oracle.dtype or "not known")
    return Cause(_finding(measured, kind, why), "")


def _best_fit(oracle: Oracle, passes: Passes) -> Fit | None:
    """The change that explains the recorded answers best; None if none explains them."""
    right = _cost(passes.measured, passes.measured.gaps)
    # the right pass runs on the rows that were accepted before, whatever was committed
    best = _fit(passes, Change("commit", KEPT_PATH, lambda: passes.logits))
    explained = best.wins and best.cost < HALVED * right
    if explained:
        return best
    for group in OF_HEADS if oracle.head else GROUPS:
        for changes in group:
            for change in changes(passes):
                fit = _fit(passes, change)
                if fit.cost < best.cost:
                    best = fit
        explained = best.wins and best.cost < HALVED * right
        if explained and best.cost <= CLEAR * right:
            break
    return best if explained else None


def _fit(passes: Passes, change: Change) -> Fit:
    measured = passes.measured
    right = passes.oracle.log_probs(passes.step, change.run())
    step = passes.step
    if change.ranks:
        step = _with_own_ids(step, right)
    gaps = passes.oracle.gaps(step, right)
    wins = np.mean((gaps <= AT_LEVEL * measured.levels)[passes.wrong]) >= MOST
    return Fit(change, gaps, _cost(measured, gaps) + change.weight, bool(wins))


def _with_own_ids(step: Step, right: Tensor) -> Step:
    """The recorded probabilities with the ids that have their ranks in `[n, V]`."""
    nodes = []
    for node in step.nodes:
        count = len(node.target_top)
        if count >= LEAST_RANKS:
            tokens = right[node.index].topk(count).indices.tolist()
            probs = [prob for _, prob in node.target_top]
            node = replace(node, target_top=tuple(zip(tokens, probs, strict=True)))
        nodes.append(node)
    return replace(step, nodes=tuple(nodes))


def _cost(measured: Measured, gaps: Floats) -> float:
    """In nats; of rows that were right only what is above the level counts."""
    levels = AT_LEVEL * measured.levels
    levels[measured.wrong] /= AT_LEVEL
    return float(np.log((gaps / np.maximum(levels, LEAST)).clip(1.0, 1e9)).sum())


def _finding(measured: Measured, kind: str, why: str) -> Finding:
    """Which rows are wrong, by how much, and what explains it."""
    wrong = measured.wrong
    n = len(measured.gaps)
    who = SOME_WRONG
    if len(wrong) == 1:
        who = ONE_WRONG
    elif len(wrong) == n:
        who = ALL_WRONG
    elif len(wrong) > 6:
        who = MANY_WRONG
    rows = who.format(n=n, rows=", ".join(map(str, wrong[:6])))
    depths = measured.step.tree.depth[wrong]
    where = f"at depths {min(depths)} to {max(depths)}"
    if min(depths) == max(depths):
        where = f"at depth {min(depths)}"
    gaps = measured.gaps[wrong]
    sentence = (
        f"{rows} ({where}; gap to the plain pass: median "
        f"{np.median(gaps):.2g}, largest {max(gaps):.2g}; rounding: {np.median(measured.levels):.1g}). {why}."
    )
    return Finding(measured.step.index, wrong[0], kind, sentence, count=len(wrong))


def _missed(measured: Measured) -> Finding:
    """A choice that is wrong where no recorded top-k is."""
    step = measured.step
    row = measured.misses[0]
    node = step.nodes[row]
    kind = "choice"
    says = WRONG_CHOICE
    if not node.target_top:
        kind = "answer"
        says = NO_TOPK
    chosen = word(step, node.target_choice)
    return Finding(
        step.index, row, kind, says.format(name(step, row), chosen, measured.choices[row])
    )
