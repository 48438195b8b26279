"""The run over its iterations: the timeline and the metrics.

Both are templates with `@columns`; `timeline_point` and `metrics_point` return the values that one
iteration adds, so the page can extend a picture iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from speclab.trace.records import Step, Trace
from speclab.views.phases import own_kind
from speclab.views.sentences import mark, summary
from speclab.views.theme import (
    CLEAR,
    FAINT,
    INK,
    LOOKS,
    PAPER,
    PHASE_COLORS,
    Spec,
    fill,
    note,
    spec,
)
from speclab.views.tokens import plot_text, plural

MOST = 120
LEAST = 16
"""Most iterations in a picture, and the least room on its axis."""
HATCH = {"shape": "/", "fgcolor": "#1F2328", "size": 4, "solidity": 0.25, "fillmode": "overlay"}
"""The corrected token is hatched, not only yellow."""
PHASE_NAMES = tuple(PHASE_COLORS)

NUMBERS = (
    ("tokens per iteration", "committed", "iterations", ".2f", "committed tokens / passes; plain decoding has 1"),
    ("acceptance rate", "accepted", "drafted", ".0%", "accepted / drafted tokens"),
    ("path acceptance", "accepted", "longest_path", ".0%", "accepted tokens / tokens on the longest drafted path"),
    ("tokens per second", "committed", "seconds", ".0f", "of decoding, prefill excluded, on this machine"),
)  # fmt: skip
"""The four numbers: name, numerator and denominator in `Counts`, format, definition."""


def timeline_point(step: Step) -> dict[str, Any]:
    """The values that an iteration adds to the timeline."""
    drafted = min(len(step.accepted), len(step.committed))
    own = None if step.bonus is None else own_kind(step)
    return {
        "x": step.index + 1,
        "reach": step.counts.longest_path + 1,
        "accepted": drafted,
        "bonus": 1 if own == "bonus" else None,
        "corrected": 1 if own == "corrected" else None,
        "tip": plot_text(summary(step)),
        "sign": mark(step.findings[0])[0] if step.findings else "",
    }


def timeline_template() -> Spec:
    """The timeline without iterations."""
    bars: Spec = {"type": "bar", "x": "@x", "customdata": "@x", "width": 0.8, "hoverinfo": "skip"}
    corrected = {"color": LOOKS["corrected"].color, "pattern": HATCH}
    data = [
        {
            **bars,
            "y": "@reach",
            "marker": {"color": FAINT},
            "hoverinfo": "text",
            "hovertext": "@tip",
            "name": "drafted",
        },
        {
            **bars,
            "y": "@accepted",
            "marker": {"color": LOOKS["accepted"].color},
            "name": "accepted",
        },
        {
            **bars,
            "y": "@bonus",
            "base": "@accepted",
            "marker": {"color": LOOKS["bonus"].color},
            "name": "bonus",
        },
        {**bars, "y": "@corrected", "base": "@accepted", "marker": corrected, "name": "corrected"},
    ]
    axis = {"showgrid": False, "fixedrange": True}
    return spec(
        data,
        "",
        "timeline",
        height=62,
        barmode="overlay",
        margin={"l": 6, "r": 6, "t": 4, "b": 18},
        hovermode="x",
        xaxis={**axis, "showline": False},
        yaxis={**axis, "visible": False, "rangemode": "tozero"},
        dragmode=False,
    )


def draw_timeline(trace: Trace, cursor: int | None = None) -> Spec:
    """One bar per iteration, with a frame around the current one."""
    cursor = len(trace.steps) if cursor is None else cursor
    first = window(len(trace.steps), cursor)
    points = [timeline_point(step) for step in trace.steps[first : first + MOST]]
    drawn = fill(
        timeline_template(),
        _columns(points, ("x", "reach", "accepted", "bonus", "corrected", "tip")),
    )
    drawn["layout"]["xaxis"] |= iteration_axis(first, len(points))
    place = {"xref": "x", "xanchor": "center", "yanchor": "top"}
    signs = [note(point["sign"], point["x"], 1, **place) for point in points if point["sign"]]
    drawn["layout"]["annotations"] = signs
    sentence = f"Timeline: {plural(len(trace.steps), 'iteration')}, {cursor} shown."
    drawn["layout"]["meta"]["sentence"] = sentence
    frame = {
        "type": "rect",
        "x0": cursor - 0.5,
        "x1": cursor + 0.5,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
    }
    veil = {
        **frame,
        "x0": cursor + 0.5,
        "x1": first + len(points) + 0.5,
        "fillcolor": PAPER,
        "opacity": 0.6,
    }
    drawn["layout"]["shapes"] = [{**frame, "line": {"color": INK, "width": 1.5}}]
    if cursor < first + len(points):
        drawn["layout"]["shapes"].append({**veil, "line": {"width": 0}})
    return drawn


def window(count: int, cursor: int) -> int:
    """How many of the first iterations are left out."""
    return max(min(cursor - MOST // 2, count - MOST), 0)


def iteration_axis(first: int, count: int) -> Spec:
    """Ticks at existing iterations; few iterations still get the room of `LEAST`."""
    every = next(step for step in (1, 2, 5, 10) if count <= 25 * step or step == 10)
    numbers = [first + i + 1 for i in range(count) if (first + i + 1) % every == 0 or every == 1]
    return {"range": [first + 0.4, first + max(count, LEAST) + 0.6], "tickvals": numbers}


def _columns(points: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [point[name] for point in points] for name in names}


def metrics_point(step: Step) -> dict[str, Any]:
    """The values that an iteration adds to the metrics; `counts` feed the four numbers."""
    counts = step.counts
    drafted = min(len(step.accepted), len(step.committed))
    return {
        "x": step.index + 1,
        "accepted": drafted,
        "own": len(step.committed) - drafted,
        **{f"{name} ms": round(1000 * step.seconds.get(name, 0.0), 3) or None for name in PHASE_NAMES},
        "counts": {name: getattr(counts, name) for name in
                   ("iterations", "committed", "drafted", "accepted", "longest_path", "seconds")},
    }  # fmt: skip


def metrics_template() -> Spec:
    """The metrics without iterations: tokens per iteration above milliseconds by phase."""
    bars: Spec = {"type": "bar", "x": "@x", "customdata": "@x"}
    blue = LOOKS["accepted"].color
    own = LOOKS["bonus"].color
    data = [
        {
            **bars,
            "y": "@accepted",
            "name": "accepted",
            "marker": {"color": blue},
            "legend": "legend",
        },
        {
            **bars,
            "y": "@own",
            "name": "target's token",
            "marker": {"color": own},
            "legend": "legend",
        },
    ]
    for name in PHASE_NAMES:
        data.append({**bars, "y": f"@{name} ms", "yaxis": "y2", "name": name, "marker": {"color": PHASE_COLORS[name]},
                     "legend": "legend2", "hovertemplate": "%{y:.2f} ms " + name + "<extra></extra>"})  # fmt: skip
    legend = {
        "orientation": "h",
        "x": 1,
        "xanchor": "right",
        "yanchor": "bottom",
        "itemclick": False,
        "traceorder": "normal",
    }
    axis = {"fixedrange": True, "rangemode": "tozero", "nticks": 4}
    return spec(
        data,
        "",
        "metrics",
        height=300,
        barmode="stack",
        bargap=0.2,
        margin={"l": 48, "r": 12, "t": 26, "b": 36},
        hovermode="x unified",
        dragmode=False,
        showlegend=True,
        legend={**legend, "y": 1},
        legend2={**legend, "y": 0.42},
        xaxis={
            "fixedrange": True,
            "showgrid": False,
            "title": {"text": "iteration"},
            "anchor": "y2",
        },
        yaxis={**axis, "domain": [0.56, 1]},
        yaxis2={**axis, "domain": [0, 0.42]},
        annotations=[
            note("<b>Tokens per iteration</b>", 0, 1),
            note("<b>Milliseconds by phase</b>, measured", 0, 0.42),
        ],
        paper_bgcolor=CLEAR,
    )


def draw_metrics(trace: Trace, cursor: int | None = None) -> Spec:
    """Tokens per iteration and milliseconds by phase, over the iterations up to `cursor`."""
    steps = trace.steps[:cursor]
    first = window(len(steps), len(steps))
    points = [metrics_point(step) for step in steps[first:]]
    names = ("x", "accepted", "own", *(f"{name} ms" for name in PHASE_NAMES))
    drawn = fill(metrics_template(), _columns(points, names))
    drawn["layout"]["xaxis"] |= iteration_axis(first, len(points))
    drawn["layout"]["meta"]["sentence"] = metrics_sentence(trace, cursor)
    return drawn


def metrics_sentence(trace: Trace, cursor: int | None = None) -> str:
    """`Metrics after 12 iterations: 3.42 tokens per iteration, 28 % of drafted tokens accepted, 412 tokens/s.`"""
    figures = replace(trace, steps=trace.steps[:cursor]).metrics
    if not figures.iterations:
        return "Metrics: no iteration yet."
    return (
        f"Metrics after {plural(figures.iterations, 'iteration')}: "
        f"{figures.tokens_per_iteration:.2f} tokens per "
        f"iteration, {figures.acceptance_rate:.0%} of drafted tokens accepted, "
        f"{figures.throughput:.0f} tokens/s."
    )
