"""The figures of a report: plotly figures of plain data, on no ground of their own: a page gives them its theme.

No series is told apart by colour alone: rows have names, points numbers or shapes, bars hatchings, lines dashes.
plotly is imported only when a figure is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speclab.bench.summary import Spread
from speclab.views.markup import plotly_text
from speclab.views.palette import PHASE_COLORS, PLOT_SANS, SOURCE_COLORS

INK, RULE = "#737A82", "rgba(128,134,140,0.4)"
"""Read on a light ground and on a dark one, as in a notebook; a report's page has better ones for each."""
SPECLAB, TRANSFORMERS = "#0072B2", "#D55E00"
PARTS = {"target": ("#009E73", ""), "draft": (PHASE_COLORS["draft"], "/"), "host": ("#7A7A7A", "x")}
"""Where time goes: colour and hatching of what is spent inside the target, inside the draft, and outside both."""
PHASES = {
    name: (color, hatch) for (name, color), hatch in zip(PHASE_COLORS.items(), ("/", "", "x", "-", "."), strict=True)
}
"""The same of the phases of an iteration."""
PATHS = {
    "spine only": (SOURCE_COLORS[0], ""),
    "spine continuation": (SOURCE_COLORS[1], "/"),
    "branch only": (SOURCE_COLORS[2], "."),
}
"""And of the paths on which accepted tokens lie."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "pentagon", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
ROW, TOP, BOTTOM = 30, 16, 56
_LEAST_SHOWN = 3
RAY = "ray"
"""What the uid of a line of equal speed begins with; a page finds its colour by that."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series: a spread at each x."""

    name: str
    points: Mapping[float, Spread] = field(default_factory=dict)


def spreads(
    rows: Mapping[str, Spread], unit: str, *, transformers: frozenset[str] = frozenset(), baseline: str = ""
) -> Any:
    """One row per method: median as a mark, quartiles as a bar; a dashed rule marks the baseline's median."""
    figure = _figure(len(rows))
    for group, color, symbol in (("speclab", SPECLAB, "circle"), ("transformers", TRANSFORMERS, "diamond-open")):
        names = [name for name in rows if (name in transformers) == (group == "transformers")]
        own = [rows[name] for name in names]
        error = {
            "type": "data", "symmetric": False, "thickness": 5, "width": 0,
            "array": [each.high - each.median for each in own],
            "arrayminus": [each.median - each.low for each in own],
        }  # fmt: skip
        if names:
            figure.add_scatter(
                x=[each.median for each in own], y=[_name(name) for name in names], mode="markers", name=group,
                marker={"color": color, "symbol": symbol, "size": 12, "line": {"width": 2}},
                error_x={**error, "color": _faded(color)},
                hovertemplate="%{y}: %{x:.4g} " + unit + "<extra></extra>",
            )  # fmt: skip
    if baseline in rows:
        figure.add_vline(x=rows[baseline].median, line={"dash": "dash", "width": 1.5, "color": INK})
    figure.update_xaxes(title=unit, rangemode="tozero")
    _rows_of(figure, rows)
    return figure


