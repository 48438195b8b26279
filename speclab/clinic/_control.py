"""The control of an engine: a run whose draft is its target accepts everything."""

from __future__ import annotations

from dataclasses import dataclass

from speclab.clinic._report import acceptance, by_depth
from speclab.engine.session import Session
from speclab.trace.metrics import Counts
from speclab.trace.records import Step, Trace, trace_of

NOWHERE = 0.2
"""Share of tokens below which hardly anything is accepted (speclab default)."""
DRIFT = 0.2
"""By how much less the second half of a run must accept to drift (speclab default)."""
SHAPES = {
    "right": "Every drafted token was accepted, as it should be.",
    "first": (
        "Only the first pass refused: after the prompt the draft's state lags behind, often by one token."
    ),
    "deep": (
        "Nothing was refused at depth 1, and some after it: the draft's own tokens do not reach "
        "its state (positions, mask or cache within a draft)."
    ),
    "nowhere": (
        "Hardly anything was accepted: the draft reads another prompt (a chat or thinking "
        "template, a missing start token) or writes other ids."
    ),
    "drift": (
        "The second half of the run accepts less than the first: rows that should be gone stay in "
        "the draft's cache, or its positions drift."
    ),
    "alike": (
        "Some are refused at every depth alike: the draft computes otherwise (a quantised cache, "
        "another precision, another temperature)."
    ),
}


@dataclass(frozen=True)
class Control:
    """Acceptance of a run whose draft is its target.

    `acceptance`: by depth, (accepted, looked); equal if all is right. `shape`: a key of `SHAPES`.
    """

    acceptance: dict[int, tuple[int, int]]
    shape: str

    @property
    def passed(self) -> bool:
        return self.shape == "right"

    def __str__(self) -> str:
        return f"{SHAPES[self.shape]} Accepted{by_depth(self.acceptance)}."


def control(run: Trace | Session) -> Control:
    """Judge a run whose draft is its target, such as one of `load_pair(draft="self")`: each drafted
    token should be accepted. Where some are not, the curve's shape names what it can.

    Raises:
        SettingsError: `run` is not a run.
    """
    steps = trace_of(run).steps
    half = len(steps) // 2
    missed = [step for step in steps if step.counts.looked > step.counts.accepted]
    at_depth_1 = [step for step in missed if not step.counts.accepted]
    shape = "alike"
    if not missed:
        shape = "right"
    elif missed[-1].index == 0:
        shape = "first"
    elif not at_depth_1:
        shape = "deep"
    elif _share(steps) < NOWHERE:
        shape = "nowhere"
    elif _share(steps[:half]) - _share(steps[half:]) > DRIFT:
        shape = "drift"
    return Control(acceptance(steps), shape)


def _share(steps: tuple[Step, ...]) -> float:
    """Accepted tokens of those that the target looked at."""
    total = Counts()
    for step in steps:
        total += step.counts
    return total.accepted / max(total.looked, 1)
