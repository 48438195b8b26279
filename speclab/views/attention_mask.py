"""The tree attention mask: which entries each row of the verification pass was given to see.

Columns are the prefix, folded into one band as wide as the share of it that a row sees, then the nodes in breadth-first
order, so that columns group by depth, then rows of the pass that are no candidates. While a tree is drafted the mask is
the ancestor closure of what is there; from verify on it is what the target was *given*, set against that closure.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speclab.trace.records import Step
from speclab.tree import Bools
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import (
    CLEAR,
    FAINT,
    INK,
    MUTED,
    PAPER,
    Spec,
    coded,
    escape,
    frame,
    indexed_png,
    note,
    spec,
    table_of,
)
from speclab.views.palette import LOOKS, PLOT_MONO
from speclab.views.playback import WHOLE, PlaybackPosition, present

Mode = Literal["folded", "full", "compare"]
Codes = NDArray[np.uint8]
HIDDEN, PREFIX, ANCESTOR, SELF, MISSING, EXTRA, SEEN, ABSENT = range(8)
PREFIX_COLOR, ANCESTOR_COLOR, WRONG_COLOR = "#8FA3B5", "#3F7FB0", LOOKS["rejected"].color
COLORS = (FAINT, PREFIX_COLOR, ANCESTOR_COLOR, INK, FAINT, WRONG_COLOR, ANCESTOR_COLOR, CLEAR)
WORDS = (
    "may not see", "sees the prefix at", "sees its ancestor", "sees itself:", "is not shown its ancestor",
    "is wrongly shown", "sees", "–",
)  # fmt: skip
"""Of every code: its colour, and what stands in a tooltip between row and column."""
PIXELS = tuple([(*bytes.fromhex(color), alpha) for color, alpha in (
    ("7D8791", 48), ("8FA3B5", 255), ("3F7FB0", 255), ("3F7FB0", 255), ("7D8791", 48), ("D55E00", 255), ("3F7FB0", 255),
    ("000000", 0))])  # fmt: skip
"""The same in an image, which follows no theme: the diagonal is drawn over it."""
MANY = 96 * 96
"""Cells from which on they are drawn as an image: a tooltip then speaks of a row, not of a cell."""
NAME = 9
"""Characters of a token beside its row; there is always room for so many, so that the mask stays where it is."""
TOP, BOTTOM, RIGHT, BAND, GAP, ROW, LARGEST = 42, 26, 10, 62, 5, 13, 56
"""Pixels: margins, the folded prefix and what is left beside it, a row whose label can be read, the largest cell."""


def mismatches(step: Step) -> tuple[Bools, Bools]:
    """Two `[n, n]` bool: should be seen but is hidden; is seen but should be hidden."""
    expected = step.tree.ancestor_mask()
    return expected & ~step.mask, step.mask & ~expected


def categories(step: Step, position: PlaybackPosition = WHOLE) -> Codes:
    """`[N, prefix + N]` codes of the nodes, then the rows that are no candidates, as far as they are there."""
    n, size, given = len(step.tree), len(step.tree) + len(step.extra), position.reached("verify")
    grid = np.full((size, size), HIDDEN, dtype=np.uint8)
    grid[:n, :n][step.mask if given else step.tree.ancestor_mask()] = ANCESTOR
    for row, extra in enumerate(step.extra, start=n):
        grid[row, list(extra.sees)] = SEEN
    np.fill_diagonal(grid, np.where(grid.diagonal() == HIDDEN, HIDDEN, SELF))
    for wrong, code in zip(mismatches(step), (MISSING, EXTRA), strict=True):
        grid[:n, :n][wrong & given] = code
    absent = np.full(size, not position.reached("flatten"))
    absent[:n] = ~present(step, position)
    newest = np.arange(step.prefix_length)[None, :] >= step.prefix_length - np.array(_prefix_seen(step))[:, None]
    grid[:, absent] = ABSENT
    grid = np.hstack([np.where(newest, PREFIX, HIDDEN).astype(np.uint8), grid])
    grid[absent] = ABSENT
    return grid


class _Grid(NamedTuple):
    """Where things stand: a column and a row are a unit, `wide` and `high` pixels; node 0 is at (0, 0)."""

    size: int
    start: float
    wide: float
    high: float
    left: float
    scale: float
    named: bool

    def every(self, pixels: float, room: float) -> int:
        """Every how manieth label of so many pixels has room."""
        steps = (1, 2, 5, 10, 20, 50, 100, 200, 500)
        return next((step for step in steps if step * room >= pixels * self.scale), 1000)


def _grid(size: int, before: int | None, width: float, height: float, scale: float) -> _Grid:
    """`before`: prefix tokens drawn, None where they are folded."""
    for characters in (NAME + 3, len(str(size))):
        left = (16 + 6.7 * characters) * scale
        wide, high = width - left - RIGHT, height - (TOP + BOTTOM) * scale
        band = (BAND + GAP) * scale if before is None else 0.0
        cell = min(high / size, LARGEST * scale, (wide - band) / size if before is None else high)
        cell = float(int(cell)) if cell >= 10 else cell
        if cell >= ROW * scale:
            break
    wide = cell if before is None else min(wide / (before + size), cell)
    start = -0.5 - (band / cell if before is None else before)
    return _Grid(size, start, wide, cell, left, scale, named=cell >= ROW * scale and characters > NAME)


def mask_spec(
    step: Step,
    selected: int | None = None,
    *,
    position: PlaybackPosition = WHOLE,
    mode: Mode = "folded",
    height: float = 420,
    width: float = 420,
    scale: float = 1.0,
) -> Spec:
    """The mask as a figure of `width` by `height` pixels; a click on a row selects its node.

    `selected`: a node whose row and column are framed. `mode`: `full` draws the prefix token by token; `compare` sets a
    dot wherever the ancestor closure has an entry. `scale`: of type and marks.
    """
    whole, n, prefix = categories(step, position), len(step.tree), step.prefix_length
    codes, full = whole[:, prefix:], mode == "full"
    there = np.flatnonzero(codes.diagonal() != ABSENT).tolist()
    tokens = [*step.tree.token.tolist(), *(row.token for row in step.extra)]
    labels = [f"{row} {name}" for row, name in enumerate([markup.label(token, step.texts, NAME) for token in tokens])]
    said = markup.all_quoted(tokens, step.texts)
    names = {str(row): escape(f"{'node' if row < n else 'row'} {row} {said[row]}") for row in there}
    grid = _grid(len(codes), prefix if full else None, width, height, scale)
    drawn = whole if full else codes
    small = drawn.size <= MANY
    gap, place = scale if grid.wide >= 7 else 0, {"x0": codes.shape[1] - drawn.shape[1], "dx": 1, "y0": 0, "dy": 1}
    data = [] if full else [_band(step, there, grid, small=small)]
    if small:
        data.append(coded(drawn, COLORS, WORDS, xgap=gap, ygap=gap, hovertemplate="%{y} %{text} %{x}<extra></extra>",
                          meta={"click": "row"}, **place))  # fmt: skip
    else:
        data += [{"type": "image", "source": indexed_png(drawn, PIXELS), "hoverinfo": "skip", **place}]
        data += _rows(step, codes, names, grid)
    data += [_rules(step, there, grid), *_marks(step, codes, dots=mode == "compare" and small, cell=grid.high)]
    right = grid.start + (width - grid.left - RIGHT) / grid.wide
    low = (height - (TOP + BOTTOM) * scale) / grid.high - 0.5
    columns = {row: str(row) for row in there[:: grid.every(22, grid.wide)]}
    rows = {row: labels[row] if grid.named else str(row) for row in there[:: grid.every(ROW, grid.high)]}
    aliases = names if small else {}
    verdict = _verdict(step, position).replace("given ≠ expected: ", "") + (" · dots: expected" if small else "")
    return spec(
        data, label=summary(step), height=height, width=width,
        xaxis=_axis(columns, aliases, scale, range=[round(grid.start, 2), round(right, 2)], side="top"),
        yaxis=_axis(rows, aliases, scale, range=[round(low, 2), -0.5]),
        meta={"name": "mask", "rows": [round(grid.start + 0.5, 2), n], "selected": selected},
        margin={"l": round(grid.left), "r": RIGHT, "t": round(TOP * scale), "b": round(BOTTOM * scale)},
        shapes=[*([] if full else _fold(there[-1] + 0.5, grid)), *_frames(selected, there, grid)],
        annotations=_notes(step, there, grid, verdict if mode == "compare" else ""),
    )  # fmt: skip


def _axis(labels: dict[int, str], names: dict[str, str], scale: float, **more: Any) -> Spec:
    """Labels where there is room; in tooltips every number is said with its token.

    Ticks stand a hair beside their rows: plotly gives a tooltip the tick's label where the two meet.
    """
    font = {"size": round(11 * scale), "family": PLOT_MONO, "color": MUTED}
    return {"tickvals": [row + 0.02 for row in labels], "ticktext": [*map(escape, labels.values())], "tickfont": font,
            "labelalias": names, "showgrid": False, "showline": False, "scaleanchor": False, **more}  # fmt: skip


def _rows(step: Step, codes: Codes, names: dict[str, str], grid: _Grid) -> list[Spec]:
    """Over an image, a clear cell for each row, which says what the row sees; and the diagonal."""
    alike, last = len({*_prefix_seen(step)}) == 1, len(names) - 1
    text, visible = [[""]] * len(codes), (codes != HIDDEN) & (codes != MISSING) & (codes != ABSENT)
    for row in map(int, names):
        seen = np.flatnonzero(visible[row]).tolist()
        more = f" and {len(seen) - 16} more" if len(seen) > 16 else ""
        prefix = "" if alike else f"<br>and {_seen(step, row)}"
        text[row] = [f"{names[str(row)]} sees nodes {', '.join(map(str, seen[:16]))}{more}{prefix}"]
    tip = f"%{{text}}<br>and {_seen(step, 0)}" if alike else "%{text}"
    ink = {"color": INK, "width": round(max(1.0, grid.wide), 1)}
    return [
        {"x": [0, last], "y": [0, last], "mode": "lines", "hoverinfo": "skip", "line": ink},
        {"type": "heatmap", "z": table_of(np.zeros((len(codes), 1), np.uint8)), "y0": 0, "dy": 1, "text": text,
         "x": [round(grid.start, 2), grid.size - 0.5], "colorscale": [[0, CLEAR], [1, CLEAR]], "showscale": False,
         "hovertemplate": f"{tip}<extra></extra>", "meta": {"click": "row"}},
    ]  # fmt: skip


def _prefix_seen(step: Step) -> list[int]:
    return [*step.prefix_seen, *(row.prefix_seen for row in step.extra)]


def _seen(step: Step, row: int) -> str:
    seen, length = _prefix_seen(step)[row], step.prefix_length
    return f"all {length} prefix tokens" if seen == length else f"the newest {seen} of {length} prefix tokens"


def _band(step: Step, there: list[int], grid: _Grid, *, small: bool) -> Spec:
    """The folded prefix: each row's share of it, the newest tokens to the right; rows alike are one bar in an image."""
    seen, full = _prefix_seen(step), (BAND * grid.scale) / grid.wide / max(step.prefix_length, 1)
    runs = [[row] for row in there] if small else [[*rows] for _, rows in groupby(there, seen.__getitem__)]
    gap = grid.scale / grid.high if grid.high >= 7 else 0
    lengths = [round(seen[run[0]] * full, 2) for run in runs]
    end = -0.5 - GAP * grid.scale / grid.wide
    return {
        "type": "bar", "orientation": "h", "y": [(run[0] + run[-1]) / 2 for run in runs], "x": lengths,
        "base": [round(end - length, 2) for length in lengths], "width": [round(len(run) - gap, 2) for run in runs],
        "marker": {"color": PREFIX_COLOR, "line": {"width": 0}}, "customdata": [_seen(step, run[0]) for run in runs],
        "hovertemplate": "%{y} sees %{customdata}<extra></extra>", "hoverinfo": None if small else "skip",
        "meta": {"click": "row"} if small else {},
    }  # fmt: skip


