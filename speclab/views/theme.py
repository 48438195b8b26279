"""The look of pictures: colours and symbols of verdicts, a light and a dark template, and `figure`.

A picture is a plain dict (`data` and `layout`) that both plotly and the page can draw. Colours that
follow the theme are CSS variables such as `INK`: the page resolves them, and `figure` replaces them
with a theme's colours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from speclab.errors import SettingsError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Spec = dict[str, Any]
"""A figure: `data` (traces) and `layout`, as plotly.js takes them."""
ThemeName = Literal["light", "dark"]

INK, MUTED, LINE, FAINT, PAPER = (
    f"var(--sl-{role})" for role in ("ink", "muted", "line", "faint", "paper")
)
"""Colours by role: text, secondary text, rules, faint rules, the background."""
THEMES: dict[ThemeName, dict[str, str]] = {
    "light": {
        INK: "#1F2328",
        MUTED: "#5B646E",
        LINE: "#C3C9D0",
        FAINT: "#E4E7EB",
        PAPER: "#FFFFFF",
    },
    "dark": {INK: "#E8EAED", MUTED: "#A4ACB5", LINE: "#5A626B", FAINT: "#3A4048", PAPER: "#111111"},
}
CLEAR = "rgba(0,0,0,0)"
PLOT_MONO = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"
PLOT_SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
_WORDS = {"text", "hovertext", "customdata", "ticktext"}
"""Keys whose values are never colours."""


@dataclass(frozen=True, slots=True)
class Look:
    """The look of one kind of node.

    `symbol` is plotly's name of the shape, `sign` the same shape as a character.
    """

    label: str
    code: str
    color: str
    symbol: str
    sign: str
    filled: bool = True


LOOKS: dict[str, Look] = {
    "root": Look("root", "r", MUTED, "square", "■"),
    "accepted": Look("accepted", "a", "#0072B2", "circle", "●"),
    "rejected": Look("rejected", "x", "#D55E00", "x", "✕"),
    "not reached": Look("not reached", "o", "#999999", "circle", "○", filled=False),
    "bonus": Look("bonus", "b", "#56B4E9", "star", "★"),
    "corrected": Look("corrected", "c", "#F0E442", "diamond", "◆"),
    "drafted": Look("drafted", "d", "#8C6BB1", "circle", "○", filled=False),
    "new": Look("would be drafted too", "n", "#009E73", "circle-cross", "⊕", filled=False),
    "gone": Look("struck out: would not be drafted", "g", MUTED, "circle", "○", filled=False),
    "folded": Look("folded", "f", MUTED, "square", "□", filled=False),
}
"""Wong's palette, safe for colour-blind readers: two colours differ by at least 24.8 ΔE."""
ABSENT = "-"
"""The code of a node that is not drafted yet."""
COMMITTED = {"root", "accepted", "bonus", "corrected"}

PHASE_COLORS: dict[str, str] = {
    "draft": "#E69F00",
    "verify": "#009E73",
    "accept": "#CC79A7",
    "commit": "#7A7A7A",
    "learn": "#B8B8B8",
}
SOURCE_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")


def template() -> Spec:
    """The plotly template of every picture: transparent background, quiet axes, 11 to 12 px type."""
    axis = {
        "gridcolor": FAINT,
        "linecolor": LINE,
        "zeroline": False,
        "ticks": "",
        "tickfont": {"size": 11, "color": MUTED},
        "title": {"font": {"size": 12, "color": MUTED}},
    }
    hover_font = {"family": PLOT_MONO, "size": 12, "color": INK}
    layout = {
        "font": {"family": PLOT_SANS, "size": 12, "color": INK},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "colorway": list(SOURCE_COLORS),
        "hovermode": "closest",
        "hoverlabel": {
            "font": hover_font,
            "bgcolor": PAPER,
            "bordercolor": LINE,
            "align": "left",
            "namelength": 0,
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1,
            "yanchor": "bottom",
            "itemclick": False,
            "traceorder": "normal",
        },
        "showlegend": False,
        "xaxis": axis,
        "yaxis": axis,
    }
    return {"layout": layout}


def spec(data: Sequence[Mapping[str, Any]], sentence: str, name: str, **layout: Any) -> Spec:
    """A figure. `sentence`: read by screen readers; `name`: the name of a saved file."""
    meta = {"sentence": sentence, "name": name, **layout.pop("meta", {})}
    margin = {"l": 48, "r": 12, "t": 28, "b": 36}
    return {
        "data": [dict(trace) for trace in data],
        "layout": {"margin": margin, **layout, "meta": meta},
    }


def figure(drawn: Spec, theme: ThemeName = "light") -> Figure:
    """Convert a picture to a plotly Figure in the colours of a theme.

    Raises:
        SettingsError: there is no such theme.
    """
    from plotly.graph_objects import Figure

    if theme not in THEMES:
        raise SettingsError(f"There is no theme {theme!r}: choose one of {', '.join(THEMES)}.")
    colors = THEMES[theme]
    made = resolved({**drawn, "layout": {**drawn["layout"], "template": template()}}, colors)
    made["layout"] |= {"paper_bgcolor": colors[PAPER], "plot_bgcolor": colors[PAPER]}
    return Figure(made)


def resolved(value: Any, colors: Mapping[str, str]) -> Any:
    """Replace CSS variables by colours."""
    if isinstance(value, str):
        return colors.get(value, value)
    if isinstance(value, dict):
        return {
            key: part if key in _WORDS else resolved(part, colors) for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [resolved(part, colors) for part in value]
    return value


def fill(drawn: Spec, columns: Mapping[str, Sequence[Any]]) -> Spec:
    """Replace each `@name` in a picture by the column of that name, and drop traces without a
    value.

    The page does the same for each new iteration (`fill` in page.js).
    """

    def walk(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return list(columns[value[1:]])
        if isinstance(value, dict):
            return {key: walk(part) for key, part in value.items()}
        return [walk(part) for part in value] if isinstance(value, list) else value

    def has_values(trace: Mapping[str, Any]) -> bool:
        sizes = trace["x"] if trace.get("orientation") == "h" else trace["y"]
        return any(value is not None for value in sizes)

    data = [walk(trace) for trace in drawn["data"]]
    return {"data": [trace for trace in data if has_values(trace)], "layout": walk(drawn["layout"])}


def code_map(codes: Any, colors: Sequence[str]) -> Spec:
    """A heatmap of whole numbers, each in its own colour."""
    steps = [
        [edge / len(colors), color]
        for code, color in enumerate(colors)
        for edge in (code, code + 1)
    ]
    scale = {"colorscale": steps, "zmin": -0.5, "zmax": len(colors) - 0.5, "showscale": False}
    return {"type": "heatmap", "z": codes, "xgap": 1, "ygap": 1, **scale}


def note(text: str, x: float, y: float, **more: Any) -> Spec:
    """An annotation without an arrow; by default `x` and `y` are shares of the plot, and the text starts above."""
    place = {
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }
    return {"text": text, "x": x, "y": y, **place, **more}
