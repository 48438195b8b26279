"""Acceptance over many runs: a heat map of two dimensions, bars of one, and the draft's probabilities against it."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from speclab.analysis.aggregate import Aggregate, Calibration, Cells
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import CLEAR, INK, MUTED, Part, Spec, escape, lines, note, spec
from speclab.views.markup import tag
from speclab.views.palette import LOOKS

FEW = 20
"""Tries below which a rate says little: its cell is hatched, and shows the counts alone."""
PALE, FULL = (220, 235, 245), (0, 114, 178)
"""Colours of rates 0 and 1: `FULL` is that of accepted nodes. Black can be read on all but the fullest."""
WHITE_FROM = 0.92


def cells_spec(cells: Cells, start: int = 0) -> Spec:
    """A heat map of two dimensions, or bars with intervals of one; a click tells which cell, counted on from `start`.

    A cell with fewer than `FEW` tries is hatched and shows counts in place of a rate; one without any is left out.
    """
    return _heat(cells, start) if len(cells.dimensions) == 2 else _bars(cells, start)


def _heat(cells: Cells, start: int) -> Spec:
    rows, columns = cells.names
    at = [(row, column) for row in range(len(rows)) for column in range(len(columns)) if cells.tried[row, column]]
    tried, rates = [int(cells.tried[place]) for place in at], [float(cells.rate[place]) for place in at]
    few = [count < FEW for count in tried]
    counts = [f"{cells.accepted[place]} of {cells.tried[place]}" for place in at]
    shown = zip(counts, rates, few, strict=True)
    data = {
        "type": "bar", "x": [column for _, column in at], "base": [row - 0.47 for row, _ in at], "y": [0.94] * len(at),
        "width": 0.96, "customdata": [start + row * len(columns) + column for row, column in at],
        "marker": _marker([_mixed(rate) for rate in rates], few),
        "text": [words if little else f"<b>{rate:.0%}</b><br>{words}" for words, rate, little in shown],
        "textposition": "inside", "insidetextanchor": "middle", "textangle": 0, "constraintext": "none",
        "insidetextfont": {"color": [INK if little else "#FFFFFF" if rate >= WHITE_FROM else "#000000"
                                     for rate, little in zip(rates, few, strict=True)]},
        "hoverinfo": "text", "hovertext": [_said(cells, *place) for place in at], "meta": {"click": "group"},
    }  # fmt: skip
    titles = [dimension.title for dimension in cells.dimensions]
    across = {"tickvals": list(range(len(columns))), "ticktext": [escape(name) for name in columns], "showgrid": False,
              "range": [-0.5, max(len(columns), 3) - 0.5], "fixedrange": True, "side": "top",
              "title": {"text": titles[1], "standoff": 4}}  # fmt: skip
    down = {"tickvals": list(range(len(rows))), "ticktext": [escape(name) for name in rows], "showgrid": False,
            "range": [len(rows) - 0.5, -0.5], "fixedrange": True, "title": {"text": titles[0], "standoff": 12},
            "automargin": True}  # fmt: skip
    return spec(
        [data], label=sentence(cells), height=36 * len(rows) + 60, margin={"l": 120, "r": 8, "t": 54, "b": 6},
        xaxis=across, yaxis=down, dragmode=False, barmode="overlay", meta={"name": "acceptance", "bare": True},
        hovermode="closest",
    )  # fmt: skip


def _marker(colors: Sequence[str], few: Sequence[bool]) -> Spec:
    """Filled, or where there are few tries framed and hatched."""
    pattern = {"shape": ["/" if little else "" for little in few], "fgcolor": MUTED, "size": 6, "solidity": 0.1}
    return {
        "color": [CLEAR if little else color for color, little in zip(colors, few, strict=True)],
        "line": {"color": MUTED, "width": [int(little) for little in few]},
        "pattern": {**pattern, "fillmode": "overlay"},
    }


def _mixed(rate: float) -> str:
    return "#" + "".join([f"{round(low + (high - low) * rate):02X}" for low, high in zip(PALE, FULL, strict=True)])


def _bars(cells: Cells, start: int) -> Spec:
    names, tried, rate = cells.names[0], cells.tried[:, 0].tolist(), cells.rate[:, 0].tolist()
    low, high = (end[:, 0].tolist() for end in cells.interval)
    at = [row for row, count in enumerate(tried) if count]
    few = [tried[row] < FEW for row in at]
    bars = {
        "type": "bar", "orientation": "h", "y": at, "x": [round(rate[row], 4) for row in at], "width": 0.7,
        "customdata": [start + row for row in at], "meta": {"click": "group"},
        "marker": _marker([LOOKS["accepted"].color] * len(at), few),
        "error_x": {"type": "data", "symmetric": False, "array": [high[row] - rate[row] for row in at],
                    "arrayminus": [rate[row] - low[row] for row in at], "color": INK, "thickness": 1.5, "width": 4},
        "hoverinfo": "text", "hovertext": [_said(cells, row) for row in at],
    }  # fmt: skip
    words = [("" if little else f"<b>{rate[row]:.0%}</b>  ") + f"{cells.accepted[row, 0]} of {tried[row]}"
             for row, little in zip(at, few, strict=True)]  # fmt: skip
    text = {"type": "scatter", "mode": "text", "y": at, "x": [high[row] + 0.008 for row in at], "text": words,
            "textposition": "middle right", "cliponaxis": False, "hoverinfo": "skip"}  # fmt: skip
    down = {"tickvals": at, "ticktext": [escape(names[row]) for row in at], "range": [len(names) - 0.5, -0.5],
            "showgrid": False, "fixedrange": True, "title": {"text": cells.dimensions[0].title, "standoff": 12},
            "automargin": True}  # fmt: skip
    return spec(
        [bars, text], label=sentence(cells), height=30 * len(names) + 50, margin={"l": 120, "r": 90, "t": 6, "b": 42},
        xaxis={"range": [0, 1.02], "tickformat": ".0%", "fixedrange": True,
               "title": {"text": "accepted, of those that were tried; lines: 95% intervals", "standoff": 4}},
        yaxis=down, dragmode=False, meta={"name": "acceptance", "bare": True},
    )  # fmt: skip


def name_of(cells: Cells, row: int, column: int = 0) -> str:
    """A cell in words, such as `depth 3, source draft`."""
    at = zip(cells.dimensions, cells.names, (row, column), strict=False)
    return ", ".join([f"{dimension.title} {names[place]}" for dimension, names, place in at])


def _said(cells: Cells, row: int, column: int = 0) -> str:
    low, high = (end[row, column] for end in cells.interval)
    rate, counts = cells.rate[row, column], f"{cells.accepted[row, column]} of {cells.tried[row, column]}"
    return lines(name_of(cells, row, column), f"{counts} tried were accepted: {rate:.0%} ({low:.0%} to {high:.0%})",
                 "a click opens one of them")  # fmt: skip


def sentence(cells: Cells) -> str:
    """What the cells come to, in words."""
    tried, accepted = int(cells.tried.sum()), int(cells.accepted.sum())
    titles = " and ".join([dimension.title for dimension in cells.dimensions])
    if not tried:
        return f"Acceptance by {titles}: no drafted node was tried yet."
    sure = [(float(cells.rate[at]), *at) for at in zip(*(cells.tried >= FEW).nonzero(), strict=True)]
    said = f"Acceptance by {titles}: {accepted} of {plural(tried, 'tried node')} accepted, {accepted / tried:.0%}"
    if len(sure) > 1:
        (low, *least), (high, *most) = min(sure), max(sure)
        said += (
            f"; from {low:.0%} ({name_of(cells, *map(int, least))}) to {high:.0%} ({name_of(cells, *map(int, most))})"
        )
    return f"{said}."


def cells_table(cells: Cells) -> str:
    """One row per cell that holds any node, as an HTML table."""
    low, high = cells.interval
    rows = [
        (*[names[place] for names, place in zip(cells.names, at, strict=True)], int(cells.tried[at]),
         int(cells.accepted[at]), f"{cells.rate[at]:.1%}", f"{low[at]:.1%} to {high[at]:.1%}")
        for at in zip(*cells.tried.nonzero(), strict=True)
    ]  # fmt: skip
    titles = [dimension.title for dimension in cells.dimensions]
    head = (titles[0], titles[1] if len(titles) > 1 else "", "tried", "accepted", "rate", "95% interval")
    return markup.table("Acceptance of the drafted nodes that were tried", head, rows)


def acceptance_drawing(found: Aggregate, by: str = "depth", by2: str | None = None) -> list[Part]:
    """Acceptance by one or two of `speclab.analysis.aggregate.DIMENSIONS`, its sentence, and its table."""
    cells = found.group(by, by2)
    return cells_drawing(cells) if cells.tried.any() else []


def cells_drawing(cells: Cells) -> list[Part]:
    """The picture of cells, its sentence, and its table."""
    table = tag("details", tag("summary", "as a table"), cells_table(cells))
    words = f"{sentence(cells)} Hatched: fewer than {FEW} tries. A node is tried where its parent was accepted."
    return [cells_spec(cells), tag("p", markup.escape(words), class_="sl-said") + table]


# Calibration

SERIES = (("first children", LOOKS["accepted"].color, "circle", 8), ("all children", "#E69F00", "diamond", 13))
DIAGONAL = "as often as it says"


def calibration_spec(made: Sequence[Calibration], starts: Sequence[int] = (0, 0)) -> Spec:
    """Acceptance against stated probability: of first children, and of all; on the dashed line a draft is calibrated.

    Open signs: bins of fewer than `FEW` tries. A click tells which bin, counted on from `starts`.
    """
    data: list[Spec] = [
        {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 1], "hoverinfo": "skip",
         "line": {"color": MUTED, "width": 1.5, "dash": "dash"}},
    ]  # fmt: skip
    key = []
    for (name, color, symbol, size), one, start in zip(SERIES, made, starts, strict=True):
        cells = one.cells
        at = [bin_ for bin_, count in enumerate(cells.tried[:, 0].tolist()) if count]
        low, high = (end[:, 0] for end in cells.interval)
        rate = cells.rate[:, 0]
        few = [bool(cells.tried[bin_, 0] < FEW) for bin_ in at]
        said = [
            lines(f"{name}, {name_of(cells, bin_)}", f"stated {one.stated[bin_]:.0%}; {rate[bin_]:.0%} accepted",
                  f"{cells.accepted[bin_, 0]} of {cells.tried[bin_, 0]} tried", "a click opens one of them")
            for bin_ in at
        ]  # fmt: skip
        data.insert(1, {  # the first children last: their signs are smaller
            "type": "scatter", "mode": "lines+markers", "line": {"color": color, "width": 1},
            "x": [float(one.stated[bin_]) for bin_ in at], "y": [float(rate[bin_]) for bin_ in at],
            "marker": {"symbol": [f"{symbol}-open" if little else symbol for little in few], "size": size,
                       "color": color},
            "error_y": {"type": "data", "symmetric": False, "color": color, "thickness": 1, "width": 3,
                        "array": [float(high[bin_] - rate[bin_]) for bin_ in at],
                        "arrayminus": [float(rate[bin_] - low[bin_]) for bin_ in at]},
            "customdata": [start + bin_ for bin_ in at], "meta": {"click": "group"}, "hoverinfo": "text",
            "hovertext": said,
        })  # fmt: skip
        sign = {"circle": "●", "diamond": "◆"}[symbol]
        key.append(f'<span style="color:{color}">{sign}</span> {name}: expected calibration error {_error(one)}')
    look = {"fixedrange": True, "range": [-0.02, 1.04], "tickformat": ".0%", "dtick": 0.2, "tick0": 0}
    diagonal = note(DIAGONAL, 0.44, 0.36, xref="x", yref="y", font={"size": 11, "color": MUTED})  # fmt: skip
    return spec(
        data, label=calibration_sentence(made), height=340, width=620, margin={"l": 56, "r": 12, "t": 46, "b": 42},
        xaxis={**look, "title": {"text": "probability stated by the draft", "standoff": 4}},
        yaxis={**look, "title": {"text": "accepted, of those that were tried"}}, dragmode=False,
        annotations=[diagonal, note("<br>".join(key), 0, 1, yshift=4, align="left")],
        meta={"name": "calibration", "bare": True},
    )  # fmt: skip


def _error(one: Calibration) -> str:
    return "–" if isnan(one.error) else f"{one.error:.2f}"


def calibration_sentence(made: Sequence[Calibration]) -> str:
    """How far stated probabilities are from acceptance, and to which side."""
    said = []
    for (name, *_), one in zip(SERIES, made, strict=True):
        tried = one.cells.tried[:, 0]
        if tried.any():
            some = tried > 0
            stated = float((one.stated[some] * tried[some]).sum() / tried.sum())
            rate = float(one.cells.accepted.sum() / tried.sum())
            said.append(f"{name} state {stated:.0%} on average and {rate:.0%} are accepted")
    return f"Calibration: {'; '.join(said)}." if said else "Calibration: no drafted node was tried yet."


MEANING = (
    "Calibrated: of the tokens that the draft gives 30%, 30% are accepted. At temperature 0 that is agreement with the "
    "target's most probable token, so a draft that is right more often than it says lies above the line."
)


def calibration_drawing(found: Aggregate, starts: Sequence[int] = (0, 0)) -> list[Part]:
    """Stated probability against acceptance: the picture, its sentence, and its tables."""
    made = [found.calibration(), found.calibration(first=False)]
    if not made[1].cells.tried.any():
        return []
    tables = tag("details", tag("summary", "as a table"), *[cells_table(one.cells) for one in made])
    words = f"{calibration_sentence(made)} {MEANING}"
    return [calibration_spec(made, starts), tag("p", markup.escape(words), class_="sl-said") + tables]
