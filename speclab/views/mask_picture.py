"""The tree attention mask: the entries that each row of the verification pass can see.

Columns are the prefix, folded into one band, then the nodes in breadth-first order, then the pass's
further rows, which are not candidates. The mask that the target received is compared with the
ancestor closure of the tree.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speclab.trace.records import Step
from speclab.views.sentences import mark
from speclab.views.theme import (
    FAINT,
    INK,
    LOOKS,
    MUTED,
    PAPER,
    PLOT_MONO,
    Spec,
    code_map,
    note,
    spec,
)
from speclab.views.tokens import clip, labels, plot_text, plural, quoted

HIDDEN, ANCESTOR, SELF, MISSING, EXTRA, SEEN = range(6)
COLORS = (FAINT, "#3F7FB0", INK, FAINT, LOOKS["rejected"].color, "#3F7FB0")
WORDS = (
    "may not see",
    "sees its ancestor",
    "sees itself,",
    "should see its ancestor",
    "wrongly sees",
    "sees",
)
"""The colour of each code, and the words between row and column in a tooltip."""
PREFIX_COLOR = "#8FA3B5"
TOP = 40
BOTTOM = 22
RIGHT = 8
BAND = 46
GAP = 5
CELLS = 170
"""Pixels: margins, the folded prefix, the gap next to it, all cells together."""
NAME = 9
CHAR = 6.7
"""Most characters of a token in a row's label, and pixels per character."""


def mask_codes(step: Step) -> NDArray[np.uint8]:
    """`[N, N]` codes: the nodes, then the rows that are not candidates."""
    n = len(step.tree)
    size = len(step.tree) + len(step.extra)
    codes = np.full((size, size), HIDDEN, dtype=np.uint8)
    expected = step.tree.ancestor_mask()
    tree = codes[:n, :n]
    tree[step.mask & expected] = ANCESTOR
    tree[step.mask & np.eye(n, dtype=bool)] = SELF
    tree[expected & ~step.mask] = MISSING
    tree[step.mask & ~expected] = EXTRA
    for row, extra in enumerate(step.extra, start=n):
        codes[row, list(extra.sees)] = SEEN
        codes[row, row] = SELF
    return codes


def mask_sentence(step: Step) -> str:
    """`Mask: 13 rows see the prefix of 57 and 38 of 169 entries of the tree; given = expected.`"""
    n = len(step.tree)
    low = min(step.prefix_seen)
    high = max(step.prefix_seen)
    newest = f"{low}" if low == high else f"{low} to {high}"
    prefix = (
        f"the prefix of {high}"
        if low == step.prefix_length
        else f"the newest {newest} prefix tokens"
    )
    extra = f" {plural(len(step.extra), 'further row')} are not candidates." if step.extra else ""
    rows = "1 row sees" if n == 1 else f"{n} rows see"
    return f"Mask: {rows} {prefix} and {int(step.mask.sum())} of {n * n} entries of the tree; {verdict(step)}.{extra}"


def verdict(step: Step) -> str:
    """Whether the target received the expected mask."""
    expected = step.tree.ancestor_mask()
    missing = int((expected & ~step.mask).sum())
    extra = int((step.mask & ~expected).sum())
    if not missing and not extra:
        return "✓ given = expected"
    return f"✗ given ≠ expected: {missing} wrongly hidden, {extra} wrongly shown"


def draw_mask(step: Step, selected: int | None = None) -> Spec:
    """The mask of an iteration. `selected`: a node whose row and column get a frame."""
    drawn, codes = mask_frame(step)
    names = mask_names(step)
    words = [
        [f"{name} {WORDS[code]} {names[x]}" for x, code in enumerate(line)]
        for name, line in zip(names, codes, strict=True)
    ]
    drawn["data"][1] |= {"z": codes.tolist(), "text": words}
    drawn["data"] += _marks(codes)
    if selected is not None:
        line = {"color": INK, "width": 2}
        start = drawn["layout"]["meta"]["start"]
        end = len(codes) - 0.5
        low = selected - 0.5
        high = selected + 0.5
        drawn["layout"]["shapes"] += [
            {"type": "rect", "x0": start, "x1": end, "y0": low, "y1": high, "line": line},
            {"type": "rect", "x0": low, "x1": high, "y0": -0.5, "y1": end, "line": line},
        ]
    return drawn


def _marks(codes: NDArray[np.uint8]) -> list[Spec]:
    """Squares and crosses where the mask differs from the expected one."""
    marks = []
    for code, symbol, color in (
        (MISSING, "square-open", LOOKS["rejected"].color),
        (EXTRA, "x-thin", PAPER),
    ):
        y, x = np.nonzero(codes == code)
        if len(x):
            marker = {
                "symbol": symbol,
                "size": 5,
                "color": color,
                "line": {"width": 1.5, "color": color},
            }
            point = {
                "type": "scatter",
                "mode": "markers",
                "x": x.tolist(),
                "y": y.tolist(),
                "hoverinfo": "skip",
            }
            marks.append({**point, "marker": marker})
    return marks


