"""What differs between an engine's log and ours, in sentences."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from speclab.serving.accepted import AcceptanceLog

UNLIKELY = 2.0
"""Standard errors between two shares from which on a difference is named; steps of one text are not independent."""


def differences(theirs: AcceptanceLog, ours: AcceptanceLog) -> tuple[str, ...]:
    """On figures and drafts, on the first step that differs, and on depths that differ by more than chance."""
    said = []
    rates = theirs.tokens_per_iteration, ours.tokens_per_iteration
    if rates[0] is not None and rates[1] is not None:
        said.append(f"{rates[0]:.2f} tokens per iteration there, {rates[1]:.2f} here.")
    for log, whose in ((theirs, "their"), (ours, "our")):
        plain = sum(not step.drafted for step in log.steps)
        if plain:
            said.append(
                f"{plain} of {len(log.steps)} of {whose} passes had no draft, and are left out of these figures."
            )
    drafts = [max([step.deepest for step in log.steps], default=0) for log in (theirs, ours)]
    if all(drafts) and drafts[0] != drafts[1]:
        said.append(f"Theirs drafts up to depth {drafts[0]}, ours up to {drafts[1]}: compare with the same depth.")
    if parted := _parted(theirs, ours):
        said.append(parted)
    if not theirs.acceptance_by_depth:
        return (*said, "Their log has no counts by depth.")
    for there, here in zip(theirs.acceptance_by_depth, ours.acceptance_by_depth, strict=False):
        pooled = (there.accepted + here.accepted) / max(there.iterations + here.iterations, 1)
        spread = sqrt(pooled * (1 - pooled) * (1 / max(there.iterations, 1) + 1 / max(here.iterations, 1)))
        if abs(there.share - here.share) > UNLIKELY * spread:
            said.append(
                f"At least {there.depth} accepted: {there.share:.0%} of {there.iterations} iterations there, "
                f"{here.share:.0%} of {here.iterations} here, more than chance makes likely."
            )
    return tuple(said)


def _parted(theirs: AcceptanceLog, ours: AcceptanceLog) -> str:
    """Where the steps of both begin to differ; "" where they are not of the same requests."""
    if len(theirs.entries) != len(ours.entries) or not all(one.steps for one in (*theirs.entries, *ours.entries)):
        return ""
    for request, (there, here) in enumerate(zip(theirs.entries, ours.entries, strict=True), start=1):
        steps = [[step for step in one.steps if step.drafted] for one in (there, here)]
        where = f"in request {request} " if len(ours.entries) > 1 else ""
        for number, (a, b) in enumerate(zip(*steps, strict=False), start=1):
            if a.accepted != b.accepted:
                return (
                    f"The first step that differs {where}is {number}: {a.accepted} of {a.drafted} accepted there, "
                    f"{b.accepted} of {b.drafted} here."
                )
        if len(steps[0]) != len(steps[1]):
            return (
                f"All steps that both have {where}are the same; there are {len(steps[0])} there, {len(steps[1])} here."
            )
    return "Every step accepts as many tokens in both."
