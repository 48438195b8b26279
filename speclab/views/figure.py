"""The tree as a plotly figure: a fixed set of traces whose arrays are replaced in one batch.

Works alike on a `Figure` and on a `FigureWidget`; plotly is imported only when a figure is asked for.
"""

from __future__ import annotations

from typing import Any

from speclab.trace.records import Step
from speclab.views.layout import FOLD_ABOVE
from speclab.views.palette import LOOKS, PLOT_MONO, PLOT_SANS, THEMES, Theme, ThemeName, look_color
from speclab.views.scene import FONT, LABEL_X, Link, Mark, Scene, scene
from speclab.views.tokens import plotly_text
from speclab.views.walk import WHOLE, Moment

_LINKS = {"plain": ("line", 1.2), "choice": ("ink", 1.4), "path": ("path", 3.2)}
_RINGS = {"fresh": 1.2, "selected": 2.0}
_CURVE, _ABOVE, _BELOW, _LEAST = 12, 30, 64, 600
TRACES = (*_LINKS, *_RINGS, *LOOKS, "stub", "label", "note")
"""Names of the traces, in order; their number never changes."""


def tree_figure(
    step: Step,
    theme: ThemeName = "light",
    *,
    selected: int | None = None,
    moment: Moment = WHOLE,
    limit: int = FOLD_ABOVE,
    figure: Any = None,
) -> Any:
    """A new `plotly.graph_objects.Figure` of the tree, or `figure` (an empty `FigureWidget`) filled with it."""
    import plotly.graph_objects as go

    made = go.Figure() if figure is None else figure
    colors = THEMES[theme]
    made.add_traces([go.Scatter(**_line(name, colors)) for name in _LINKS])
    made.add_traces([go.Scatter(**_ring(name, colors)) for name in _RINGS])
    made.add_traces([go.Scatter(**_symbol(kind, colors)) for kind in LOOKS])
    made.add_traces([go.Scatter(**_stub(colors)), go.Scatter(**_label(colors)), go.Scatter(**_note(colors))])
    made.update_layout(**_layout(colors))
    update_tree(made, step, selected=selected, moment=moment, limit=limit)
    return made


def update_tree(
    figure: Any,
    step: Step,
    *,
    selected: int | None = None,
    moment: Moment = WHOLE,
    limit: int = FOLD_ABOVE,
) -> None:
    """Puts another step, selection or moment into the figure of `tree_figure`, in one batch."""
    drawn = scene(step, moment, selected, limit)
    arrays = _arrays(drawn, selected)
    with figure.batch_update():
        for trace, name in zip(figure.data, TRACES, strict=True):
            trace.update(arrays[name], overwrite=False)
        figure.update_layout(_sizes(drawn))


def _sizes(drawn: Scene) -> dict[str, Any]:
    """A pixel of the scene is a pixel of the figure, until someone zooms."""
    width = round(max(drawn.width, _LEAST))
    ticks = ["depth 0", *(str(depth) for depth in range(1, len(drawn.columns)))]
    return {
        "width": width,
        "height": round(drawn.height + _BELOW),
        "xaxis": {"range": [0, width], "tickvals": drawn.columns, "ticktext": ticks},
        "yaxis": {"range": [drawn.height, _ABOVE]},
    }


def _arrays(drawn: Scene, selected: int | None) -> dict[str, dict[str, Any]]:
    arrays = {name: _polyline([link for link in drawn.links if link.kind == name]) for name in _LINKS}
    chosen = [mark for mark in drawn.marks if selected is not None and mark.node == selected]
    arrays["fresh"] = _around([mark for mark in drawn.marks if mark.fresh], 7)
    arrays["selected"] = _around(chosen, 10)
    for kind in (*LOOKS, "stub"):
        arrays[kind] = _points([mark for mark in drawn.marks if mark.kind == kind])
    arrays["label"] = {
        "x": [mark.x + LABEL_X - 4 for mark in drawn.marks],
        "y": [mark.y for mark in drawn.marks],
        "text": [plotly_text(mark.label) for mark in drawn.marks],
    }
    arrays["note"] = {
        "x": [mark.x + LABEL_X - 4 for mark in drawn.marks],
        "y": [mark.y + 11 for mark in drawn.marks],
        "text": [plotly_text(mark.note) for mark in drawn.marks],
    }
    return arrays


def _around(marks: list[Mark], larger: float) -> dict[str, Any]:
    size = [round(2 * mark.radius + mark.border + larger, 1) for mark in marks]
    return {"x": [mark.x for mark in marks], "y": [mark.y for mark in marks], "marker": {"size": size}}


