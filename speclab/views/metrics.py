"""The run so far over its iterations, on one x axis: tokens, acceptance by depth, seconds by phase, adapted settings.

Under every figure stands its definition; the table takes them from `speclab.trace.metrics`, where they are written.
"""

from __future__ import annotations

import inspect

from speclab.trace.metrics import Counts, Metrics
from speclab.trace.records import Trace
from speclab.views import markup, panels
from speclab.views.clock import Plain, clock_strip, modelled_plain
from speclab.views.palette import ThemeName, css
from speclab.views.panels import ASIDE, LEFT, WIDE, Axis
from speclab.views.summary import plural

MOST, LEAST = 130, 12
"""Iterations drawn at most (the newest), and the room kept at least: a first bar is not as wide as the page."""
UNITS = {"throughput": " tokens/s", "ttft": " s", "tpot": " s"}
COUNTS = {"iterations", "target_calls", "draft_calls"}


def metrics_at(trace: Trace, cursor: int | None = None) -> Metrics:
    """The metrics of the first `cursor` iterations."""
    return Metrics(sum((step.counts for step in trace.steps[:cursor]), Counts()), trace.prefill_seconds)


def definition(name: str) -> str:
    """What a metric means: the docstring of its property."""
    if name == "ttft":  # a field, and fields carry no docstring
        return "Time to first token as felt: from the call to the first token, prefill included. Seconds."
    return inspect.cleandoc(getattr(Metrics, name).__doc__ or "")


def summary(trace: Trace, cursor: int | None = None) -> str:
    """One sentence, such as: Metrics after 12 iterations: 3.42 tokens per iteration, 28% …, 412 tokens/s."""
    figures = metrics_at(trace, cursor)
    if not figures.iterations:
        return "Metrics: no iteration yet."
    return (
        f"Metrics after {plural(figures.iterations, 'iteration')}: {figures.tokens_per_iteration:.2f} tokens per "
        f"iteration, {figures.acceptance_rate:.0%} of drafted tokens accepted, {figures.throughput:.0f} tokens/s."
    )


def metrics_table(trace: Trace, cursor: int | None = None) -> str:
    """Every metric with its value and its definition, as an HTML table."""
    figures = metrics_at(trace, cursor).as_dict()
    rows = ((name.replace("_", " "), _written(name, value), definition(name)) for name, value in figures.items())
    caption = f"Metrics after {plural(len(trace.steps[:cursor]), 'iteration')}"
    return markup.table(caption, ("metric", "value", "definition"), rows)


table = metrics_table


def _written(name: str, value: float) -> str:
    return f"{value:.0f}" if name in COUNTS else f"{value:.4g}{UNITS.get(name, '')}"


def metrics_svg(
    trace: Trace, cursor: int | None = None, theme: ThemeName = "light", *, plain: Plain | None = None
) -> str:
    """The panels as one SVG string.

    `plain`: plain decoding's time where it was measured; else it is modelled from this run, and called so.
    """
    colors, steps, width = css(theme), trace.steps[:cursor], LEFT + WIDE + ASIDE
    if not steps:
        text = markup.text("no iteration yet", 12, 24, style=f"fill:{colors.muted}")
        return markup.svg(width, 40, summary(trace, cursor), colors, [text])
    axis = Axis(steps, steps[-MOST:], max(LEAST, min(len(trace.steps), MOST)), colors)
    y, parts = 14.0, []
    for draw in (panels.tokens, panels.depths, panels.seconds, panels.settings):
        part, height = draw(axis, y)
        parts.append(part)
        y += height + (26 if height else 0)
    parts.append(panels.iterations(axis, y - 12))
    strip, height = clock_strip(steps, plain or modelled_plain(steps), LEFT, y + 26, WIDE, colors)
    return markup.svg(width, y + 34 + height, summary(trace, cursor), colors, [*parts, strip])
