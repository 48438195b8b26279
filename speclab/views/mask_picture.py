"""The tree attention mask: the entries that each row of the verification pass can see.

Columns are the prefix, folded into one band, then the nodes in breadth-first order, then the pass's
further rows, which are not candidates. The mask that the target received is compared with the
ancestor closure of the tree. `page/mask.js` draws the same in the page.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speclab.trace.records import Step
from speclab.views.phases import WHOLE, Position, node_kinds
from speclab.views.sentences import mark
from speclab.views.theme import MUTED, STYLE, Spec, code_map, frame, note, spec, trace
from speclab.views.tokens import clip, label, plot_text, width
from speclab.views.words import WORDS, fill

HIDDEN, ANCESTOR, SELF, MISSING, EXTRA, SEEN = range(6)
TOP = 40
BOTTOM = 22
RIGHT = 8
BAND = 46
GAP = 5
CELLS = 170
MOST = 380
"""Pixels: margins, the folded prefix, the gap next to it, all cells together, the whole height."""
NAME = 9
CHAR = 6.7
"""Most characters of a token in a row's label, and pixels per character."""
EVERY = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
Codes = NDArray[np.uint8]


def mask_codes(step: Step) -> Codes:
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


def _cells(step: Step, position: Position) -> Codes:
    """The codes known at a position: before verify the expected ones, of the nodes drafted so far."""
    codes = mask_codes(step)
    if position.reached("verify"):
        return codes
    codes[codes == MISSING] = ANCESTOR
    codes[codes == EXTRA] = HIDDEN
    if position.phase != "draft":
        return codes
    known = [kind is not None for kind in node_kinds(step, position)]
    known += [False] * len(step.extra)
    codes[[not one for one in known]] = HIDDEN
    codes[:, [not one for one in known]] = HIDDEN
    count = max(row for row, one in enumerate(known) if one) + 1
    return codes[:count, :count]


def mask_sentence(step: Step) -> str:
    """`Mask: 13 rows on the prefix of 57 and 38 of 169 entries of the tree; …`"""
    n = len(step.tree)
    low = min(step.prefix_seen)
    high = max(step.prefix_seen)
    name = "newest" if low == high else "newest range"
    if low == step.prefix_length:
        name = "prefix"
    values: dict[str, Any] = {
        "rows": n,
        "prefix": fill("mask", name, {"low": low, "high": high}),
        "seen": int(step.mask.sum()),
        "cells": n * n,
        "verdict": verdict(step),
    }
    sentence = fill("mask", "sentence", values)
    if step.extra:
        sentence += f" {fill('mask', 'extra', {'rows': len(step.extra)})}"
    return sentence


def verdict(step: Step) -> str:
    """Whether the target received the expected mask."""
    codes = mask_codes(step)
    missing = int((codes == MISSING).sum())
    extra = int((codes == EXTRA).sum())
    name = "differs" if missing or extra else "same"
    return fill("mask", name, {"missing": missing, "extra": extra})


class _Sizes(NamedTuple):
    """Rows, pixels of a cell, labels of the rows, pixels left of them, and where the prefix starts."""

    size: int
    wide: float
    high: float
    labels: list[str]
    left: float
    start: float


def _sizes(step: Step) -> _Sizes:
    size = len(step.tree) + len(step.extra)
    wide = min(16.0, CELLS / size)
    high = min(22.0, (MOST - TOP - BOTTOM) / size, 1.5 * wide)
    tokens = [*step.tree.token.tolist(), *(row.token for row in step.extra)]
    labels = [str(row) for row in range(size)]
    if high >= 12:
        labels = [
            f"{row} {clip(label(token, step.texts), NAME)}" for row, token in enumerate(tokens)
        ]
    left = 10 + CHAR * max(map(width, labels))
    return _Sizes(size, wide, high, labels, left, -0.5 - (GAP + BAND) / wide)