def _points(marks: list[Mark]) -> dict[str, Any]:
    hover = ["<br>".join(plotly_text(line) for line in mark.hover) for mark in marks]
    return {
        "x": [mark.x for mark in marks],
        "y": [mark.y for mark in marks],
        "customdata": [mark.node for mark in marks],
        "hovertext": hover,
        "marker": {
            "size": [round(2 * mark.radius + mark.border, 1) for mark in marks],
            "line": {"width": [round(mark.border, 2) for mark in marks]},
        },
    }


def _polyline(links: list[Link]) -> dict[str, Any]:
    xs: list[float | None] = []
    ys: list[float | None] = []
    for link in links:
        (x0, y0), (x1, y1) = link.start, link.end
        bend = max(link.bend, x0)
        steps = [i / _CURVE for i in range(_CURVE + 1)]
        xs += [x0, *(round(bend + (x1 - bend) * t, 1) for t in steps), None]
        ys += [y0, *(round(y0 + (y1 - y0) * t * t * (3 - 2 * t), 1) for t in steps), None]
    return {"x": xs, "y": ys}


def _line(name: str, colors: Theme) -> dict[str, Any]:
    role, width = _LINKS[name]
    color = LOOKS["accepted"].color if role == "path" else getattr(colors, role)
    return {
        "mode": "lines",
        "line": {"color": color, "width": width},
        "hoverinfo": "skip",
        "showlegend": False,
        "name": name,
    }


def _ring(name: str, colors: Theme) -> dict[str, Any]:
    line = {"width": _RINGS[name], "color": colors.ink if name == "selected" else colors.muted}
    return {
        "mode": "markers", "name": name, "showlegend": False, "hoverinfo": "skip",
        "marker": {"symbol": "circle-open", "color": line["color"], "line": line},
    }  # fmt: skip


def _symbol(kind: str, colors: Theme) -> dict[str, Any]:
    look = LOOKS[kind]
    color = look_color(kind, colors)
    fill, line = (color, colors.ink) if look.filled else (colors.paper, color)
    symbol = look.symbol.removesuffix("-open")
    marker = {"symbol": symbol, "color": fill, "opacity": 1, "line": {"color": line}}
    return {"mode": "markers", "name": look.label, "marker": marker, "hoverinfo": "text"}


def _stub(colors: Theme) -> dict[str, Any]:
    marker = {"symbol": "line-ns-open", "color": colors.muted, "line": {"color": colors.muted}}
    return {"mode": "markers", "name": "folded", "marker": marker, "hoverinfo": "text", "showlegend": False}


def _label(colors: Theme) -> dict[str, Any]:
    font = {"family": PLOT_MONO, "size": FONT, "color": colors.ink}
    return {
        "mode": "text", "name": "label", "textposition": "middle right", "textfont": font, "hoverinfo": "skip",
        "showlegend": False, "cliponaxis": False,
    }  # fmt: skip


def _note(colors: Theme) -> dict[str, Any]:
    font = {"family": PLOT_MONO, "size": 10, "color": colors.muted}
    return {**_label(colors), "name": "note", "textfont": font}


_KEY = "size: path probability · border: target's probability · strong line: the target's choice · blue line: committed"


def _layout(colors: Theme) -> dict[str, Any]:
    key = {
        "text": _KEY, "xref": "paper", "yref": "paper", "x": 0, "y": 0, "xshift": 6, "yshift": -34, "xanchor": "left",
        "yanchor": "top", "showarrow": False, "font": {"size": 10, "color": colors.muted},
    }  # fmt: skip
    axis = {"showgrid": False, "zeroline": False, "fixedrange": False}
    return {
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "dragmode": "pan", "hovermode": "closest",
        "margin": {"l": 0, "r": 0, "t": _ABOVE, "b": _BELOW},
        "font": {"family": PLOT_SANS, "size": FONT, "color": colors.muted},
        "xaxis": {**axis, "side": "top", "tickfont": {"color": colors.muted}, "ticks": "", "tickangle": 0},
        "yaxis": {**axis, "showticklabels": False},
        "legend": {"orientation": "h", "y": 0, "yanchor": "top", "x": 0, "itemsizing": "constant"},
        "annotations": [key],
        "hoverlabel": {"font": {"family": PLOT_MONO, "size": 12}, "align": "left"},
    }  # fmt: skip
