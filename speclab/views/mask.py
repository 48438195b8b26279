"""The tree-attention mask: which entries each row of the verification pass was given to see.

Columns are the prefix (folded into one band) and then the nodes in breadth-first order, so that columns group by depth.
`folded` and `full` draw the mask that the target was *given*; `compare` sets it against the ancestor closure.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from speclab.trace import Step
from speclab.tree import Bools
from speclab.views import glyphs, markup, png, tokens
from speclab.views.palette import LOOKS, MONO, Theme, ThemeName, css
from speclab.views.summary import plural

Mode = Literal["folded", "full", "compare"]
BAND, TOP, PAD = 76.0, 40.0, 12.0
ROOM = 620
LABELS = 11  # pixels a row must have for its token to be written beside it
NAME = 13  # characters of a row's label
HIDDEN, PREFIX, ANCESTOR, SELF = range(4)
PREFIX_COLOR, ANCESTOR_COLOR, SELF_COLOR = "#8FA3B5", "#3F7FB0", "#0B3C5D"
_PNG: tuple[png.Color, ...] = ((0, 0, 0, 0), (143, 163, 181, 150), (63, 127, 176, 255), (11, 60, 93, 255))


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
    """`Mask: 13 rows see the prefix of 57 and 38 of 169 tree entries; it equals the ancestor closure.`"""
    n, seen = len(step.tree), int(step.mask.sum())
    missing, extra = (int(part.sum()) for part in mismatches(step))
    verdict = "it equals the ancestor closure"
    if missing or extra:
        verdict = f"{missing} entries that should be seen are hidden, {extra} that should be hidden are seen"
    return f"Mask: {plural(n, 'row')} see {_prefix(step)} and {seen} of {n * n} tree entries; {verdict}."


def _prefix(step: Step) -> str:
    low, high = min(step.prefix_seen), max(step.prefix_seen)
    if low == high == step.prefix_length:
        return f"the prefix of {step.prefix_length}"
    return f"the newest {low if low == high else f'{low} to {high}'} of {step.prefix_length} prefix entries"


def mask_svg(
    step: Step, selected: int | None = None, mode: Mode = "folded", theme: ThemeName = "light"
) -> str:
    """The mask as one SVG string. `selected` frames a node's row and column; `full` draws the prefix entry by entry."""
    colors = css(theme)
    if mode == "full":
        return _full(step, selected, colors)
    n = len(step.tree)
    cell = _cell(n)
    left = _left(cell)
    x0 = left + BAND + 4
    size = n * cell
    parts = [_band(step, left, cell, colors), _tree_part(step, x0, cell, colors, compare=mode == "compare")]
    parts += [_depths(step, left, x0, cell, colors), _rows(step, left, x0, cell, colors), _frame(selected, left, x0, size, cell, colors)]
    width = max(x0 + size + PAD, 640.0)
    key, height = _legend(step, mode, colors, TOP + size + 26, width)
    return markup.svg(width, TOP + size + 20 + height, summary(step), colors, [*parts, key])


