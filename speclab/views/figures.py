"""What every picture is made of: plotly figures as plain dicts, so that one drawing serves lab, page and notebook.

A dict is drawn and sent in a fraction of the time that a `plotly.graph_objects.Figure` takes to be made; the tests
make one of every drawing, which validates it. Colours that follow the theme are CSS variables here (`INK` and the
like): the browser looks them up, `figure` puts in those of a theme.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from speclab.errors import SpeclabError
from speclab.views.markup import display
from speclab.views.palette import PLOT_MONO, PLOT_SANS, THEMES, ThemeName

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Spec = dict[str, Any]
"""A figure: `data` (traces) and `layout`, as plotly.js takes them."""
Part = Spec | str
"""A figure, or HTML."""
Drawing = Part | Sequence[Part]
"""What a view draws: one part, or several from top to bottom."""

INK, MUTED, LINE, FAINT, PAPER = (f"var(--sl-{role})" for role in ("ink", "muted", "line", "faint", "paper"))
"""Colours by role: text, secondary text, rules, faint rules, the ground."""
CLEAR = "rgba(0,0,0,0)"
NO_PLOTLY = "Pictures need the package plotly: pip install plotly."
FONT = 12
"""Size of type in pixels; nothing is set below 11."""


def escape(text: str) -> str:
    """Text that plotly shows as it is: it would read `<b>` and `&lt;` as markup, and `$…$` as a formula."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return safe.replace("$", "&#36;")


def token_text(text: str) -> str:
    """A token for a label or a tooltip: nothing invisible, nothing read as markup."""
    return escape(display(text))


def lines(*said: str) -> str:
    """A tooltip of several lines, each escaped."""
    return escape("\n".join([line for line in said if line])).replace("\n", "<br>")


def spec(
    data: Iterable[Mapping[str, Any]],
    *,
    label: str,
    height: float,
    width: float | None = None,
    xaxis: Mapping[str, Any] | None = None,
    yaxis: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    **layout: Any,
) -> Spec:
    """A figure with the look that all share: no ground of its own, quiet axes, the theme's colours.

    Args:
        data: traces, as plotly.js takes them. One whose `meta` is {"click": "node"} tells the lab the `customdata` of
            a point that is clicked, as a node; "iteration", "run" and the like are sent under their names.
        label: what a screen reader says of the picture, one sentence.
        height, width: pixels; without a width it is as wide as its place.
        xaxis, yaxis: of plotly, over the shared look.
        meta: of the layout: what the browser needs besides. `nodes`: [node, parent, x, y, name] of each that arrow
            keys reach, which a ring marks while another picture's is hovered; `rows`: [first x, number of nodes] of a
            mask, whose row and column are marked then. `bare`: without the bar of buttons.
        layout: more of plotly's layout.
    """
    base = {
        "height": round(height),
        "margin": {"l": 48, "r": 12, "t": 28, "b": 36},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": PLOT_SANS, "size": FONT, "color": INK},
        "hoverlabel": {"font": {"family": PLOT_MONO, "size": FONT, "color": INK}, "bgcolor": PAPER, "bordercolor": LINE,
                       "align": "left", "namelength": 0},
        "hovermode": "closest",
        "modebar": {"bgcolor": CLEAR, "color": MUTED, "activecolor": INK},
        "showlegend": False,
        "uirevision": "one",
        "xaxis": axis(**(xaxis or {})),
        "yaxis": axis(**(yaxis or {})),
        "meta": {"label": label, **(meta or {})},
    }  # fmt: skip
    if width is not None:
        base["width"] = round(width)
    return {"data": [dict(trace) for trace in data], "layout": {**base, **layout}}


_AXIS: dict[str, Any] = {
    "gridcolor": FAINT,
    "linecolor": LINE,
    "zeroline": False,
    "ticks": "",
    "tickfont": {"size": 11, "color": MUTED},
    "title": {"font": {"size": FONT, "color": MUTED}},
}


