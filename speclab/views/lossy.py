"""The warning that an acceptance rule changes the output: in words, and red besides."""

from __future__ import annotations

from speclab.trace.records import Step, Trace
from speclab.views.markup import tag
from speclab.views.tokens import escape

CHANGES = "changes the output distribution"
RED = "var(--jp-error-color1,#d32f2f)"


def warning(sentence: str) -> str:
    """A sentence in red; it must say what is wrong without the colour."""
    return tag("b", escape(sentence), class_="sl-lossy", style=f"color:{RED}")


def step_words(step: Step | None) -> str:
    """`typical acceptance changes the output distribution`; empty for an iteration under an exact rule."""
    if step is None or not step.counts.lossy:
        return ""
    return f"{step.rule or 'the acceptance rule'} {CHANGES}"


def run_words(trace: Trace, cursor: int | None = None) -> str:
    """How many of the iterations changed it; empty where none did."""
    steps = trace.steps[:cursor]
    lossy = [step for step in steps if step.counts.lossy]
    if not lossy:
        return ""
    return f"{step_words(lossy[-1])}: {len(lossy)} of {len(steps)} iterations are under this rule."
