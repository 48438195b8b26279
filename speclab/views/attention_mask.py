"""The tree-attention mask: which entries each row of the verification pass was given to see.

Columns are the prefix (folded into one band) and then the nodes in breadth-first order, so that columns group by depth.
`folded` and `full` draw the mask that the target was *given*; `compare` sets it against the ancestor closure.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from speclab.trace.records import Step
from speclab.tree import Bools
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.palette import LOOKS, MONO, Theme, ThemeName, css

BAND, TOP, PAD, ROOM = 76.0, 40.0, 12.0, 620
LABELS, NAME = 11, 13
"""Pixels a row must have for its token to be written beside it, and the longest such label in characters."""
TIPS = 64
"""Rows with a tooltip, at most; beyond that they would be most of the picture's bytes."""
PREFIX_STYLE = "fill:#8FA3B5;fill-opacity:.55"
ANCESTOR_COLOR = "#3F7FB0"
n = markup.number


class Grid:
    """One mask: `cell` pixels per entry, its tree part from (`x`, `TOP`) to (`right`, `bottom`)."""

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
            lines = "".join([f"M0 {i}H{size}M{i} 0V{size}" for i in range(1, size)])
            for color, wide in ((colors.paper, 1.5), (colors.faint, 0.75)):
                parts.append(markup.tag("path", d=lines, style=f"stroke:{color};stroke-width:{wide / self.cell:.3g}"))
        return self._scaled(*parts)

    def mismatches(self, missing: Bools, extra: Bools) -> str:
        """Open boxes where an entry is wrongly hidden, crosses where one is wrongly seen."""
        red = f"stroke:{LOOKS['rejected'].color};stroke-width:{max(2.0, self.cell / 6) / self.cell:.3g}"
        boxes = "".join([f"M{x}.1 {y}.1h.8v.8h-.8z" for y, x in np.argwhere(missing).tolist()])
        crosses = "".join([f"M{x}.15 {y}.15l.7 .7m0 -.7l-.7 .7" for y, x in np.argwhere(extra).tolist()])
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
        if self.size > TIPS:
            return ""
        parts = []
        for node, name in enumerate(markup.labels(self.step.tree.token.tolist(), self.step.texts, NAME)):
            seen = ", ".join(map(str, np.flatnonzero(self.step.mask[node]).tolist()))
            tip = f"row {node} {name}: {self.step.prefix_seen[node]} prefix tokens and nodes {seen}"
            y, wide = TOP + node * self.cell, self.right - self.left
            area = f'<rect x="{n(self.left)}" y="{y:g}" width="{n(wide)}" height="{self.cell}" fill-opacity="0"/>'
            label = markup.text(name, self.left - 8, y + self.cell / 2 + 4, text_anchor="end")
            label = label if self.cell >= LABELS else ""
            parts.append(f'<g data-node="{node}">{markup.title(tip)}{label}{area}</g>')
        return markup.tag("g", *parts, style=f"font:10px {MONO};fill:{self.colors.ink}")

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
    path = "".join([f"M{x} {y}h{end - x}" for (y, x), end in zip(starts, ends, strict=True)])
    return markup.tag("path", d=path, transform="translate(0 .5)", style=f"stroke:{color};stroke-width:1")


Mode = Literal["folded", "full", "compare"]
LEAST_WIDTH, WIDEST = 440.0, 900
HIDDEN, PREFIX, ANCESTOR, SELF = range(4)


def categories(step: Step) -> NDArray[np.uint8]:
    """`[n, prefix + n]` uint8 of what the target was given: 0 hidden, 1 prefix, 2 ancestor, 3 self."""
    n, prefix = len(step.tree), step.prefix_length
    grid = np.full((n, prefix + n), HIDDEN, dtype=np.uint8)
    seen = np.asarray(step.prefix_seen)[:, None]
    grid[:, :prefix][np.arange(prefix)[None, :] >= prefix - seen] = PREFIX
    grid[:, prefix:][step.mask] = ANCESTOR
    grid[np.arange(n), prefix + np.arange(n)] = np.where(step.mask.diagonal(), SELF, HIDDEN)
    return grid


def mismatches(step: Step) -> tuple[Bools, Bools]:
    """Two `[n, n]` bool: should be seen but is hidden; is seen but should be hidden."""
    expected = step.tree.ancestor_mask()
    return expected & ~step.mask, step.mask & ~expected


def summary(step: Step) -> str:
    """One sentence, such as: Mask: 13 rows see the prefix of 57 and 38 of 169 tree entries; given = expected."""
    n, seen = len(step.tree), int(step.mask.sum())
    rows = "1 row sees" if n == 1 else f"{n} rows see"
    extra = f" {plural(len(step.extra), 'further row')} are no candidates." if step.extra else ""
    return f"Mask: {rows} {_prefix(step)} and {seen} of {n * n} tree entries; {_verdict(step)}.{extra}"


def _verdict(step: Step) -> str:
    missing, extra = (int(part.sum()) for part in mismatches(step))
    if not missing and not extra:
        return "given = expected (the ancestor closure)"
    return f"given ≠ expected: {missing} hidden that should be seen, {extra} seen that should be hidden"


