"""The figures of a report: plotly figures of plain data, on no ground of their own: a page gives them its theme.

No series is told apart by colour alone: rows have names, points numbers or shapes, bars hatchings, lines dashes.
plotly is imported only when a figure is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speclab.bench.summary import Spread
from speclab.views.figures import escape
from speclab.views.palette import PHASE_COLORS, PLOT_SANS, SOURCE_COLORS

INK, RULE = "#737A82", "rgba(128,134,140,0.4)"
"""Legible on a light ground and on a dark one, as in a notebook; a report's page has better ones for each."""
SPECLAB, TRANSFORMERS = "#0072B2", "#D55E00"
Looks = Mapping[str, tuple[str, str]]
"""Colour and hatching of each part of a bar."""
PARTS: Looks = {"target": ("#009E73", ""), "draft": (PHASE_COLORS["draft"], "/"), "host": ("#7A7A7A", "x")}
"""Where time goes: inside the target, inside the draft, outside both."""
PHASES: Looks = {
    name: (color, hatch) for (name, color), hatch in zip(PHASE_COLORS.items(), ("/", "", "x", "-", "."), strict=True)
}
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "pentagon", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
RAY = "ray"
"""What the uid of a line of equal speed begins with; a page finds its colour by that."""
_FEW_PASSES = 3


def spreads(
    rows: Mapping[str, Spread], unit: str, *, transformers: frozenset[str] = frozenset(), baseline: str = ""
) -> Any:
    """One row per method: median as a mark, quartiles as a bar; a dashed rule marks the baseline's median."""
    figure = _figure(names=list(rows), x=unit)
    for group, color, symbol in (("speclab", SPECLAB, "circle"), ("transformers", TRANSFORMERS, "diamond-open")):
        own = {escape(name): each for name, each in rows.items() if (name in transformers) == (group != "speclab")}
        if own:
            figure.add_scatter(
                x=[each.median for each in own.values()], y=list(own), mode="markers", name=group,
                marker={"color": color, "symbol": symbol, "size": 12, "line": {"width": 2}},
                error_x=_quartiles(list(own.values()), color, thickness=5, width=0),
                hovertemplate="%{y}: %{x:.4g} " + unit + "<extra></extra>",
            )  # fmt: skip
    if baseline in rows:
        figure.add_vline(x=rows[baseline].median, line={"dash": "dash", "width": 1.5, "color": INK})
    return figure


