"""The look of pictures, from `looks.json`: colours and symbols, a light and a dark theme, `figure`.

A picture is a plain dict (`data` and `layout`) as plotly takes it. Colours that follow the theme
are CSS variables such as `INK`: the page resolves them, and `figure` replaces them with a theme's
colours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from speclab.errors import SettingsError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Spec = dict[str, Any]
"""A figure: `data` (traces) and `layout`, as plotly.js takes them."""
ThemeName = Literal["light", "dark"]
STYLE: dict[str, Any] = json.loads(
    Path(__file__).with_name("looks.json").read_text(encoding="utf-8")
)

INK, MUTED, LINE, FAINT, PAPER = (
    f"var(--sl-{role})" for role in ("ink", "muted", "line", "faint", "paper")
)
"""Colours by role: text, secondary text, rules, faint rules, the background."""
THEMES: dict[ThemeName, dict[str, str]] = {
    name: {f"var(--sl-{role})": color for role, color in colors.items()}
    for name, colors in STYLE["themes"].items()
}
PLOT_MONO: str = STYLE["mono"]
_WORDS = {"text", "hovertext", "customdata", "ticktext"}
"""Keys whose values are never colours."""


@dataclass(frozen=True, slots=True)
class Look:
    """The look of one kind of node.

    `symbol` is plotly's name of the shape, `sign` the same shape as a character.
    """

    label: str
    color: str
    symbol: str
    sign: str
    filled: bool


LOOKS = {kind: Look(**look) for kind, look in STYLE["nodes"].items()}
"""Wong's palette, safe for colour-blind readers: two colours differ by at least 24.8 ΔE."""
COMMITTED = set(STYLE["committed"])
SOURCE_COLORS: Sequence[str] = STYLE["sources"]


def layout_of(name: str, sentence: str, **changes: Any) -> Spec:
    """The layout of a figure: what `looks.json` says, with changes. `sentence`: for screen readers."""
    layout: Spec = {**STYLE["layouts"].get(name, {}), "meta": {"name": name, "sentence": sentence}}
    for key, value in changes.items():
        base = layout.get(key)
        layout[key] = {**base, **value} if isinstance(base, dict) else value
    return layout


def spec(data: Sequence[Mapping[str, Any]], sentence: str, name: str, **layout: Any) -> Spec:
    """A figure. `sentence`: read by screen readers; `name`: of its layout, and of a saved file."""
    return {
        "data": [dict(trace) for trace in data],
        "layout": layout_of(name, sentence, **layout),
    }


def trace(name: str, /, **changes: Any) -> Spec:
    """A trace of `looks.json`, with changes."""
    return {**STYLE["traces"][name], **changes}


def with_values(traces: Sequence[Spec]) -> list[Spec]:
    """Only the traces that have a value."""
    return [one for one in traces if any(value is not None for value in one["y"])]


def code_map(codes: Sequence[Sequence[int]], colors: Sequence[str]) -> Spec:
    """A heatmap of whole numbers, each in its own colour."""
    count = len(colors)
    steps = [
        [edge / count, color] for code, color in enumerate(colors) for edge in (code, code + 1)
    ]
    return trace("cells", z=codes, colorscale=steps, zmax=count - 0.5)


def frame(x0: float, x1: float, y0: float, y1: float) -> Spec:
    """A frame around a part of a figure."""
    return {"type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": STYLE["frame"]}


def note(text: str, x: float, y: float, **more: Any) -> Spec:
    """A text without an arrow; by default `x` and `y` are shares of the plot, and the text starts above."""
    return {**STYLE["note"], "text": text, "x": x, "y": y, **more}


def figure(drawn: Spec, theme: ThemeName = "light") -> Figure:
    """Convert a picture to a plotly Figure in the colours of a theme.

    Raises:
        SettingsError: there is no such theme.
    """
    from plotly.graph_objects import Figure

    if theme not in THEMES:
        raise SettingsError(f"There is no theme {theme!r}: choose one of {', '.join(THEMES)}.")
    colors = THEMES[theme]
    shown = resolved(
        {**drawn, "layout": {**drawn["layout"], "template": STYLE["template"]}}, colors
    )
    shown["layout"] |= {"paper_bgcolor": colors[PAPER], "plot_bgcolor": colors[PAPER]}
    return Figure(shown)


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