def mask_frame(step: Step) -> tuple[Spec, NDArray[np.uint8]]:
    """The figure without its cells, and the codes of the cells."""
    codes = mask_codes(step)
    n = len(step.tree)
    size = len(codes)
    high = min(22.0, (380 - TOP - BOTTOM) / size)
    wide = min(16.0, CELLS / size)
    high = min(high, 1.5 * wide)
    named = high >= 12
    labels = [f"{row} {clip(token, NAME)}" for row, token in enumerate(_labels(step))]
    characters = max(map(len, labels)) if named else len(str(size))
    left = 10 + CHAR * (characters if named else len(str(size)))
    start = -0.5 - (GAP + BAND) / wide
    every = next(each for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if each * high >= 12)
    across = next(
        each
        for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
        if each * wide >= 8 * len(str(size)) + 6
    )
    rows = list(range(0, size, every))
    columns = list(range(0, size, across))
    font = {"size": 11, "family": PLOT_MONO, "color": MUTED}
    look = {"showgrid": False, "tickfont": font, "fixedrange": True, "showline": False}
    texts = [plot_text(labels[row]) if named else str(row) for row in rows]
    heat = code_map([], COLORS) | {
        "x0": 0,
        "dx": 1,
        "y0": 0,
        "dy": 1,
        "hovertemplate": "%{text}<extra></extra>",
    }
    if wide < 5:
        heat |= {"xgap": 0, "ygap": 0}
    drawn = spec(
        [_band(step, start, wide), heat],
        mask_sentence(step),
        "mask",
        width=round(left + BAND + GAP + wide * size + RIGHT),
        height=round(TOP + high * size + BOTTOM),
        margin={"l": round(left), "r": RIGHT, "t": TOP, "b": BOTTOM},
        xaxis={**look, "range": [start, size - 0.5], "tickvals": columns, "side": "top"},
        yaxis={**look, "range": [size - 0.5, -0.5], "tickvals": rows, "ticktext": texts},
        shapes=_rules(step, start, size, high),
        annotations=_notes(step, size, n, wide) + _findings(step),
        meta={"start": start, "rows": n},
        dragmode=False,
        barmode="overlay",
    )
    return drawn, codes


def _labels(step: Step) -> list[str]:
    tokens = [*step.tree.token.tolist(), *(row.token for row in step.extra)]
    words = labels(tokens, step.texts)
    return [words[token] for token in tokens]


def mask_names(step: Step) -> list[str]:
    """The names of the rows in tooltips."""
    names = [
        f"node {node} {quoted(token, step.texts)}"
        for node, token in enumerate(step.tree.token.tolist())
    ]
    names += [
        f"row {row} {quoted(extra.token, step.texts)}"
        for row, extra in enumerate(step.extra, len(names))
    ]
    return [plot_text(name) for name in names]


def _band(step: Step, start: float, wide: float) -> Spec:
    """The folded prefix: a bar per row for its visible share, newest tokens to the right."""
    seen = [*step.prefix_seen, *(row.prefix_seen for row in step.extra)]
    length = max(step.prefix_length, 1)
    shares = [BAND / wide * each / length for each in seen]
    end = start + BAND / wide
    shown = ["all" if each == step.prefix_length else f"the newest {each} of" for each in seen]
    return {
        "type": "bar", "orientation": "h", "y": list(range(len(seen))), "x": [round(share, 3) for share in shares],
        "base": [round(end - share, 3) for share in shares], "width": 0.92, "marker": {"color": PREFIX_COLOR},
        "hovertext": mask_names(step), "customdata": shown,
        "hovertemplate": f"%{{hovertext}} sees %{{customdata}} {length} prefix tokens<extra></extra>",
    }  # fmt: skip


def _rules(step: Step, start: float, size: int, high: float) -> list[Spec]:
    """Lines between levels, and before the rows that are not candidates."""
    if high < 3:
        return []
    depth = [*step.tree.depth.tolist(), *(-1 for _ in step.extra)]
    line = {"color": MUTED, "width": 1}
    shapes = []
    for row in [row for row in range(1, size) if depth[row] != depth[row - 1]]:
        edge = row - 0.5
        end = size - 0.5
        shapes.append(
            {
                "type": "line",
                "x0": edge,
                "x1": edge,
                "y0": -0.5,
                "y1": end,
                "line": line,
                "opacity": 0.6,
            }
        )
        shapes.append(
            {
                "type": "line",
                "x0": start,
                "x1": end,
                "y0": edge,
                "y1": edge,
                "line": line,
                "opacity": 0.6,
            }
        )
    return shapes


def _findings(step: Step) -> list[Spec]:
    """A sign on the prefix band of each row with a finding; the page selects these notes by name."""
    signs = {
        finding.node: mark(finding)[0]
        for finding in reversed(step.findings)
        if finding.node is not None
    }
    look: Spec = {
        "xref": "x",
        "yref": "y",
        "xanchor": "right",
        "yanchor": "middle",
        "font": {"color": "#1F2328"},
    }
    return [
        note(sign, -0.5, row, **look, xshift=-GAP - 2, name="finding")
        for row, sign in signs.items()
    ]


def _notes(step: Step, size: int, n: int, wide: float) -> list[Spec]:
    look: dict[str, Any] = {"xref": "x", "yref": "y", "font": {"size": 11, "color": MUTED}}
    below = {**look, "xanchor": "center", "yanchor": "top"}
    low = size - 0.5
    rows = list(range(n))
    notes = [
        note(
            f"prefix {step.prefix_length}",
            -0.5,
            -0.5,
            **{**look, "xanchor": "right"},
            xshift=-GAP - 2,
        ),
        note("depth", -0.7, low, **{**below, "xanchor": "right"}),
    ]
    for level, nodes in groupby(rows, lambda row: int(step.tree.depth[row])):
        first, *rest = nodes
        if (len(rest) + 1) * wide >= 8 * len(str(level)):
            notes.append(note(str(level), first + len(rest) / 2, low, **below))
    if step.extra:
        notes.append(note("no candidates", (n + size - 1) / 2, low, **below, yshift=-11))
    return notes