def _fold(end: float, grid: _Grid) -> list[Spec]:
    """Two torn edges down the middle of the band: something is left out here."""
    count = max(round((end + 0.5) * grid.high / 8), 1)
    middle, reach = grid.start + BAND / 2 * grid.scale / grid.wide, 3 * grid.scale / grid.wide
    points = [(reach * (-1) ** at, -0.5 + (end + 0.5) * at / count) for at in range(count + 1)]
    return [
        {"type": "path", "path": "M" + "L".join([f"{middle + off + x:.2f} {y:.2f}" for x, y in points]),
         "line": {"color": PAPER, "width": 1.5}}
        for off in (-reach, reach)
    ]  # fmt: skip


def _rules(step: Step, there: list[int], grid: _Grid) -> Spec:
    """Lines where a level begins, and where rows follow that are no candidates."""
    depth = [*step.tree.depth.tolist(), *(-1 for _ in step.extra)]
    x: list[float | None] = []
    y: list[float | None] = []
    for row, below in pairwise(there):
        if depth[row] != depth[below] and grid.high >= 3:
            x += [below - 0.5, below - 0.5, None, round(grid.start, 2), there[-1] + 0.5, None]
            y += [-0.5, there[-1] + 0.5, None, below - 0.5, below - 0.5, None]
    return {"x": x, "y": y, "mode": "lines", "line": {"color": MUTED, "width": 1}, "opacity": 0.7, "hoverinfo": "skip"}