def trade(rows: Mapping[str, tuple[float, float]], plain: tuple[float, float]) -> Any:
    """Tokens per iteration against its milliseconds; on a dashed ray every point has the same speed, against `plain`.

    Args:
        rows: method → (tokens per iteration, milliseconds per iteration).
        plain: the same of plain decoding, 1× by definition.
    """
    figure = _figure(height=max(470, 90 + 20 * len(rows)), x="tokens per iteration", y="ms per iteration")
    tokens, milliseconds = zip(plain, *rows.values(), strict=True)
    wide, tall = 1.08 * max(tokens), 1.12 * max(milliseconds)
    for number, ratio in enumerate((0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)):
        slope = plain[1] / plain[0] / ratio
        end = 0.97 * min(wide, tall / slope)
        figure.add_scatter(
            x=[0, end], y=[0, end * slope], mode="lines+text", text=["", f"{ratio:g}×"], textposition="top left",
            line={"dash": "dash", "width": 1, "color": RULE}, hoverinfo="skip", showlegend=False,
            uid=f"{RAY}{number}",
        )  # fmt: skip
    for number, (name, (x, y)) in enumerate(rows.items(), 1):
        figure.add_scatter(
            x=[x], y=[y], mode="markers+text", name=f"{number} {escape(name)}", text=[str(number)],
            textposition="top center", marker={**_mark(number - 1), "size": 12},
            hovertemplate=f"{escape(name)}: %{{x:.2f}} tokens in %{{y:.2f}} ms<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(range=[0, wide])
    figure.update_yaxes(range=[0, tall])
    figure.update_layout(legend={"orientation": "v", "x": 1.02, "y": 1, "yanchor": "top"})
    return figure


def stacked(rows: Mapping[str, Mapping[str, float]], unit: str, looks: Looks = PARTS) -> Any:
    """One stacked bar per row; `looks` gives every part its colour and its hatching."""
    figure = _figure(names=list(rows), x=unit, room=34)
    for part, (color, hatch) in looks.items():
        values = [row.get(part, 0.0) for row in rows.values()]
        if any(values):
            figure.add_bar(
                x=values, y=[escape(name) for name in rows], orientation="h", name=part,
                marker={"color": color, "pattern": {"shape": hatch, "fgcolor": "#fff", "solidity": 0.25, "size": 6}},
                hovertemplate=f"%{{y}}, {part}: %{{x:.3g}} {unit}<extra></extra>",
            )  # fmt: skip
    return figure.update_layout(barmode="stack", bargap=0.35)


def curve(points: Sequence[tuple[int, float, int]]) -> Any:
    """What a verification pass of so many rows costs.

    Args:
        points: (rows, seconds of such a pass, passes that say so); few passes make a small mark.
    """
    figure = _figure(height=380, x="rows of the pass, root included", y="ms per verification")
    solid = [each for each in points if each[2] >= _FEW_PASSES] or list(points)
    most = max((passes for *_, passes in solid), default=1)
    figure.add_scatter(
        x=[rows for rows, *_ in solid], y=[1000 * seconds for _, seconds, _ in solid], mode="lines+markers",
        line={"color": SPECLAB, "width": 1.5}, customdata=[passes for *_, passes in solid], showlegend=False,
        marker={"color": SPECLAB, "size": [5 + 9 * (passes / most) ** 0.5 for *_, passes in solid]},
        hovertemplate="%{x} rows: %{y:.2f} ms, of %{customdata} passes<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(rangemode="tozero")
    return figure.update_yaxes(rangemode="tozero")


def lines(series: Mapping[str, Mapping[float, Spread]], x: str, y: str, *, level: float | None = None) -> Any:
    """One line per method over what was varied, quartiles as whiskers; `level` is a dashed rule across."""
    figure = _figure(height=430, x=x, y=y)
    for number, (name, points) in enumerate(series.items()):
        mark = _mark(number)
        figure.add_scatter(
            x=list(points), y=[each.median for each in points.values()], mode="lines+markers", name=escape(name),
            error_y=_quartiles(list(points.values()), mark["color"], thickness=1.2, width=4),
            marker={**mark, "size": 9}, line={"color": mark["color"], "dash": DASHES[number % len(DASHES)], "width": 2},
            hovertemplate=f"{escape(name)}, {x} %{{x:g}}: %{{y:.3g}} {y}<extra></extra>",
        )  # fmt: skip
    if level is not None:
        figure.add_hline(y=level, line={"dash": "dash", "width": 1.5, "color": INK})
    figure.update_yaxes(rangemode="tozero")
    return figure.update_layout(showlegend=len(series) > 1)


def grid(cells: Mapping[tuple[float, float], float], x: str, y: str, unit: str) -> Any:
    """One value for each pair of two settings, written into its cell; darker is more."""
    columns, rows = (sorted({place[axis] for place in cells}) for axis in (0, 1))
    figure = _figure(height=130 + 52 * len(rows), x=x, y=y)
    figure.add_heatmap(
        z=[[cells.get((column, row)) for column in columns] for row in rows], x=[f"{column:g}" for column in columns],
        y=[f"{row:g}" for row in rows], texttemplate="%{z:.3g}", colorbar={"title": {"text": unit}},
        colorscale=[[0, "#E3F0FA"], [1, "#5AA9DC"]], xgap=2, ygap=2,
        hovertemplate=f"{x} %{{x}}, {y} %{{y}}: %{{z:.4g}} {unit}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(type="category")
    return figure.update_yaxes(type="category")


def _figure(*, names: Sequence[str] = (), height: int = 0, room: int = 0, x: str = "", y: str = "") -> Any:
    """An empty figure of that height, or with a row for each of `names`, the first on top."""
    import plotly.graph_objects as go

    axis = {
        "gridcolor": RULE, "zeroline": False, "automargin": True, "ticks": "outside", "ticklen": 6,
        "tickcolor": "rgba(0,0,0,0)",
    }  # fmt: skip
    titles = [{"standoff": 8, "font": {"size": 13}, "text": text or None} for text in (x, y)]
    figure = go.Figure(
        layout={
            "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "hovermode": "closest",
            "font": {"family": PLOT_SANS, "size": 13, "color": INK}, "height": height or 102 + 30 * len(names) + room,
            "xaxis": {**axis, "title": titles[0]}, "yaxis": {**axis, "title": titles[1]}, "dragmode": False,
            "margin": {"l": 8, "r": 24, "t": 16 + room, "b": 56},
            "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "itemclick": False,
                       "traceorder": "normal"},
            "hoverlabel": {"font": {"family": PLOT_SANS, "size": 12}, "align": "left"},
        }
    )  # fmt: skip
    if names:
        order = [escape(name) for name in reversed(names)]
        figure.update_yaxes(type="category", categoryorder="array", categoryarray=order, showgrid=False)
        figure.update_xaxes(rangemode="tozero")
    return figure


def _quartiles(own: Sequence[Spread], color: str, **bar: float) -> dict[str, Any]:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return {
        "type": "data", "symmetric": False, "color": f"rgba({red},{green},{blue},0.45)", **bar,
        "array": [each.high - each.median for each in own], "arrayminus": [each.median - each.low for each in own],
    }  # fmt: skip


def _mark(number: int) -> dict[str, Any]:
    return {"color": SOURCE_COLORS[number % len(SOURCE_COLORS)], "symbol": SYMBOLS[number % len(SYMBOLS)]}