def _prefix(step: Step) -> str:
    low, high = min(step.prefix_seen), max(step.prefix_seen)
    if low == high == step.prefix_length:
        return f"the prefix of {step.prefix_length}"
    return f"the newest {low if low == high else f'{low} to {high}'} of {plural(step.prefix_length, 'prefix token')}"


def mask_svg(step: Step, selected: int | None = None, mode: Mode = "folded", theme: ThemeName = "light") -> str:
    """The mask as one SVG string. `selected` frames a node's row and column; `full` draws the prefix token by token."""
    colors = css(theme)
    if mode == "full":
        return _full(step, selected, colors)
    grid = Grid(step, colors)
    parts = [grid.prefix(_prefix(step)), grid.entries()]
    if mode == "compare":
        parts.append(grid.mismatches(*mismatches(step)))
    parts += [grid.depths(), grid.rows(), grid.frame(selected)]
    width = max(grid.right + PAD, LEAST_WIDTH)
    key, height = _legend(step, mode, colors, grid.bottom + 26, width)
    return markup.svg(width, grid.bottom + 20 + height, summary(step), colors, [*parts, key])


def _legend(step: Step, mode: Mode, colors: Theme, y: float, width: float) -> tuple[str, float]:
    entries = [
        (markup.swatch(PREFIX_STYLE), "prefix", 12.0),
        (markup.swatch(f"fill:{ANCESTOR_COLOR}"), "ancestor", 12.0),
        (markup.swatch(f"fill:{colors.ink}"), "the node itself", 12.0),
        (markup.swatch(f"fill:none;stroke:{colors.line}"), "hidden", 12.0),
    ]
    red = LOOKS["rejected"].color
    if mode == "compare":
        cross = markup.tag("path", d="M-4 -4L4 4M4 -4L-4 4", style=f"stroke:{red};stroke-width:2")
        box = markup.swatch(f"fill:none;stroke:{red};stroke-width:2")
        entries += [(box, "hidden, should be seen", 12.0), (cross, "seen, should be hidden", 12.0)]
    wrong = sum([int(part.sum()) for part in mismatches(step)])
    style = f"font-weight:700;fill:{red if wrong else colors.ink}"
    short = f"given ≠ expected: {wrong} of {len(step.tree) ** 2} entries" if wrong else _verdict(step)
    entries.append((markup.text("✗" if wrong else "✓", -5, 4, style=style), short, 12.0))
    key, height = markup.legend(tuple(entries), PAD, y, width - 2 * PAD)
    return markup.tag("g", key, style=f"fill:{colors.muted}"), height


def _full(step: Step, selected: int | None, colors: Theme) -> str:
    """One cell per entry, the prefix token by token."""
    grid = categories(step)
    rows, columns = grid.shape
    wide_cell = max(1, min(12, WIDEST // columns))
    tall_cell = max(wide_cell, min(12, ROOM // rows))
    wide, high = float(columns * wide_cell), float(rows * tall_cell)
    kinds = ((PREFIX, "#8FA3B5"), (ANCESTOR, ANCESTOR_COLOR), (SELF, colors.ink))
    cells = "".join([_strokes(grid == kind, color) for kind, color in kinds])
    place = {"x": PAD, "y": TOP, "width": wide, "height": high}
    image = markup.tag("g", cells, transform=f"translate({PAD:g} {TOP:g}) scale({wide_cell} {tall_cell})")
    edge = markup.tag("rect", style=f"fill:none;stroke:{colors.line}", **place)
    split = PAD + step.prefix_length * wide_cell
    names = markup.text(f"prefix, tokens 0 to {step.prefix_length - 1}", PAD, TOP - 8) if step.prefix_length else ""
    names += markup.text("tree", PAD + wide, TOP - 8, text_anchor="end")
    names += markup.tag("path", d=f"M{split:g} {TOP - 4:g}V{TOP + high:g}", style=f"stroke:{colors.muted}")
    frame = ""
    if selected is not None:
        place |= {"x": PAD - 1, "width": wide + 2, "y": TOP + selected * tall_cell - 1, "height": tall_cell + 2.0}
        frame = markup.tag("rect", style=f"fill:none;stroke:{colors.ink};stroke-width:1.2", **place)
    width = max(wide + 2 * PAD, LEAST_WIDTH)
    key, height = _legend(step, "full", colors, TOP + high + 26, min(width, WIDEST))
    heading = markup.tag("g", names, style=f"fill:{colors.muted}")
    return markup.svg(width, TOP + high + 20 + height, summary(step), colors, [image, edge, heading, frame, key])


def table(step: Step) -> str:
    """What each row sees, as an HTML table; rows that are no candidates come after the nodes."""
    missing, extra = mismatches(step)
    rows = [
        (node, markup.label(int(step.tree.token[node]), step.texts), step.prefix_seen[node],
         ", ".join(map(str, np.flatnonzero(step.mask[node]).tolist())),
         "differs from the ancestor closure" if missing[node].any() or extra[node].any() else "as expected")
        for node in range(len(step.tree))
    ]  # fmt: skip
    rows += [
        (place, markup.label(row.token, step.texts), row.prefix_seen, ", ".join(map(str, row.sees)), "no candidate")
        for place, row in enumerate(step.extra, start=len(step.tree))
    ]
    head = ("row", "token", "prefix tokens seen", "rows seen", "check")
    return markup.table("Mask given to the target", head, rows)