def _marks(step: Step, codes: Codes, *, dots: bool, cell: float) -> list[Spec]:
    """Open boxes where an entry is wrongly hidden, crosses where one is wrongly shown; dots where one is expected."""
    expected = np.zeros(codes.shape, dtype=np.bool_)
    n = len(step.tree)
    expected[:n, :n] = step.tree.ancestor_mask()
    size = round(max(5.0, 0.62 * cell), 1)
    wanted: list[tuple[Bools, str, float, str]] = [
        (codes == MISSING, "square-open", size, WRONG_COLOR), (codes == EXTRA, "x-thin-open", size, PAPER)
    ]  # fmt: skip
    if dots:
        wanted.insert(0, (expected & (codes != ABSENT), "circle", max(2.0, round(0.28 * cell, 1)), PAPER))
    return [
        {"x": places[:, 1].tolist(), "y": places[:, 0].tolist(), "mode": "markers", "hoverinfo": "skip",
         "marker": {"symbol": symbol, "size": marked, "color": color,
                    "line": {"width": 2 * (symbol != "circle"), "color": color}}}
        for where, symbol, marked, color in wanted if len(places := np.argwhere(where))
    ]  # fmt: skip


def _frames(selected: int | None, there: list[int], grid: _Grid) -> list[Spec]:
    """Around the row and the column of a node; the frames stand off where cells are tiny."""
    if selected not in there:
        return []
    x, y = (0.5 + max(0.0, (4 - pixels) / 2 / pixels) for pixels in (grid.wide, grid.high))
    last, wide = there[-1] + 0.5, 1.5 * grid.scale
    row = frame((grid.start, last), (selected - y, selected + y), wide)
    return [row, frame((selected - x, selected + x), (-0.5, last), wide)]


