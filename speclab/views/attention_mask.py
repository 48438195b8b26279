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
from speclab.views.figures import FAINT, INK, MUTED, PAPER, Spec, escape, indexed_png, spec, table_of
from speclab.views.palette import LOOKS, PLOT_MONO
from speclab.views.playback import WHOLE, PlaybackPosition, present

Mode = Literal["folded", "full", "compare"]
Codes = NDArray[np.uint8]
HIDDEN, PREFIX, ANCESTOR, SELF, MISSING, EXTRA, SEEN, ABSENT = range(8)
PREFIX_COLOR, ANCESTOR_COLOR, WRONG_COLOR = "#8FA3B5", "#3F7FB0", LOOKS["rejected"].color
CLEAR = "rgba(0,0,0,0)"
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
NAME = 11
"""Characters of a token beside its row."""
TOP, BOTTOM, RIGHT, BAND, GAP, ROW, LARGEST = 42, 26, 10, 62, 5, 13, 56
"""Pixels: margins, the folded prefix and what is left beside it, a row whose label can be read, the largest cell."""


def categories(step: Step) -> Codes:
    """`[n, prefix + n]` uint8 of what the target was given: 0 hidden, 1 prefix, 2 ancestor, 3 self."""
    n = len(step.tree)
    tree = np.where(step.mask, ANCESTOR, HIDDEN).astype(np.uint8)
    np.fill_diagonal(tree, np.where(step.mask.diagonal(), SELF, HIDDEN))
    return np.hstack([_prefix_cells(step, n), tree])


def mismatches(step: Step) -> tuple[Bools, Bools]:
    """Two `[n, n]` bool: should be seen but is hidden; is seen but should be hidden."""
    expected = step.tree.ancestor_mask()
    return expected & ~step.mask, step.mask & ~expected


def cells(step: Step, position: PlaybackPosition = WHOLE) -> Codes:
    """`[N, N]` codes of the nodes, then the rows that are no candidates, as far as they are there."""
    n, size = len(step.tree), len(step.tree) + len(step.extra)
    grid = np.full((size, size), HIDDEN, dtype=np.uint8)
    grid[:n, :n][step.mask if position.reached("verify") else step.tree.ancestor_mask()] = ANCESTOR
    for row, extra in enumerate(step.extra, start=n):
        grid[row, list(extra.sees)] = SEEN
    np.fill_diagonal(grid, np.where(grid.diagonal() == HIDDEN, HIDDEN, SELF))
    if position.reached("verify"):
        for wrong, code in zip(mismatches(step), (MISSING, EXTRA), strict=True):
            grid[:n, :n][wrong] = code
    absent = np.full(size, not position.reached("flatten"))
    absent[:n] = ~present(step, position)
    grid[absent], grid[:, absent] = ABSENT, ABSENT
    return grid


def _prefix_cells(step: Step, rows: int) -> Codes:
    """`[rows, prefix]`: the newest tokens that each row sees."""
    seen = np.array(_prefix_seen(step)[:rows])[:, None]
    shown = np.arange(step.prefix_length)[None, :] >= step.prefix_length - seen
    return np.where(shown, PREFIX, HIDDEN).astype(np.uint8)


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


def _grid(size: int, before: int | None, name: int, width: float, height: float, scale: float) -> _Grid:
    """`before`: prefix tokens drawn, None where they are folded; `name`: characters of the longest row label."""
    for characters in (name, len(str(size))):
        left = (16 + 6.7 * characters) * scale
        wide, high = width - left - RIGHT, height - (TOP + BOTTOM) * scale
        band = (BAND + GAP) * scale if before is None else 0.0
        cell = min(high / size, LARGEST * scale, (wide - band) / size if before is None else high)
        cell = float(int(cell)) if cell >= 10 else cell
        if cell >= ROW * scale:
            break
    wide = cell if before is None else min(wide / (before + size), cell)
    return _Grid(
        size,
        -0.5 - (band / cell if before is None else before),
        wide,
        cell,
        left,
        scale,
        cell >= ROW * scale and characters == name,
    )


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
    """The mask as a figure; a click on a row selects its node.

    Args:
        step: an iteration.
        selected: a node whose row and column are framed.
        position: how much of the iteration is shown.
        mode: `full` draws the prefix token by token; `compare` sets a dot wherever the ancestor closure has an entry.
        height, width: pixels.
        scale: of type and marks.
    """
    codes, whole = cells(step, position), mode == "full"
    there = np.flatnonzero(codes.diagonal() != ABSENT).tolist()
    tokens = [*step.tree.token.tolist(), *(row.token for row in step.extra)]
    labels = [f"{row} {name}" for row, name in enumerate(markup.labels(tokens, step.texts, NAME))]
    grid = _grid(
        len(codes), step.prefix_length if whole else None, max(map(markup.width, labels)), width, height, scale
    )
    drawn = np.hstack([_prefix_cells(step, len(codes)), codes]) if whole else codes
    drawn[codes.diagonal() == ABSENT] = ABSENT
    small = drawn.size <= MANY
    names = _names(step, tokens, there)
    data = [] if whole else [_band(step, there, grid, small=small)]
    data += [_heatmap(drawn, grid)] if small else [_image(drawn), *_rows(step, codes, names, grid)]
    data += [_rules(step, there, grid), *_marks(step, codes, dots=mode == "compare" and small, cell=grid.high)]
    right = grid.start + (width - grid.left - RIGHT) / grid.wide
    low = (height - (TOP + BOTTOM) * scale) / grid.high - 0.5
    columns = {row: str(row) for row in there[:: grid.every(22, grid.wide)]}
    rows = {row: labels[row] if grid.named else str(row) for row in there[:: grid.every(ROW, grid.high)]}
    return spec(
        data, label=summary(step), height=height, width=width,
        xaxis=_axis(columns, names if small else {}, grid)
        | {"side": "top", "range": [round(grid.start, 2), round(right, 2)]},
        yaxis=_axis(rows, names if small else {}, grid)
        | {"range": [round(low, 2), -0.5]},
        meta={"name": "mask", "rows": [round(grid.start + 0.5, 2), len(step.tree)], "selected": selected},
        margin={"l": round(grid.left), "r": RIGHT, "t": round(TOP * scale), "b": round(BOTTOM * scale)},
        shapes=[*([] if whole else _fold(there[-1] + 0.5, grid)), *_frame(selected, there, grid)],
        annotations=_notes(step, there, grid, _told(step, position, dots=small) if mode == "compare" else ""),
    )  # fmt: skip


