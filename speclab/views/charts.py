"""Two charts for lessons: figures of several kinds on one axis, and two shapes of a draft tree from the theory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from speclab.theory.yields import IsotropicShape, SpineShape
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import HIDDEN_AXIS, LINE, MUTED, Spec, escape, note, spec
from speclab.views.palette import LOOKS, SOURCE_COLORS

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
"""Of the series, in turn: a colour is never alone."""
COPIED, GUESSED = SOURCE_COLORS[:2]
Place = tuple[float, float]
"""Column (depth) and row of a node; rows grow downwards."""


def points_sentence(title: str, rows: Mapping[str, Sequence[float]]) -> str:
    """One sentence: what is shown, of how many things, from where to where."""
    values = [value for row in rows.values() for value in row]
    return f"{title}: {len(rows)} rows, values from {min(values):.3g} to {max(values):.3g}."


def points_spec(title: str, series: Sequence[str], rows: Mapping[str, Sequence[float]]) -> Spec:
    """A row of points for each name.

    Args:
        title: what the axis measures.
        series: a name for each point of a row; up to six.
        rows: name of a row to one value for each series, each at least 0.
    """
    names, places = [escape(name) for name in rows], [*range(len(rows))]
    ends = [(min(values), max(values)) for values in rows.values()]
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "line": {"color": LINE, "width": 2}, "hoverinfo": "skip",
         "showlegend": False, "x": [x for low, high in ends for x in (low, high, None)],
         "y": [y for place in places for y in (place, place, None)]}
    ]  # fmt: skip
    data += [
        {"type": "scatter", "mode": "markers", "name": escape(name), "y": places, "text": names,
         "x": [float(values[i]) for values in rows.values()],
         "hovertemplate": "%{text}: %{x:.3g}<extra></extra>", "cliponaxis": False,
         "marker": {"symbol": SYMBOLS[i % 6], "size": 10, "color": SOURCE_COLORS[i % 6]}}
        for i, name in enumerate(series)
    ]  # fmt: skip
    return spec(
        data, label=points_sentence(title, rows), height=88 + 26 * len(rows), width=760, showlegend=True,
        margin={"l": 24 + min(260, 8 * max([markup.width(name) for name in rows])), "r": 24, "t": 40, "b": 44},
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"}, meta={"name": "points"},
        xaxis={"rangemode": "tozero", "title": {"text": escape(title), "standoff": 6}, "nticks": 8},
        yaxis={"tickvals": places, "ticktext": names, "range": [len(rows) - 0.4, -0.6], "showgrid": False},
    )  # fmt: skip


def points_table(title: str, series: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    """The same figures as an HTML table."""
    return markup.table(title, ("", *series), [(name, *values) for name, values in rows.items()])


def shapes_sentence(spine: SpineShape, even: IsotropicShape) -> str:
    """One sentence, such as: spine of 7 with 8.8 branches: 4.31 tokens per pass; isotropic, 3 levels of 3: 2.10."""
    return (
        f"spine of {spine.spine_length} with {sum(spine.widths):.1f} branches: {spine.expected_tokens:.2f} tokens per "
        f"pass; isotropic, {plural(even.depth, 'level')} of {even.branching}: {even.expected_tokens:.2f}"
    )


def shapes_spec(spine: SpineShape, even: IsotropicShape, branch_depth: int) -> Spec:
    """Both trees, one above the other; every branch is drawn with `branch_depth` tokens (D)."""
    upper, lower = [f"<b>{words[0].upper()}{words[1:]}</b>" for words in shapes_sentence(spine, even).split("; ")]
    key = (
        f'   <span style="color:{COPIED}">■</span> copied (numbers: k)   <span style="color:{GUESSED}">●</span> guessed'
    )
    data, notes = [], []
    axes: dict[str, Any] = {}
    trees = ((_spine(spine, branch_depth), upper + key, [0.54, 0.92]), (_even(even), lower, [0.0, 0.42]))
    for number, ((nodes, links, copied), title, domain) in enumerate(trees):
        axis = "y2" if number else "y"
        rows = max([row for _, row in nodes])
        axes[f"yaxis{axis[1:]}"] = {**HIDDEN_AXIS, "domain": domain, "range": [max(rows, 6) + 0.5, -1.6]}
        notes.append(note(title, 0, domain[1]))
        data += _tree(nodes, links, copied, axis, max(3.0, min(9.0, 90 / max(rows, 1))))
    reach = max(len(spine.widths) + branch_depth, even.depth, 6)
    every = -(-reach // 24)  # numbers at each place would run into each other
    data[1] |= {"mode": "markers+text", "textposition": "top center", "textfont": {"size": 11, "color": MUTED},
                "cliponaxis": False,
                "text": [f"{width:.1f}" if width >= 0.05 and place % every == 0 else ""
                         for place, width in enumerate(spine.widths)]}  # fmt: skip
    return spec(
        data, label=f"Two tree shapes: {shapes_sentence(spine, even)}.", height=440, width=740, hovermode=False,
        annotations=notes,
        margin={"l": 12, "r": 12, "t": 6, "b": 6}, meta={"name": "tree-shapes"},
        xaxis={**HIDDEN_AXIS, "anchor": "y2", "range": [-0.4, reach + 0.4]},
        **axes,
    )  # fmt: skip


def _tree(
    nodes: Sequence[Place], links: Sequence[tuple[Place, Place]], copied: int, axis: str, size: float
) -> list[dict[str, Any]]:
    """Traces of a tree: links as elbows, squares for the root and what was copied, circles for what was guessed."""
    elbows = [corner for (x0, y0), (x1, y1) in links for corner in ((x0, y0), (x0, y1), (x1, y1), (None, None))]
    base = {"type": "scatter", "yaxis": axis, "mode": "markers"}
    colors = [LOOKS["root"].color, *[COPIED] * (copied - 1)]
    return [
        {**base, "mode": "lines", "x": [x for x, _ in elbows], "y": [y for _, y in elbows],
         "line": {"color": LINE, "width": 1}},
        {**base, "x": [x for x, _ in nodes[:copied]], "y": [y for _, y in nodes[:copied]],
         "marker": {"symbol": "square", "color": colors, "size": max(size, 6)}},
        {**base, "x": [x for x, _ in nodes[copied:]], "y": [y for _, y in nodes[copied:]],
         "marker": {"symbol": "circle", "color": GUESSED, "size": size}},
    ]  # fmt: skip


def _spine(shape: SpineShape, branch_depth: int) -> tuple[list[Place], list[tuple[Place, Place]], int]:
    """Nodes, links, and how many nodes are copied; branches of the last spine nodes lie highest: nothing crosses."""
    nodes: list[Place] = [(float(place), 0.0) for place in range(shape.spine_length + 1)]
    links: list[tuple[Place, Place]] = [*pairwise(nodes)]
    copied, row = len(nodes), 0.0
    for place, width in reversed([*enumerate(_rounded(shape.widths))]):
        for _ in range(width):
            row += 1
            branch = [(float(place + level), row) for level in range(1, branch_depth + 1)]
            links += pairwise([(float(place), 0.0), *branch])
            nodes += branch
    return nodes, links, copied


def _even(shape: IsotropicShape) -> tuple[list[Place], list[tuple[Place, Place]], int]:
    """A parent stands level with its first child."""
    rows = float(shape.branching**shape.depth)
    nodes: list[Place] = [(0.0, 0.0)]
    links: list[tuple[Place, Place]] = []
    for level in range(1, shape.depth + 1):
        step = rows / shape.branching**level
        for number in range(shape.branching**level):
            above = (level - 1.0, number // shape.branching * step * shape.branching)
            links.append((above, (float(level), number * step)))
            nodes.append(links[-1][1])
    return nodes, links, 1


def _rounded(widths: Sequence[float]) -> list[int]:
    """Whole widths whose sums from the root on are the exact sums, rounded."""
    sums = [round(sum(widths[: place + 1])) for place in range(len(widths))]
    return [after - before for before, after in pairwise([0, *sums])]