def _notes(step: Step, there: list[int], grid: _Grid, verdict: str) -> list[Spec]:
    """The prefix by its length, the depths under their columns, and a verdict where one is asked for."""
    n, depth, low = len(step.tree), step.tree.depth.tolist(), there[-1] + 0.5
    look = {"font": {"size": round(11 * grid.scale), "color": MUTED}}
    place = {"xref": "x", "yref": "y", **look}
    below = {**place, "xanchor": "center", "yanchor": "top"}
    notes = [note(f"prefix {step.prefix_length}", -0.5, -0.5, **place | {"xanchor": "right", "xshift": -6})]
    notes.append(note("depth", -0.7, low, **below | {"xanchor": "right"}))
    notes += [note(verdict, 0, 1, xshift=4 - grid.left, yshift=20 * grid.scale, **look)] if verdict else []
    for level, nodes in groupby([row for row in there if row < n], depth.__getitem__):
        first, *rest = nodes
        if (len(rest) + 1) * grid.wide >= 8 * len(str(level)) * grid.scale:
            notes.append(note(str(level), first + len(rest) / 2, low, **below))
    return notes + ([note("no candidates", (n + grid.size - 1) / 2, low, **below)] if there[-1] >= n else [])


def summary(step: Step) -> str:
    """One sentence, such as: Mask: 13 rows see the prefix of 57 and 38 of 169 tree entries; given = expected."""
    n, seen, length = len(step.tree), int(step.mask.sum()), step.prefix_length
    low, high = min(step.prefix_seen), max(step.prefix_seen)
    newest = f"the newest {low if low == high else f'{low} to {high}'} of {plural(length, 'prefix token')}"
    prefix = newest if low < length else f"the prefix of {length}"
    extra = f" {plural(len(step.extra), 'further row')} are no candidates." if step.extra else ""
    rows = f"{plural(n, 'row')} {'sees' if n == 1 else 'see'}"
    return f"Mask: {rows} {prefix} and {seen} of {n * n} tree entries; {_verdict(step)}.{extra}"


def _verdict(step: Step, position: PlaybackPosition = WHOLE) -> str:
    missing, extra = (int(part.sum()) for part in mismatches(step))
    if not position.reached("verify"):
        return "expected; nothing is given yet"
    if not missing and not extra:
        return "✓ given = expected"
    return f"✗ given ≠ expected: {missing} wrongly hidden, {extra} wrongly shown"


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
