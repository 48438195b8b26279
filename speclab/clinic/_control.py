"""The control of an engine: a run whose draft is its target accepts everything."""

from __future__ import annotations

from dataclasses import dataclass

from speclab.clinic._report import acceptance, by_depth
from speclab.drafters.draft_pass import DRAFT
from speclab.engine.session import Session
from speclab.errors import SettingsError
from speclab.trace.metrics import Counts
from speclab.trace.records import Step, Trace, trace_of

NOWHERE = 0.2
"""Share of tokens below which hardly anything is accepted (speclab default)."""
DRIFT = 0.2
"""By how much less the second half of a run must accept to drift (speclab default)."""
SHAPES = {
    "right": "Every drafted token was accepted, as it should be.",
    "first": (
        "Only the first pass refused: usually the draft lags behind the prompt, often by one token."
    ),
    "deep": (
        "Nothing was refused at depth 1, and some after it: usually positions, mask or cache within "
        "a draft are wrong, or its state is not carried on."
    ),
    "nowhere": (
        "Hardly anything was accepted: usually the draft does not read the newest token, reads another "
        "prompt (a chat or thinking template, a missing start token) or writes other ids."
    ),
    "drift": (
        "The second half of the run accepts less than the first: usually stale rows stay in the "
        "draft's cache, or its positions drift."
    ),
    "alike": (
        "Some are refused at every depth alike: usually the draft's cache has stale rows or is quantised, "
        "its positions are off, or it has another precision, temperature or template."
    ),
}
"""What is said of each shape: what was measured, and usual causes, which docs/steps.md lists. Which of
them it is, a check with the draft says."""
OTHER_DRAFT = "{} drafted here, which is not the target"
NO_DRAFT = "Nothing was drafted here"
WAY_OUT = (
    '{}, so this run is not a control: decode with the draft of speclab.load_pair(draft="self"), or name the '
    "target as the draft in your engine; speclab clinic --draft checks another draft."
)


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
        return f"{SHAPES[self.shape]} Accepted: {by_depth(self.acceptance)}."


def control(run: Trace | Session) -> Control:
    """Judge a run whose draft is its target, such as one of `load_pair(draft="self")`: each drafted
    token should be accepted. Where some are not, the curve's shape says what to look for.

    Raises:
        SettingsError: `run` is not a run; or nothing was drafted, or by another model than the target.
    """
    trace = trace_of(run)
    steps = trace.steps
    if reason := _no_control(trace):
        raise SettingsError(WAY_OUT.format(reason))
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


def _no_control(trace: Trace) -> str:
    """Why a run cannot be a control, as far as its record knows the draft; "" if it may be one."""
    sources = set()
    for step in trace.steps:
        sources.update([step.tree.source[node] for node in step.drafted])
    if not sources:
        return NO_DRAFT
    if "format" in trace.models:  # another decoder's record does not name its draft
        return ""
    target = trace.models.get("target")
    draft = trace.models.get("draft") or trace.models.get("drafts")
    if not target:  # a link of one iteration does not name it
        return ""
    others = sources - {DRAFT}
    if others:
        return OTHER_DRAFT.format(min(others))
    if draft not in (target, f"{target} itself"):
        return OTHER_DRAFT.format(draft)
    return ""


def _share(steps: tuple[Step, ...]) -> float:
    """Accepted tokens of those that the target looked at."""
    total = Counts()
    for step in steps:
        total += step.counts
    return total.accepted / max(total.looked, 1)
