"""What was varied over a sweep: lines over one setting, a grid over two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from speclab.bench import figures
from speclab.bench.figures import Line
from speclab.bench.report_figures import over_x
from speclab.bench.report_numbers import Row
from speclab.bench.report_page import drawing, row, table, value
from speclab.bench.report_tables import NONE, Write, number, times
from speclab.bench.result import RunInfo
from speclab.bench.summary import Spread


def swept(found: Sequence[Row], run: RunInfo, name: str) -> str:
    """What was varied, as lines or, where two settings were, as a grid."""
    if any(each.x2 is not None for each in found):
        return _grids(found, run, name)
    varied = [each for each in found if each.x is not None]
    sets = {who: tuple(each.x for each in varied if each.name == who) for who in dict.fromkeys(o.name for o in varied)}
    drawn = []
    for place, xs in enumerate(dict.fromkeys(sets.values())):
        names = [who for who, own in sets.items() if own == xs]
        drawn += [_varied([e for e in varied if e.name in names], run, f"{name}-x{place}", *kind) for kind in _VARIED]
    return "".join(drawn)


_VARIED: tuple[tuple[str, Callable[[Row], Spread | None], Write], ...] = (
    ("tokens/s", lambda each: each.summary.throughput, number),
    ("speedup", lambda each: each.speedup, times),
    ("tokens an iteration", lambda each: each.spread(lambda one: one.tokens_per_iteration), number),
)


def _varied(
    found: Sequence[Row], run: RunInfo, name: str, unit: str, of: Callable[[Row], Spread | None],
    write: Write,
) -> str:  # fmt: skip
    names = dict.fromkeys(each.name for each in found)
    series = [
        Line(who, {each.x or 0.0: got for each in found if each.name == who and (got := of(each))}) for who in names
    ]
    series = [line for line in series if line.points]
    if not series:
        return ""
    x = run.x_name or "x"
    label = f"{unit} over {x}: {', '.join(line.name for line in series)}; medians and quartiles over prompts."
    drawn = figures.lines(series, x, unit, level=1.0 if write is times else None)
    return drawing(drawn, label, over_x(series, write), f"{name}-{unit.replace('/', '-').replace(' ', '-')}")


def _grids(found: Sequence[Row], run: RunInfo, name: str) -> str:
    """A grid for each contender that two settings of were varied."""
    names = dict.fromkeys(each.name for each in found if each.x2 is not None)
    return "".join(
        _grid([each for each in found if each.name == who], run, who, f"{name}-grid-{place}")
        for place, who in enumerate(names)
    )


def _grid(found: Sequence[Row], run: RunInfo, who: str, name: str) -> str:
    cells = {(each.x, each.x2): each.speedup.median for each in found
             if each.x is not None and each.x2 is not None and each.speedup}  # fmt: skip
    if not cells:
        return ""
    x, x2 = run.x_name or "x", run.x2_name or "x2"
    best = max(cells, key=lambda at: cells[at])
    label = (
        f"{who}: median speedup over {run.baseline} by {x} and {x2}. The best is {x} {best[0]:g}, {x2} {best[1]:g}: "
        f"{times(cells[best])}; the middle of all is {times(median(cells.values()))}."
    )
    return drawing(figures.grid(cells, x, x2, "×"), label, _grid_table(cells, x, x2), name)


def _grid_table(cells: Mapping[tuple[float, float], float], x: str, x2: str) -> str:
    columns = sorted({at[0] for at in cells})
    lines: Iterable[str] = (
        row(
            f"{x2} {down:g}",
            (value(times(cells[column, down]) if (column, down) in cells else NONE) for column in columns),
        )
        for down in sorted({at[1] for at in cells})
    )
    return table(("", *(f"{x} {column:g}" for column in columns)), lines)