def _axis(labels: dict[int, str], names: dict[int, str], grid: _Grid) -> dict[str, Any]:
    """Labels where there is room; in tooltips every number is said with its token.

    Ticks stand a hair beside their rows: plotly gives a tooltip the tick's label where the two meet.
    """
    return {
        "tickvals": [row + 0.02 for row in labels], "ticktext": [*map(escape, labels.values())],
        "labelalias": {str(row): name for row, name in names.items()},
        "tickfont": {"size": round(11 * grid.scale), "family": PLOT_MONO, "color": MUTED}, "showgrid": False,
        "showline": False, "scaleanchor": False,
    }  # fmt: skip


def _names(step: Step, tokens: list[int], there: list[int]) -> dict[int, str]:
    """Every row that is there, in words."""
    n, said = len(step.tree), markup.all_quoted(tokens, step.texts)
    return {row: escape(f"{'node' if row < n else 'row'} {row} {said[row]}") for row in there}


def _heatmap(drawn: Codes, grid: _Grid) -> dict[str, Any]:
    """Cell by cell; plots.js and `figures.figure` put the words of `meta` into tooltips."""
    rows, columns = drawn.shape
    gap = grid.scale if grid.wide >= 7 and grid.high >= 7 else 0
    steps = [[at / len(COLORS), color] for code, color in enumerate(COLORS) for at in (code, code + 1)]
    return {
        "type": "heatmap", "z": table_of(drawn), "x0": rows - columns, "dx": 1, "y0": 0, "dy": 1, "zmin": -0.5,
        "zmax": len(COLORS) - 0.5, "colorscale": steps, "showscale": False, "xgap": gap, "ygap": gap,
        "hovertemplate": "%{y} %{text} %{x}<extra></extra>", "meta": {"click": "row", "words": WORDS},
    }  # fmt: skip


def _image(drawn: Codes) -> dict[str, Any]:
    rows, columns = drawn.shape
    return {"type": "image", "source": indexed_png(drawn, PIXELS), "x0": rows - columns, "dx": 1, "y0": 0, "dy": 1,
            "hoverinfo": "skip"}  # fmt: skip


def _rows(step: Step, codes: Codes, names: dict[int, str], grid: _Grid) -> list[dict[str, Any]]:
    """Over an image, a clear cell for each row, which says what the row sees; and the diagonal."""
    alike, last = len({*_prefix_seen(step)}) == 1, len(names) - 1
    text = [""] * len(codes)
    for row, name in names.items():
        seen = np.flatnonzero((codes[row] != HIDDEN) & (codes[row] != MISSING) & (codes[row] != ABSENT)).tolist()
        more = f" and {len(seen) - 16} more" if len(seen) > 16 else ""
        prefix = "" if alike else f"<br>and {_seen(step, row)}"
        text[row] = f"{name} sees nodes {', '.join(map(str, seen[:16]))}{more}{prefix}"
    tip = f"%{{text}}<br>and {_seen(step, 0)}" if alike else "%{text}"
    return [
        {"x": [0, last], "y": [0, last], "mode": "lines", "hoverinfo": "skip",
         "line": {"color": INK, "width": round(max(1.0, grid.wide), 1)}},
        {"type": "heatmap", "z": table_of(np.zeros((len(codes), 1), np.uint8)), "y0": 0, "dy": 1,
         "x": [round(grid.start, 2), grid.size - 0.5], "colorscale": [[0, CLEAR], [1, CLEAR]], "showscale": False,
         "text": [[line] for line in text], "hovertemplate": f"{tip}<extra></extra>", "meta": {"click": "row"}},
    ]  # fmt: skip


