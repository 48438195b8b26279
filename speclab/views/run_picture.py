"""Pictures of a run: a timeline of its iterations, and its metrics. `page/metrics.js` draws the same."""

from __future__ import annotations

from typing import Any

from speclab.trace.metrics import Counts
from speclab.trace.records import Step, Trace
from speclab.views.phases import own_kind
from speclab.views.sentences import mark
from speclab.views.theme import (
    FAINT,
    INK,
    LOOKS,
    PAPER,
    STYLE,
    Spec,
    note,
    spec,
    trace,
    with_values,
)
from speclab.views.words import WORDS, fill, formatted

MOST = 120
LEAST = 16
"""Most iterations in a picture, and the least room on its axis."""


def _gained(step: Step) -> int:
    """Accepted tokens that were committed."""
    return min(len(step.accepted), len(step.committed))


def draw_timeline(run: Trace, cursor: int | None = None) -> Spec:
    """One bar per iteration, with a frame around the current one."""
    count = len(run.steps)
    cursor = count if cursor is None else cursor
    first = window(count, cursor)
    steps = run.steps[first : first + MOST]
    x = [step.index + 1 for step in steps]
    kinds = [None if step.bonus is None else own_kind(step) for step in steps]
    accepted = [_gained(step) for step in steps]
    reach = [step.counts.longest_path + 1 for step in steps]

    def bars(name: str, y: list[int | None], marker: Spec, **more: Any) -> Spec:
        return trace("iterations", x=x, customdata=x, y=y, marker=marker, name=name, **more)

    data = [
        bars("drafted", [*reach], {"color": FAINT}),
        bars("accepted", [*accepted], {"color": LOOKS["accepted"].color}),
    ]
    for name, more in (("bonus", {}), ("corrected", {"pattern": STYLE["hatch"]})):
        y = [1 if kind == name else None for kind in kinds]
        data.append(bars(name, y, {"color": LOOKS[name].color, **more}, base=accepted))
    place = {"xref": "x", "xanchor": "center", "yanchor": "top"}
    notes = [
        note(mark(step.findings[0])[0], step.index + 1, 1, **place)
        for step in steps
        if step.findings
    ]
    if first:
        words = fill("timeline", "earlier", {"count": first})
        notes.append(note(words, 0, 1, yanchor="top", font={"size": 11}))
    return spec(
        with_values(data),
        fill("timeline", "sentence", {"count": count, "cursor": cursor}),
        "timeline",
        annotations=notes,
        shapes=_frames(cursor, first + len(steps)),
        xaxis=iteration_axis(first, len(steps)),
    )


def _frames(cursor: int, end: int) -> list[Spec]:
    """A frame around the current iteration, and a veil over later ones."""
    low = cursor - 0.5
    high = cursor + 0.5
    box: Spec = {"type": "rect", "x0": low, "x1": high, "yref": "paper", "y0": 0, "y1": 1}
    shapes = [{**box, "line": {"color": INK, "width": 1.5}}]
    if cursor < end:
        veil = {"x0": high, "x1": end + 0.5, "fillcolor": PAPER, "opacity": 0.6}
        shapes.append({**box, **veil, "line": {"width": 0}})
    return shapes


def window(count: int, cursor: int) -> int:
    """How many of the first iterations are left out."""
    return max(min(cursor - MOST // 2, count - MOST), 0)


def iteration_axis(first: int, count: int) -> Spec:
    """Ticks at existing iterations; few iterations still get the room of `LEAST`."""
    every = next(step for step in (1, 2, 5, 10) if count <= 25 * step or step == 10)
    numbers = [first + i + 1 for i in range(count) if (first + i + 1) % every == 0]
    return {"range": [first + 0.4, first + max(count, LEAST) + 0.6], "tickvals": numbers}


def draw_metrics(run: Trace, cursor: int | None = None) -> Spec:
    """Tokens per iteration and milliseconds by phase, over the iterations up to `cursor`."""
    steps = run.steps[:cursor]
    first = window(len(steps), len(steps))
    shown = steps[first:]
    x = [step.index + 1 for step in shown]
    accepted = [_gained(step) for step in shown]
    own = [len(step.committed) - gained for step, gained in zip(shown, accepted, strict=True)]
    shared = {"x": x, "customdata": x}
    data = [
        trace("metrics", **shared, y=y, name=name, marker={"color": color}, legend="legend")
        for y, name, color in (
            (accepted, "accepted", LOOKS["accepted"].color),
            (own, "target's token", LOOKS["bonus"].color),
        )
    ]
    for name, color in STYLE["phases"].items():
        y = [1000 * step.seconds[name] if step.seconds.get(name) else None for step in shown]
        hover = f"%{{y:.2f}} ms {name}<extra></extra>"
        more = {"yaxis": "y2", "legend": "legend2", "hovertemplate": hover}
        data.append(trace("metrics", **shared, y=y, name=name, marker={"color": color}, **more))
    titles = WORDS["metrics"]
    return spec(
        with_values(data),
        metrics_sentence(run, cursor),
        "metrics",
        annotations=[note(titles["tokens"], 0, 1), note(titles["milliseconds"], 0, 0.42)],
        xaxis=iteration_axis(first, len(shown)),
    )


def metric_numbers(run: Trace, cursor: int | None = None) -> list[str]:
    """The values of the four `numbers` of `words.json`."""
    total = sum((step.counts for step in run.steps[:cursor]), Counts())
    values = []
    for number in WORDS["numbers"]:
        whole = getattr(total, number["whole"])
        value = getattr(total, number["part"]) / whole if whole else 0.0
        values.append(formatted(value, number["format"]))
    return values


def metrics_sentence(run: Trace, cursor: int | None = None) -> str:
    """`Metrics after 12 iterations: 3.42 tokens per iteration, 28 % of drafted tokens accepted, 412 tokens/s.`"""
    count = len(run.steps[:cursor])
    if not count:
        return fill("metrics", "none", {})
    rate, share, _, speed = metric_numbers(run, cursor)
    values = {"count": count, "rate": rate, "share": share, "speed": speed}
    return fill("metrics", "sentence", values)