def trade(rows: Mapping[str, tuple[float, float]], plain: tuple[float, float]) -> Any:
    """Tokens per iteration against its milliseconds; on a dashed ray every point has the same speed, against `plain`.

    Args:
        rows: method → (tokens per iteration, milliseconds per iteration).
        plain: the same of plain decoding, 1× by definition.
    """
    figure = _figure(0, height=max(470, 90 + 20 * len(rows)))
    wide = 1.08 * max([plain[0], *(tokens for tokens, _ in rows.values())])
    tall = 1.12 * max([plain[1], *(ms for _, ms in rows.values())])
    for number, ratio in enumerate((0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)):
        slope = plain[1] / plain[0] / ratio
        end = 0.97 * min(wide, tall / slope)
        figure.add_scatter(
            x=[0, end], y=[0, end * slope], mode="lines+text", text=["", f"{ratio:g}×"], textposition="top left",
            line={"dash": "dash", "width": 1, "color": RULE}, hoverinfo="skip", showlegend=False,
            uid=f"{RAY}{number}",
        )  # fmt: skip
    for number, (name, (tokens, ms)) in enumerate(rows.items(), 1):
        figure.add_scatter(
            x=[tokens], y=[ms], mode="markers+text", name=f"{number} {_name(name)}", text=[str(number)],
            textposition="top center", marker={**_mark(number - 1), "size": 12},
            hovertemplate=f"{_name(name)}: %{{x:.2f}} tokens in %{{y:.2f}} ms<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="tokens per iteration", range=[0, wide])
    figure.update_yaxes(title="ms per iteration", range=[0, tall])
    figure.update_layout(legend={"orientation": "v", "x": 1.02, "y": 1, "yanchor": "top"})
    return figure


def stacked(rows: Mapping[str, Mapping[str, float]], unit: str, looks: Mapping[str, tuple[str, str]] = PARTS) -> Any:
    """One stacked bar per row; `looks` gives every part its colour and its hatching."""
    figure = _figure(len(rows), room=34)
    for part, (color, hatch) in looks.items():
        values = [row.get(part, 0.0) for row in rows.values()]
        if any(values):
            figure.add_bar(
                x=values, y=[_name(name) for name in rows], orientation="h", name=part,
                marker={"color": color, "pattern": {"shape": hatch, "fgcolor": "#fff", "solidity": 0.25, "size": 6}},
                hovertemplate=f"%{{y}}, {part}: %{{x:.3g}} {unit}<extra></extra>",
            )  # fmt: skip
    figure.update_layout(barmode="stack", bargap=0.35)
    figure.update_xaxes(title=unit, rangemode="tozero")
    _rows_of(figure, rows)
    return figure


def curve(points: Sequence[tuple[int, float, int]]) -> Any:
    """What a verification pass of so many rows costs.

    Args:
        points: (rows, seconds of such a pass, passes that say so); few passes make a small mark.
    """
    figure = _figure(0, height=380)
    solid = [each for each in points if each[2] >= _LEAST_SHOWN] or list(points)
    most = max((passes for *_, passes in solid), default=1)
    figure.add_scatter(
        x=[rows for rows, *_ in solid], y=[1000 * seconds for _, seconds, _ in solid], mode="lines+markers",
        line={"color": SPECLAB, "width": 1.5}, customdata=[passes for *_, passes in solid], showlegend=False,
        marker={"color": SPECLAB, "size": [5 + 9 * (passes / most) ** 0.5 for *_, passes in solid]},
        hovertemplate="%{x} rows: %{y:.2f} ms, of %{customdata} passes<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="rows of the pass, root included", rangemode="tozero")
    figure.update_yaxes(title="ms per verification", rangemode="tozero")
    return figure


def lines(series: Sequence[Series], x: str, y: str, *, level: float | None = None) -> Any:
    """One line per method over what was varied, quartiles as whiskers; `level` is a dashed rule across."""
    figure = _figure(0, height=430)
    for number, line in enumerate(series):
        own = list(line.points.values())
        error = {
            "type": "data", "symmetric": False, "thickness": 1.2, "width": 4, "color": _faded(_mark(number)["color"]),
            "array": [each.high - each.median for each in own],
            "arrayminus": [each.median - each.low for each in own],
        }  # fmt: skip
        figure.add_scatter(
            x=list(line.points), y=[each.median for each in own], mode="lines+markers", name=_name(line.name),
            error_y=error, marker={**_mark(number), "size": 9},
            line={"color": _mark(number)["color"], "dash": DASHES[number % len(DASHES)], "width": 2},
            hovertemplate=f"{_name(line.name)}, {x} %{{x:g}}: %{{y:.3g}} {y}<extra></extra>",
        )  # fmt: skip
    if level is not None:
        figure.add_hline(y=level, line={"dash": "dash", "width": 1.5, "color": INK})
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=y, rangemode="tozero")
    figure.update_layout(showlegend=len(series) > 1)
    return figure


def grid(cells: Mapping[tuple[float, float], float], x: str, y: str, unit: str) -> Any:
    """One value for each pair of two settings, written into its cell; darker is more."""
    columns, rows = (sorted({place[axis] for place in cells}) for axis in (0, 1))
    values = [[cells.get((column, row)) for column in columns] for row in rows]
    figure = _figure(0, height=130 + 52 * len(rows))
    figure.add_heatmap(
        z=values, x=[f"{column:g}" for column in columns], y=[f"{row:g}" for row in rows], texttemplate="%{z:.3g}",
        colorscale=[[0, "#E3F0FA"], [1, "#5AA9DC"]], xgap=2, ygap=2, colorbar={"title": {"text": unit}},
        hovertemplate=f"{x} %{{x}}, {y} %{{y}}: %{{z:.4g}} {unit}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title=x, type="category")
    figure.update_yaxes(title=y, type="category")
    return figure


def _figure(rows: int, *, height: int = 0, room: int = 0) -> Any:
    import plotly.graph_objects as go

    axis = {
        "gridcolor": RULE,
        "zeroline": False,
        "automargin": True,
        "ticks": "outside",
        "ticklen": 6,
        "tickcolor": "rgba(0,0,0,0)",
        "title": {"standoff": 8, "font": {"size": 13}},
    }
    return go.Figure(
        layout={
            "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "hovermode": "closest",
            "font": {"family": PLOT_SANS, "size": 13, "color": INK}, "xaxis": axis, "yaxis": axis,
            "height": height or TOP + ROW * rows + BOTTOM + 30 + room, "dragmode": False,
            "margin": {"l": 8, "r": 24, "t": TOP + room, "b": BOTTOM},
            "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "itemclick": False,
                       "traceorder": "normal"},
            "hoverlabel": {"font": {"family": PLOT_SANS, "size": 12}, "align": "left"},
        }
    )  # fmt: skip


def _rows_of(figure: Any, names: Mapping[str, object]) -> None:
    """The first name on top."""
    order = [_name(name) for name in reversed(list(names))]
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=order, showgrid=False)


def _mark(number: int) -> dict[str, Any]:
    return {"color": SOURCE_COLORS[number % len(SOURCE_COLORS)], "symbol": SYMBOLS[number % len(SYMBOLS)]}


def _name(name: str) -> str:
    return plotly_text(name)


def _faded(color: str) -> str:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.45)"
