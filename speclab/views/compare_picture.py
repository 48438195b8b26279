"""Compare runs on one prompt, and the values of one setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.views.theme import INK, LOOKS, MUTED, Spec, note, spec
from speclab.views.tokens import clip, plot_lines, plot_text, plural

if TYPE_CHECKING:
    from speclab.analysis.compare import Comparison
    from speclab.analysis.curves import Curve, Point, Setting

BLUE = LOOKS["accepted"].color


def draw_compare(comparison: Comparison) -> Spec:
    """One bar per run: tokens per iteration, with a line at 1 for plain decoding."""
    runs = comparison.runs[::-1]
    rates = [
        run.trace.metrics.tokens_per_iteration if run.trace is not None else 0.0 for run in runs
    ]
    words = [
        f"{rate:.2f}" if run.trace else "did not run" for run, rate in zip(runs, rates, strict=True)
    ]
    names = [plot_text(clip(run.name, 30)) for run in runs]
    bar = {
        "type": "bar", "orientation": "h", "x": [round(rate, 3) for rate in rates], "y": list(range(len(runs))),
        "text": words, "textposition": "outside", "cliponaxis": False, "marker": {"color": BLUE}, "hoverinfo": "skip",
    }  # fmt: skip
    one = {
        "type": "line",
        "x0": 1,
        "x1": 1,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": INK, "dash": "dot"},
    }
    said = "; ".join(
        [f"{run.name} {rate:.2f}" for run, rate in zip(runs[::-1], rates[::-1], strict=True)]
    )
    return spec(
        [bar],
        f"Tokens per iteration: {said}.",
        "comparison",
        height=30 * len(runs) + 70,
        margin={"l": 8, "r": 12, "t": 24, "b": 36},
        xaxis={
            "range": [0, 1.15 * max([*rates, 1.0])],
            "fixedrange": True,
            "title": {"text": "tokens per iteration"},
        },
        yaxis={
            "tickvals": bar["y"],
            "ticktext": names,
            "automargin": True,
            "fixedrange": True,
            "showgrid": False,
        },
        shapes=[one],
        annotations=[note("plain decoding: 1", 1, 1, xref="x")],
        dragmode=False,
    )


def draw_curve(curve: Curve) -> Spec:
    """Tokens per iteration over the values of a setting.

    A square marks the current settings, a star the most tokens per iteration.
    """
    values = list(curve.values)
    points = curve.replayed
    best = max(points, key=lambda point: point.tokens_per_iteration, default=None)
    symbols = [
        "square" if point is curve.here else "star" if point is best else "circle"
        for point in points
    ]
    line = {
        "type": "scatter", "mode": "lines+markers", "x": [values.index(point.value) for point in points],
        "y": [round(point.tokens_per_iteration, 3) for point in points], "line": {"color": BLUE, "width": 2},
        "marker": {"symbol": symbols, "size": [6 if each == "circle" else 12 for each in symbols],
                   "line": {"width": 1, "color": INK}},
        "hovertext": [_tip(curve, point) for point in points], "hoverinfo": "text",
    }  # fmt: skip
    marks = [("now", curve.here)] if curve.here is best else [("now", curve.here), ("best", best)]
    notes = [
        note(f"<b>{word} {point.tokens_per_iteration:.2f}</b>", values.index(point.value),
             point.tokens_per_iteration, xref="x", yref="y", xanchor="center", yshift=8, font={"size": 11})
        for word, point in marks if point is not None and not point.refused
    ]  # fmt: skip
    ticks = {
        "tickvals": list(range(len(values))),
        "ticktext": [plot_text(_value(value)) for value in values],
    }
    return spec(
        [line] if points else [],
        curve_sentence(curve),
        "curve",
        height=200,
        margin={"l": 52, "r": 12, "t": 22, "b": 44},
        xaxis={
            **ticks,
            "title": {"text": plot_text(_spaced(curve.name))},
            "range": [-0.5, len(values) - 0.5],
        },
        yaxis={"title": {"text": "tokens per iteration"}, "rangemode": "normal", "nticks": 5},
        annotations=[
            *notes,
            note("replayed", 1, 1, xanchor="right", font={"size": 11, "color": MUTED}),
        ],
        dragmode=False,
    )


def curve_sentence(curve: Curve) -> str:
    """Describe the best value and the current one."""
    done = (
        ""
        if len(curve.points) == len(curve.values)
        else f" ({len(curve.points)} of {len(curve.values)} replays)"
    )
    text = f"On {plural(curve.plain.iterations, 'token')} of text{done}"
    best = max(curve.replayed, key=lambda point: point.tokens_per_iteration, default=None)
    if best is None:
        return f"{text}: no replay yet."
    words = f"{text}: most tokens per iteration at {_name(curve, best)}: {best.tokens_per_iteration:.2f}"
    if curve.here is not None and curve.here is not best and not curve.here.refused:
        words += f"; now, at {_name(curve, curve.here)}: {curve.here.tokens_per_iteration:.2f}"
    return f"{words}."


def _name(curve: Curve, point: Point) -> str:
    return f"{_spaced(curve.name)} {_value(point.value)}"


def _tip(curve: Curve, point: Point) -> str:
    rate = f"{point.tokens_per_iteration:.2f} tokens per iteration, {point.tokens_per_second:,.0f} tokens/s modelled"
    return plot_lines(
        _name(curve, point), rate, f"not exact: {point.inexact}" if point.inexact else ""
    )


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _value(value: Setting) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