def draw_mask(step: Step, selected: int | None = None, position: Position = WHOLE) -> Spec:
    """The mask of an iteration. `selected`: a node whose row and column get a frame."""
    sizes = _sizes(step)
    size, wide, high, labels, left, start = sizes
    cells = _cells(step, position)
    rows = range(0, len(cells), next(each for each in EVERY if each * high >= 12))
    across = next(each for each in EVERY if each * wide >= 8 * len(str(size)) + 6)
    gap = int(wide >= 5)
    heat = {**code_map(cells.tolist(), STYLE["mask"]["colors"]), "xgap": gap, "ygap": gap}
    end = size - 0.5
    shapes = _rules(step, start, size, high)
    if selected is not None:
        shapes.append(frame(start, end, selected - 0.5, selected + 0.5))
        shapes.append(frame(selected - 0.5, selected + 0.5, -0.5, end))
    texts = [plot_text(labels[row]) for row in rows]
    return spec(
        [_band(step, start, wide, len(cells)), heat, *_marks(cells)],
        mask_sentence(step),
        "mask",
        width=left + BAND + GAP + wide * size + RIGHT,
        height=TOP + high * size + BOTTOM,
        margin={"l": left},
        xaxis={"range": [start, end], "tickvals": list(range(0, size, across))},
        yaxis={"range": [end, -0.5], "tickvals": list(rows), "ticktext": texts},
        shapes=shapes,
        annotations=_notes(step, size, wide)
        + (_findings(step) if position.reached("verify") else []),
    )


def _marks(cells: Codes) -> list[Spec]:
    """Squares and crosses where the mask differs from the expected one."""
    marks = []
    for code, look in zip((MISSING, EXTRA), STYLE["mask"]["marks"].values(), strict=True):
        y, x = np.nonzero(cells == code)
        if len(x):
            line = {"width": 1.5, "color": look["color"]}
            marker = {**look, "size": 5, "line": line}
            marks.append(trace("marks", x=x.tolist(), y=y.tolist(), marker=marker))
    return marks


def _band(step: Step, start: float, wide: float, known: int) -> Spec:
    """The folded prefix: a bar per row for its visible share, newest tokens to the right."""
    seen = [*step.prefix_seen, *(row.prefix_seen for row in step.extra)][:known]
    length = max(step.prefix_length, 1)
    shares = [BAND / wide * count / length for count in seen]
    end = start + BAND / wide
    return trace("band", y=list(range(known)), x=shares, base=[end - share for share in shares])


def _rules(step: Step, start: float, size: int, high: float) -> list[Spec]:
    """Lines between levels, and before the rows that are not candidates."""
    if high < 3:
        return []
    depth = [*step.tree.depth.tolist(), *(-1 for _ in step.extra)]
    end = size - 0.5
    shapes: list[Spec] = []
    for row, (above, below) in enumerate(pairwise(depth)):
        edge = row + 0.5
        if above != below:
            shapes.append({**STYLE["rule"], "x0": edge, "x1": edge, "y0": -0.5, "y1": end})
            shapes.append({**STYLE["rule"], "x0": start, "x1": end, "y0": edge, "y1": edge})
    return shapes


def _findings(step: Step) -> list[Spec]:
    """A sign on the prefix band of each row with a finding."""
    signs = {
        finding.node: mark(finding)[0]
        for finding in reversed(step.findings)
        if finding.node is not None
    }
    place = {"xref": "x", "yref": "y", "xanchor": "right", "yanchor": "middle", "xshift": -GAP - 2}
    font = {"color": "#1F2328"}
    return [note(sign, -0.5, row, **place, font=font) for row, sign in sorted(signs.items())]


def _notes(step: Step, size: int, wide: float) -> list[Spec]:
    """The prefix, above the ticks so that a long one covers none, and the depths below the columns."""
    look: dict[str, Any] = {"xref": "x", "yref": "y", "font": {"size": 11, "color": MUTED}}
    below = {**look, "xanchor": "center", "yanchor": "top"}
    low = size - 0.5
    length = fill("mask", "prefix note", {"length": step.prefix_length})
    notes = [
        note(length, -0.5, -0.5, **{**look, "xanchor": "right"}, xshift=-GAP - 2, yshift=14),
        note("depth", -0.7, low, **{**below, "xanchor": "right"}),
    ]
    for level, nodes in groupby(range(len(step.tree)), lambda row: int(step.tree.depth[row])):
        first, *rest = nodes
        if (len(rest) + 1) * wide >= 8 * len(str(level)):
            notes.append(note(str(level), first + len(rest) / 2, low, **below))
    if step.extra:
        middle = (len(step.tree) + size - 1) / 2
        notes.append(note(WORDS["mask"]["no candidates"], middle, low, **below, yshift=-11))
    return notes