def _prefix_seen(step: Step) -> list[int]:
    return [*step.prefix_seen, *(row.prefix_seen for row in step.extra)]


def _seen(step: Step, row: int) -> str:
    seen, length = _prefix_seen(step)[row], step.prefix_length
    return f"all {length} prefix tokens" if seen == length else f"the newest {seen} of {length} prefix tokens"


def _band(step: Step, there: list[int], grid: _Grid, *, small: bool) -> dict[str, Any]:
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


def _fold(end: float, grid: _Grid) -> list[dict[str, Any]]:
    """Two torn edges down the middle of the band: something is left out here."""
    count = max(round((end + 0.5) * grid.high / 8), 1)
    middle, reach = grid.start + BAND / 2 * grid.scale / grid.wide, 3 * grid.scale / grid.wide
    points = [(reach * (-1) ** at, -0.5 + (end + 0.5) * at / count) for at in range(count + 1)]
    return [
        {"type": "path", "path": "M" + "L".join([f"{middle + off + x:.2f} {y:.2f}" for x, y in points]),
         "line": {"color": PAPER, "width": 1.5}}
        for off in (-reach, reach)
    ]  # fmt: skip


def _rules(step: Step, there: list[int], grid: _Grid) -> dict[str, Any]:
    """Lines where a level begins, and where rows follow that are no candidates."""
    depth = [*step.tree.depth.tolist(), *(-1 for _ in step.extra)]
    x: list[float | None] = []
    y: list[float | None] = []
    for row, below in pairwise(there):
        if depth[row] != depth[below] and grid.high >= 3:
            x += [below - 0.5, below - 0.5, None, round(grid.start, 2), there[-1] + 0.5, None]
            y += [-0.5, there[-1] + 0.5, None, below - 0.5, below - 0.5, None]
    return {"x": x, "y": y, "mode": "lines", "line": {"color": MUTED, "width": 1}, "opacity": 0.7, "hoverinfo": "skip"}


def _marks(step: Step, codes: Codes, *, dots: bool, cell: float) -> list[dict[str, Any]]:
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
         "marker": {"symbol": symbol, "size": marked, "color": color, "line": {"width": 2, "color": color}}}
        for where, symbol, marked, color in wanted if len(places := np.argwhere(where))
    ]  # fmt: skip


def _frame(selected: int | None, there: list[int], grid: _Grid) -> list[dict[str, Any]]:
    """Two rectangles around the row and the column of a node; they stand off where cells are tiny."""
    if selected not in there:
        return []
    line = {"color": INK, "width": 1.5 * grid.scale}
    x, y = (0.5 + max(0.0, (4 - pixels) / 2 / pixels) for pixels in (grid.wide, grid.high))
    last = there[-1] + 0.5
    return [
        {"type": "rect", "x0": grid.start, "x1": last, "y0": selected - y, "y1": selected + y, "line": line},
        {"type": "rect", "x0": selected - x, "x1": selected + x, "y0": -0.5, "y1": last, "line": line},
    ]


def _notes(step: Step, there: list[int], grid: _Grid, verdict: str) -> list[dict[str, Any]]:
    """The prefix by its length, the depths under their columns, and a verdict where one is asked for."""

    def note(text: str, x: float, y: float, **place: Any) -> dict[str, Any]:
        font = {"size": round(11 * grid.scale), "color": MUTED}
        return {"text": text, "x": x, "y": y, "showarrow": False, "font": font, "yanchor": "top"} | place

    n, depth, low = len(step.tree), step.tree.depth.tolist(), there[-1] + 0.5
    notes = [
        note(f"prefix {step.prefix_length}", -0.5, -0.5, xanchor="right", yanchor="bottom", xshift=-6),
        note("depth", -0.7, low, xanchor="right"),
    ]
    if verdict:
        place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        notes.append(note(verdict, 0, 1, yshift=round(20 * grid.scale), **place))
    for level, nodes in groupby([row for row in there if row < n], depth.__getitem__):
        first, *rest = nodes
        if (len(rest) + 1) * grid.wide >= 8 * len(str(level)) * grid.scale:
            notes.append(note(str(level), first + len(rest) / 2, low))
    if there[-1] >= n:
        notes.append(note("no candidates", (n + grid.size - 1) / 2, low))
    return notes


def _told(step: Step, position: PlaybackPosition, *, dots: bool) -> str:
    missing, extra = (int(part.sum()) for part in mismatches(step))
    said = f"✗ {missing} wrongly hidden □, {extra} wrongly shown ×" if missing or extra else "✓ given = expected"
    said = said if position.reached("verify") else "expected; nothing is given yet"
    return f"{said} (dots: expected)" if dots else said


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