def stacked(heights: Sequence[float], names: Sequence[str], ends: Sequence[str], xaxis: Mapping[str, Any]) -> Spec:
    """Panels above each other on one x axis, as more arguments of `spec`; their traces go on `y`, `y2` and so on.

    `heights`: of each, pixels; one below 50 has no ticks. `names`: beside each, to the left. `ends`: to the right of
    each, such as the newest value.
    """
    gap, count = 14.0, len(heights)
    whole, top = sum(heights) + gap * (count - 1), 0.0
    layout: Spec = {"height": whole + 50, "margin": {"l": 170, "r": 76 if any(ends) else 12, "t": 8, "b": 42}}
    layout["xaxis"] = {"anchor": f"y{count}" if count > 1 else "y", **xaxis}
    notes: list[Spec] = []
    for row, (high, name, end) in enumerate(zip(heights, names, ends, strict=True), start=1):
        number, ticked = "" if row == 1 else row, high >= 50
        domain = [max(round(1 - (top + high) / whole, 4), 0), round(1 - top / whole, 4)]
        layout[f"yaxis{number}"] = {**_AXIS, "domain": domain, "nticks": 4, "showticklabels": ticked}
        place = {"yref": f"y{number} domain", "yanchor": "middle"}
        notes.append(note(escape(name), 0, 0.5, xanchor="right", xshift=-40 if ticked else -8, **place))
        notes.append(note(escape(end), 1, 0.5, xshift=6, **place))
        top += high + gap
    return layout | {"annotations": [each for each in notes if each["text"]]}


def note(text: str, x: float, y: float, **more: Any) -> Spec:
    """An annotation at a place of the whole figure, from 0 to 1; it stands right of that and above it."""
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    return {"text": text, "x": x, "y": y, **place, **more}


def upright(x: float) -> Spec:
    """A dotted line through all panels, as a shape."""
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": INK, "dash": "dot"}}


def abreast(drawn: Sequence[Spec], titles: Sequence[str], label: str, **layout: Any) -> Spec:
    """Figures as one, next to each other, tops aligned, each below its title; one legend serves all.

    Its width is that of its place. `layout`: more of plotly's.
    """
    count, high, gap = len(drawn), max(one["layout"]["height"] for one in drawn), 0.02
    data: list[Spec] = []
    notes: list[Spec] = []
    axes: Spec = {}
    named: set[str] = set()
    for i, (one, title) in enumerate(zip(drawn, titles, strict=True)):
        number, left = "" if i == 0 else i + 1, i * (1 + gap) / count
        for trace in one["data"]:
            shown = bool(trace.get("showlegend")) and trace["name"] not in named
            named |= {trace["name"]} if shown else set()
            data.append({**trace, "xaxis": f"x{number}", "yaxis": f"y{number}", "showlegend": shown})
        xaxis, yaxis, share = one["layout"]["xaxis"], one["layout"]["yaxis"], one["layout"]["height"] / high
        right = left + (1 - gap * (count - 1)) / count
        axes[f"xaxis{number}"] = {**xaxis, "domain": [left, right], "anchor": f"y{number}"}
        axes[f"yaxis{number}"] = {**yaxis, "domain": [1 - share, 1], "anchor": f"x{number}"}
        notes.append(note(f"<b>{escape(title)}</b>", left, 1, yshift=4))
    legend = {"orientation": "h", "x": 0, "y": 0, "yanchor": "top", "itemsizing": "constant"}
    margin = {"l": 8, "r": 8, "t": 32, "b": 34}
    return spec(data, label=label, height=high + 66, margin=margin, annotations=notes, showlegend=True, legend=legend,
                dragmode=False, **axes, **layout)  # fmt: skip


def axis(**own: Any) -> Spec:
    """An axis with the shared look."""
    return {**_AXIS, **own, "title": {**_AXIS["title"], **own.get("title", {})}}


HIDDEN_AXIS = {"visible": False, "fixedrange": False}
"""An axis that only places things."""