def _cell(n: int) -> int:
    return max(2, min(20, ROOM // n))


def _left(cell: int) -> float:
    return PAD + (NAME * 6.1 + 24 if cell >= LABELS else 40)


def _band(step: Step, left: float, cell: int, colors: Theme) -> str:
    """The folded prefix: as wide as the share of it that a row sees, newest entries to the right."""
    rects, start = [], 0
    seen = step.prefix_seen
    for row in range(1, len(seen) + 1):
        if row == len(seen) or seen[row] != seen[start]:
            wide = BAND * seen[start] / max(step.prefix_length, 1)
            rects.append(f"M{markup.number(left + BAND - wide)} {TOP + start * cell}h{markup.number(wide)}v{(row - start) * cell}h-{markup.number(wide)}z")
            start = row
    fill = markup.tag("path", d="".join(rects), style=f"fill:{PREFIX_COLOR};fill-opacity:.55")
    size, middle = len(seen) * cell, left + BAND / 2
    waves = "".join("q3 3 0 6t0 6" for _ in range(-(-size // 12)))
    fold = "".join(
        markup.tag("path", d=f"M{markup.number(x)} {TOP:g}{waves}", style=f"fill:none;stroke:{colors.paper};stroke-width:2")
        for x in (middle - 3, middle + 3)
    )
    clip = markup.tag("svg", fold.replace(f" {TOP:g}q", " 0q"), x=left, y=TOP, width=BAND, height=float(size), viewBox=f"{markup.number(left)} 0 {markup.number(BAND)} {size}")
    heading = markup.text(f"prefix {step.prefix_length}", middle, TOP - 8, text_anchor="middle", style=f"fill:{colors.muted}")
    return markup.tag("g", markup.title(f"prefix: rows see {_prefix(step)}"), fill, clip, heading)


def _runs(mask: Bools) -> str:
    """The true cells as horizontal strokes, one run each, in units of a cell."""
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return "".join(f"M{x} {y}h{end - x}" for (y, x), (_, end) in zip(starts.tolist(), ends.tolist(), strict=True))


def _tree_part(step: Step, x0: float, cell: int, colors: Theme, *, compare: bool) -> str:
    n = len(step.tree)
    eye = np.eye(n, dtype=np.bool_)
    ground = markup.tag("rect", width=float(n), height=float(n), style=f"fill:none;stroke:{colors.line};stroke-width:{1 / cell:.3g}")
    layers = [(step.mask & ~eye, ANCESTOR_COLOR), (step.mask & eye, SELF_COLOR)]
    strokes = [markup.tag("path", d=_runs(m), transform="translate(0 .5)", style=f"stroke:{color};stroke-width:1") for m, color in layers if m.any()]
    grid = ""
    if cell >= 6:
        lines = "".join(f"M0 {i}H{n}M{i} 0V{n}" for i in range(1, n))
        grid = markup.tag("path", d=lines, style=f"stroke:{colors.paper};stroke-width:{1.5 / cell:.3g}")
        faint = markup.tag("path", d=lines, style=f"stroke:{colors.faint};stroke-width:{0.75 / cell:.3g};stroke-opacity:.6")
        grid += faint
    marks = _mismatch_marks(step, cell, colors) if compare else ""
    return markup.tag("g", ground, *strokes, grid, marks, transform=f"translate({markup.number(x0)} {TOP:g}) scale({cell})")


def _mismatch_marks(step: Step, cell: int, colors: Theme) -> str:
    missing, extra = mismatches(step)
    wide = f"stroke-width:{max(2.0, cell / 6) / cell:.3g}"
    red = LOOKS["rejected"].color
    crosses = "".join(f"M{x + .15:.2f} {y + .15:.2f}l.7 .7m0 -.7l-.7 .7" for y, x in np.argwhere(extra).tolist())
    boxes = "".join(f"M{x + .1:.2f} {y + .1:.2f}h.8v.8h-.8z" for y, x in np.argwhere(missing).tolist())
    ground = markup.tag("path", d=_runs(extra), transform="translate(0 .5)", style=f"stroke:{colors.paper};stroke-width:1") if crosses else ""
    return ground + markup.tag("path", d=crosses, style=f"stroke:{red};{wide}") + markup.tag("path", d=boxes, style=f"fill:none;stroke:{red};{wide}")


def _depths(step: Step, left: float, x0: float, cell: int, colors: Theme) -> str:
    """Where a level begins: rules through the mask, and the depth above and beside it."""
    depth = step.tree.depth
    starts = [0, *(np.flatnonzero(np.diff(depth)) + 1).tolist(), len(depth)]
    size, lines, names = len(depth) * cell, [], []
    for start, end in zip(starts, starts[1:], strict=False):
        at, middle = start * cell, (start + end) * cell / 2
        if start:
            lines.append(f"M{markup.number(x0 + at)} {TOP - 4:g}V{TOP + size:g}M{markup.number(left - 4)} {TOP + at:g}H{markup.number(x0 + size)}")
        name = str(depth[start])
        if (end - start) * cell >= 6 * len(name) + 2:
            names.append(markup.text(name, x0 + middle, TOP - 8, text_anchor="middle"))
        if (end - start) * cell >= 12:
            names.append(markup.text(name, PAD + 4, TOP + middle + 4, text_anchor="middle"))
    names.append(markup.text("depth", PAD - 8, TOP - 8))
    rules = markup.tag("path", d="".join(lines), style=f"fill:none;stroke:{colors.muted};stroke-opacity:.45")
    return rules + markup.tag("g", *names, style=f"fill:{colors.muted}")


def _rows(step: Step, left: float, x0: float, cell: int, colors: Theme) -> str:
    """Labels where there is room, and a tooltip for every row."""
    n = len(step.tree)
    if n > 64:
        return ""
    parts = []
    for node in range(n):
        name = tokens.label(int(step.tree.token[node]), step.texts, NAME)
        seen = ", ".join(str(other) for other in np.flatnonzero(step.mask[node]).tolist())
        tip = f"row {node} {name}: {step.prefix_seen[node]} prefix entries and nodes {seen}"
        y = TOP + node * cell
        area = markup.tag("rect", x=left, y=y, width=x0 - left + n * cell, height=float(cell), fill_opacity=0)
        text = markup.text(name, left - 8, y + cell / 2 + 4, text_anchor="end") if cell >= LABELS else ""
        parts.append(markup.tag("g", markup.title(tip), text, area, data_node=node))
    return markup.tag("g", *parts, style=f"font:10px {MONO};fill:{colors.ink}")


def _frame(selected: int | None, left: float, x0: float, size: int, cell: int, colors: Theme) -> str:
    if selected is None:
        return ""
    at = selected * cell
    style = f"fill:none;stroke:{colors.ink};stroke-width:1.5"
    row = markup.tag("rect", x=left - 1, y=TOP + at, width=x0 - left + size + 2, height=float(cell), style=style)
    column = markup.tag("rect", x=x0 + at, y=TOP - 1, width=float(cell), height=size + 2.0, style=style)
    return row + column


def _legend(step: Step, mode: Mode, colors: Theme, y: float, width: float) -> tuple[str, float]:
    entries = [
        (glyphs.swatch(f"fill:{PREFIX_COLOR};fill-opacity:.55"), "prefix", 12.0),
        (glyphs.swatch(f"fill:{ANCESTOR_COLOR}"), "ancestor", 12.0),
        (glyphs.swatch(f"fill:{SELF_COLOR}"), "the node itself", 12.0),
        (glyphs.swatch(f"fill:none;stroke:{colors.line}"), "hidden", 12.0),
    ]
    red = LOOKS["rejected"].color
    if mode == "compare":
        cross = markup.tag("path", d="M-4 -4L4 4M4 -4L-4 4", style=f"stroke:{red};stroke-width:2")
        entries.append((glyphs.swatch(f"fill:none;stroke:{red};stroke-width:2"), "hidden, should be seen", 12.0))
        entries.append((cross, "seen, should be hidden", 12.0))
    missing, extra = mismatches(step)
    same = not (missing.any() or extra.any())
    verdict = "given = expected (ancestor closure)" if same else f"given ≠ expected at {int(missing.sum() + extra.sum())} entries"
    entries.append((markup.text("✓" if same else "✗", -5, 4, style=f"font-weight:700;fill:{colors.ink if same else red}"), verdict, 12.0))
    key, height = glyphs.legend(entries, PAD, y, width - 2 * PAD)
    return markup.tag("g", key, style=f"fill:{colors.muted}"), height


def _full(step: Step, selected: int | None, colors: Theme) -> str:
    grid = categories(step)
    rows, columns = grid.shape
    cell = max(1, min(12, 900 // columns))
    tall = max(cell, min(12, ROOM // rows))
    wide, high = float(columns * cell), float(rows * tall)
    image = markup.tag(
        "image", x=PAD, y=TOP, width=wide, height=high, preserveAspectRatio="none", href=png.data_uri(grid, _PNG),
        style="image-rendering:pixelated",
    )  # fmt: skip
    edge = markup.tag("rect", x=PAD, y=TOP, width=wide, height=high, style=f"fill:none;stroke:{colors.line}")
    split = PAD + step.prefix_length * cell
    names = markup.text(f"prefix, entries 0 to {step.prefix_length - 1}", PAD, TOP - 8) if step.prefix_length else ""
    names += markup.text("tree", split + rows * cell, TOP - 8, text_anchor="end")
    line = markup.tag("path", d=f"M{markup.number(split)} {TOP - 4:g}V{TOP + high:g}", style=f"stroke:{colors.muted}")
    frame = ""
    if selected is not None:
        frame = markup.tag("rect", x=PAD, y=TOP + selected * tall, width=wide, height=float(tall), style=f"fill:none;stroke:{colors.ink};stroke-width:1.5")
    width = max(wide + 2 * PAD, 640.0)
    key, height = _legend(step, "full", colors, TOP + high + 26, width)
    heading = markup.tag("g", names, style=f"fill:{colors.muted}")
    return markup.svg(width, TOP + high + 20 + height, summary(step), colors, [image, edge, line, heading, frame, key])


def table(step: Step) -> str:
    """What each row sees, as an HTML table."""
    missing, extra = mismatches(step)
    rows = (
        (node, tokens.label(int(step.tree.token[node]), step.texts), step.prefix_seen[node],
         ", ".join(map(str, np.flatnonzero(step.mask[node]).tolist())),
         "as expected" if not (missing[node].any() or extra[node].any()) else "differs from the ancestor closure")
        for node in range(len(step.tree))
    )  # fmt: skip
    return markup.table("Mask given to the target", ("row", "token", "prefix entries seen", "nodes seen", "check"), rows)
