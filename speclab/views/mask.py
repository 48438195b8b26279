"""The tree-attention mask: which entries each row of the verification pass was given to see.

Columns are the prefix (folded into one band) and then the nodes in breadth-first order, so that columns group by depth.
`folded` and `full` draw the mask that the target was *given*; `compare` sets it against the ancestor closure.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from speclab.trace.records import Step
from speclab.tree import Bools
from speclab.views import glyphs, markup, png, tokens
from speclab.views.grid import ANCESTOR_COLOR, PAD, PREFIX_STYLE, TOP, Grid
from speclab.views.palette import LOOKS, THEMES, Theme, ThemeName, css
from speclab.views.summary import plural

Mode = Literal["folded", "full", "compare"]
LEAST_WIDTH, ROOM, WIDEST = 440.0, 620, 900
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
        return _full(step, selected, theme)
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
        (glyphs.swatch(PREFIX_STYLE), "prefix", 12.0),
        (glyphs.swatch(f"fill:{ANCESTOR_COLOR}"), "ancestor", 12.0),
        (glyphs.swatch(f"fill:{colors.ink}"), "the node itself", 12.0),
        (glyphs.swatch(f"fill:none;stroke:{colors.line}"), "hidden", 12.0),
    ]
    red = LOOKS["rejected"].color
    if mode == "compare":
        cross = markup.tag("path", d="M-4 -4L4 4M4 -4L-4 4", style=f"stroke:{red};stroke-width:2")
        box = glyphs.swatch(f"fill:none;stroke:{red};stroke-width:2")
        entries += [(box, "hidden, should be seen", 12.0), (cross, "seen, should be hidden", 12.0)]
    wrong = sum(int(part.sum()) for part in mismatches(step))
    style = f"font-weight:700;fill:{red if wrong else colors.ink}"
    short = f"given ≠ expected: {wrong} of {len(step.tree) ** 2} entries" if wrong else _verdict(step)
    entries.append((markup.text("✗" if wrong else "✓", -5, 4, style=style), short, 12.0))
    key, height = glyphs.legend(entries, PAD, y, width - 2 * PAD)
    return markup.tag("g", key, style=f"fill:{colors.muted}"), height


def _full(step: Step, selected: int | None, theme: ThemeName) -> str:
    """One cell an entry, as an image: its colours are fixed, so they follow `theme` and not the page."""
    colors, grid = css(theme), categories(step)
    rows, columns = grid.shape
    wide_cell = max(1, min(12, WIDEST // columns))
    tall_cell = max(wide_cell, min(12, ROOM // rows))
    wide, high = float(columns * wide_cell), float(rows * tall_cell)
    uri = png.data_uri(grid, ((0, 0, 0, 0), (143, 163, 181, 140), _rgba(ANCESTOR_COLOR), _rgba(THEMES[theme].ink)))
    place = {"x": PAD, "y": TOP, "width": wide, "height": high}
    image = markup.tag("image", preserveAspectRatio="none", href=uri, style="image-rendering:pixelated", **place)
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


def _rgba(color: str) -> png.Color:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16), 255


def table(step: Step) -> str:
    """What each row sees, as an HTML table; rows that are no candidates come after the nodes."""
    missing, extra = mismatches(step)
    rows = [
        (node, tokens.label(int(step.tree.token[node]), step.texts), step.prefix_seen[node],
         ", ".join(map(str, np.flatnonzero(step.mask[node]).tolist())),
         "differs from the ancestor closure" if missing[node].any() or extra[node].any() else "as expected")
        for node in range(len(step.tree))
    ]  # fmt: skip
    rows += [
        (place, tokens.label(row.token, step.texts), row.prefix_seen, ", ".join(map(str, row.sees)), "no candidate")
        for place, row in enumerate(step.extra, start=len(step.tree))
    ]
    head = ("row", "token", "prefix tokens seen", "rows seen", "check")
    return markup.table("Mask given to the target", head, rows)