def figure(drawn: Spec, theme: ThemeName = "light") -> Figure:
    """The drawing as a plotly Figure: validated, with the colours of a theme, and a legend where traces have one.

    Raises:
        SpeclabError: plotly is missing.
    """
    try:
        from plotly.graph_objects import Figure
    except ImportError:
        raise SpeclabError(NO_PLOTLY) from None
    made = resolved(drawn, theme)
    made["data"] = [_worded(trace) for trace in made["data"]]
    layout, ground = made["layout"], THEMES[theme].paper
    if "legend" in layout and not layout["showlegend"]:  # in the lab one legend serves all, as HTML
        margin = layout["margin"]
        layout |= {"showlegend": True, "height": layout["height"] + 44, "margin": margin | {"b": margin["b"] + 44}}
    # No template: the figure looks as it does in the lab, and is 7 kB smaller.
    layout |= {"paper_bgcolor": ground, "plot_bgcolor": ground, "template": {}}
    return Figure(made)


def _worded(trace: dict[str, Any]) -> dict[str, Any]:
    """Codes of a heatmap as words in its tooltips, as plots.js puts them there."""
    words = (trace.get("meta") or {}).get("words")
    if not words:
        return trace
    rows, columns = map(int, trace["z"]["shape"].split(", "))
    codes = np.frombuffer(b64decode(trace["z"]["bdata"]), np.uint8).reshape(rows, columns)
    return trace | {"text": [[words[code] for code in row] for row in codes.tolist()]}


def resolved(drawn: Spec, theme: ThemeName = "light") -> Spec:
    """The drawing with the colours of a theme in place of CSS variables."""
    colors = {f"var(--sl-{role})": getattr(THEMES[theme], role) for role in ("ink", "muted", "line", "faint", "paper")}

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return colors.get(value, value)
        if isinstance(value, dict):
            return {key: part if key in _WORDS else walk(part) for key, part in value.items()}
        return [walk(part) for part in value] if isinstance(value, list | tuple) else value

    return walk(drawn)  # type: ignore[no-any-return]


_WORDS = {"text", "hovertext", "customdata", "ticktext"}
"""Keys whose values are words, never colours."""


def table_of(matrix: NDArray[np.uint8]) -> dict[str, str]:
    """A matrix as plotly takes it in binary: a heatmap of 256 × 256 in 87 kB."""
    rows, columns = matrix.shape
    return {"dtype": "u1", "bdata": b64encode(matrix.tobytes()).decode(), "shape": f"{rows}, {columns}"}


def coded(codes: NDArray[np.uint8], colors: Sequence[str], words: Sequence[str], **more: Any) -> Spec:
    """A heatmap of codes, each in its colour; plots.js and `figure` put its word into tooltips, as `%{text}`."""
    steps = [[at / len(colors), color] for code, color in enumerate(colors) for at in (code, code + 1)]
    look = {"type": "heatmap", "z": table_of(codes), "zmin": -0.5, "zmax": len(colors) - 0.5, "colorscale": steps}
    return {**look, "showscale": False, **more, "meta": {"words": words, **more.get("meta", {})}}


def frame(x: tuple[float, float], y: tuple[float, float], width: float) -> Spec:
    """A rectangle, as a shape."""
    line = {"color": INK, "width": width}
    return {"type": "rect", "x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1], "line": line}


def indexed_png(matrix: NDArray[np.uint8], colors: Sequence[tuple[int, int, int, int]]) -> str:
    """A matrix of categories as the `data:` address of a PNG, a pixel an entry. `colors`: of each, red to opacity."""
    rows, columns = matrix.shape
    raw = np.hstack([np.zeros((rows, 1), np.uint8), matrix]).tobytes()  # each row begins with its filter: none
    palette = b"".join([bytes(color[:3]) for color in colors])
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
        (b"PLTE", palette),
        (b"tRNS", bytes(color[3] for color in colors)),
        (b"IDAT", zlib.compress(raw, 9)),
        (b"IEND", b""),
    )
    body = b"".join([struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
                     for name, data in chunks])  # fmt: skip
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()
