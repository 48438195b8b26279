"""The parts of the mask picture: the folded prefix, the entries, rules where a level begins, labels and frames."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from speclab.trace.records import Step
from speclab.tree import Bools
from speclab.views import markup, tokens
from speclab.views.palette import LOOKS, MONO, Theme

BAND, TOP, PAD, ROOM = 76.0, 40.0, 12.0, 620
LABELS, NAME = 11, 13
"""Pixels a row must have for its token to be written beside it, and the longest such label in characters."""
TIPS = 64
"""Rows with a tooltip, at most; beyond that they would be most of the picture's bytes."""
PREFIX_STYLE = "fill:#8FA3B5;fill-opacity:.55"
ANCESTOR_COLOR = "#3F7FB0"
n = markup.number


class Grid:
    """One mask: `cell` pixels an entry, its tree part from (`x`, `TOP`) to (`right`, `bottom`)."""

    def __init__(self, step: Step, colors: Theme) -> None:
        self.step, self.colors = step, colors
        self.size = len(step.tree)
        self.cell = max(2, min(20, ROOM // self.size))
        self.left = PAD + (NAME * 6.1 + 28 if self.cell >= LABELS else 36)
        self.x = self.left + BAND + 4
        self.right = self.x + self.size * self.cell
        self.bottom = TOP + self.size * self.cell

    def prefix(self, seen: str) -> str:
        """The folded prefix: as wide as the share of it that a row sees, the newest tokens to the right."""
        counts, start, boxes = self.step.prefix_seen, 0, []
        for row in range(1, self.size + 1):
            if row == self.size or counts[row] != counts[start]:
                wide = BAND * counts[start] / max(self.step.prefix_length, 1)
                box = f"h{n(wide)}v{(row - start) * self.cell}h-{n(wide)}z"
                boxes.append(f"M{n(self.left + BAND - wide)} {TOP + start * self.cell:g}{box}")
                start = row
        middle, colors = self.left + BAND / 2, self.colors
        name = f"prefix {self.step.prefix_length}"
        style = f"fill:{colors.muted}"
        return markup.tag(
            "g", markup.title(f"rows see {seen}"), markup.tag("path", d="".join(boxes), style=PREFIX_STYLE),
            *(self._fold(x) for x in (middle - 3, middle + 3)),
            markup.text(name, middle, TOP - 8, text_anchor="middle", style=style),
        )  # fmt: skip

    def _fold(self, x: float) -> str:
        """A wave from top to bottom: something is left out here."""
        high = self.size * self.cell
        count = max(round(high / 12), 1)
        half = high / count / 2
        waves = f"q3 {half / 2:.3f} 0 {half:.3f}q-3 {half / 2:.3f} 0 {half:.3f}" * count
        style = f"fill:none;stroke:{self.colors.paper};stroke-width:2"
        return markup.tag("path", d=f"M{n(x)} {TOP:g}{waves}", style=style)

    def _scaled(self, *parts: str) -> str:
        """Parts drawn in units of a cell."""
        return markup.tag("g", *parts, transform=f"translate({n(self.x)} {TOP:g}) scale({self.cell})")

    def entries(self) -> str:
        """What the target was given: ancestors and the node itself."""
        size, colors, eye = self.size, self.colors, np.eye(self.size, dtype=np.bool_)
        style = f"fill:none;stroke:{colors.line};stroke-width:{1 / self.cell:.3g}"
        parts = [markup.tag("rect", width=size, height=size, style=style)]
        for mask, color in ((self.step.mask & ~eye, ANCESTOR_COLOR), (self.step.mask & eye, colors.ink)):
            if mask.any():
                parts.append(_strokes(mask, color))
        if self.cell >= 6:
            lines = "".join(f"M0 {i}H{size}M{i} 0V{size}" for i in range(1, size))
            for color, wide in ((colors.paper, 1.5), (colors.faint, 0.75)):
                parts.append(markup.tag("path", d=lines, style=f"stroke:{color};stroke-width:{wide / self.cell:.3g}"))
        return self._scaled(*parts)

    def mismatches(self, missing: Bools, extra: Bools) -> str:
        """Open boxes where an entry is wrongly hidden, crosses where one is wrongly seen."""
        red = f"stroke:{LOOKS['rejected'].color};stroke-width:{max(2.0, self.cell / 6) / self.cell:.3g}"
        boxes = "".join(f"M{x}.1 {y}.1h.8v.8h-.8z" for y, x in np.argwhere(missing).tolist())
        crosses = "".join(f"M{x}.15 {y}.15l.7 .7m0 -.7l-.7 .7" for y, x in np.argwhere(extra).tolist())
        parts = [_strokes(extra, self.colors.paper), markup.tag("path", d=crosses, style=red)] if crosses else []
        return self._scaled(*parts, markup.tag("path", d=boxes, style=f"fill:none;{red}") if boxes else "")

    def depths(self) -> str:
        """Rules where a level begins, and its depth above and beside it; where there is room."""
        depth, cell, lines = self.step.tree.depth, self.cell, []
        starts = [0, *(np.flatnonzero(np.diff(depth)) + 1).tolist(), self.size]
        names = [markup.text("depth", PAD - 8, TOP - 8)]
        for start, end in pairwise(starts):
            at, middle, room = start * cell, (start + end) * cell / 2, (end - start) * cell
            if start and room >= 6:
                lines.append(f"M{n(self.x + at)} {TOP - 4:g}V{n(self.bottom)}")
                lines.append(f"M{n(self.left - 4)} {TOP + at:g}H{n(self.right)}")
            name = str(depth[start])
            if room >= 6 * len(name) + 4:
                names.append(markup.text(name, self.x + middle, TOP - 8, text_anchor="middle"))
            if room >= 12:
                names.append(markup.text(name, PAD + 4, TOP + middle + 4, text_anchor="middle"))
        rules = markup.tag("path", d="".join(lines), style=f"fill:none;stroke:{self.colors.muted};stroke-opacity:.45")
        return (rules if lines else "") + markup.tag("g", *names, style=f"fill:{self.colors.muted}")

    def rows(self) -> str:
        """Labels where there is room, and a tooltip for every row of a smaller tree."""
        parts = []
        for node in range(self.size if self.size <= TIPS else 0):
            name = tokens.label(int(self.step.tree.token[node]), self.step.texts, NAME)
            seen = ", ".join(str(other) for other in np.flatnonzero(self.step.mask[node]).tolist())
            tip = f"row {node} {name}: {self.step.prefix_seen[node]} prefix tokens and nodes {seen}"
            y, wide = TOP + node * self.cell, self.right - self.left
            area = markup.tag("rect", x=self.left, y=y, width=wide, height=self.cell, fill_opacity=0)
            label = markup.text(name, self.left - 8, y + self.cell / 2 + 4, text_anchor="end")
            parts.append(markup.tag("g", markup.title(tip), label if self.cell >= LABELS else "", area, data_node=node))
        return markup.tag("g", *parts, style=f"font:10px {MONO};fill:{self.colors.ink}") if parts else ""

    def frame(self, selected: int | None) -> str:
        """Two rectangles around the row and the column of a node; they stand off where cells are tiny."""
        if selected is None:
            return ""
        off = 0.0 if self.cell >= 6 else 2.5
        at, long = selected * self.cell - off, self.cell + 2 * off
        style = f"fill:none;stroke:{self.colors.ink};stroke-width:{1.5 if self.cell >= 6 else 1}"
        row = markup.tag(
            "rect", x=self.left - 1, y=TOP + at, width=self.right - self.left + 2, height=long, style=style
        )
        high = self.bottom - TOP + 2
        return row + markup.tag("rect", x=self.x + at, y=TOP - 1, width=long, height=high, style=style)


def _strokes(mask: Bools, color: str) -> str:
    """The true cells, a stroke for each run in a row."""
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    starts, ends = np.argwhere(edges == 1).tolist(), np.argwhere(edges == -1)[:, 1].tolist()
    path = "".join(f"M{x} {y}h{end - x}" for (y, x), end in zip(starts, ends, strict=True))
    return markup.tag("path", d=path, transform="translate(0 .5)", style=f"stroke:{color};stroke-width:1")
