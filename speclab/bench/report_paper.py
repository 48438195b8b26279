"""A paper's table with our models in it: its own figures on a shade, ours behind them, and under it what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean

from speclab.bench.papers import Published
from speclab.bench.papers_beside import Beside
from speclab.bench.report_numbers import Row, throughput
from speclab.bench.report_page import block, row, table, under, value
from speclab.bench.report_tables import NONE, Write, number, percent, spread_cell, times
from speclab.bench.result import Result
from speclab.views.markup import Drawn

Pair = tuple[Row | None, str]
"""A contender of ours, or None where we have none, and the paper's method that it stands beside."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity: its heading, how it is written, where ours comes from, and whether it is a time (then a median)."""

    heading: str
    write: Write
    of: Callable[[Result], float | None] = throughput
    timed: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: the heading above it, its own, and its cell in a row."""

    group: str
    heading: str
    cell: Callable[[Pair], Drawn]


METRICS = {
    "throughput": Metric("tokens/s", number, timed=True),
    "speedup": Metric("speedup", times, timed=True),
    "ttft_ms": Metric("TTFT, ms", number, lambda one: one.ttft and 1000 * one.ttft, timed=True),
    "tpot_ms": Metric("TPOT, ms", number, lambda one: one.tpot and 1000 * one.tpot, timed=True),
    "paper_acceptance": Metric("acceptance", percent, lambda one: one.paper_acceptance),
    "tokens_per_iteration": Metric("tokens an iteration", number, lambda one: one.tokens_per_iteration),
    "path_length": Metric("path length", number, lambda one: one.path_length),
    "iterations": Metric("iterations", number, lambda one: one.iterations or None),
    "peak_mb": Metric("peak, MB", lambda mb: number(mb, 5), lambda one: (one.peak_memory_bytes or 0) / 1e6 or None),
}


def beside(each: Beside, found: Sequence[Row], ours: str) -> str:
    """The table, who measured what on what (`ours`: our models and machine), and what differs.

    Where the paper has a picture without numbers, what is known of it stands there instead.
    """
    published = each.published
    models = f"Theirs: {published.models}; {published.hardware}. Ours: {ours}."
    return block(
        f"{published.paper}, {published.place}: {published.title}",
        _table(each, found),
        under((models, *published.differs, *published.remarks)),
    )


def _table(each: Beside, found: Sequence[Row]) -> str:
    if not each.published.figures:
        return ""
    if not set(each.published.metrics) <= set(METRICS):
        return _stated(each.published)
    if any(one.x2 is not None for one in found):
        return _over_points(each, found)
    if any(one.x is not None for one in found):
        return _over_x(each, found)
    columns, known = list(_columns(each, found)), each.published.methods
    pairs: list[Pair] = [(one, name) for one in found if (name := each.methods.get(one.name, "")) in known]
    pairs += [(None, method) for method in known if method not in {name for _, name in pairs}]
    groups = [("", 2), *((name, len(list(some))) for name, some in groupby(columns, lambda column: column.group))]
    lines = (
        row(one.name if one else NONE, (method, *(column.cell((one, method)) for column in columns)))
        for one, method in pairs
    )
    return table(("", "the paper's name", *(column.heading for column in columns)), lines, "", groups, words=2)


def _columns(each: Beside, found: Sequence[Row]) -> Iterable[Column]:
    published = each.published
    for metric in published.metrics:
        yield Column("ours: all prompts", METRICS[metric].heading, _ours(metric))
    if each.relative:
        metric, method = each.relative
        base = next((one for one in found if each.methods.get(one.name) == method), None)
        yield Column("ours: all prompts", f"over {base.name if base else method}", _our_change(metric, base))
    for name, settings in (each.settings or {name: (name,) for name in published.settings}).items():
        for place, metric in enumerate(published.metrics):
            cell = _theirs(published, settings, metric, edge=not place)
            yield Column(f"theirs: {name}", METRICS[metric].heading, cell)
    if each.relative:
        yield Column("theirs: mean", f"over {each.relative[1]}", _their_change(published, *each.relative))


def _theirs(
    published: Published, settings: Sequence[str], metric: str, *, edge: bool = False
) -> Callable[[Pair], Drawn]:
    def cell(pair: Pair) -> Drawn:
        known = [figure for at in settings if (figure := published.value(pair[1], at, metric))]
        if not known:
            return value(NONE, paper=True, edge=edge)
        spread = f"± {known[0].spread:g}" if len(known) == 1 and known[0].spread is not None else ""
        return value(_as_printed(metric, mean(figure.value for figure in known)), spread, paper=True, edge=edge)

    return cell


def _as_printed(metric: str, amount: float) -> str:
    """With the digits of the paper."""
    if metric == "throughput":
        return f"{amount:,.1f}"
    return f"{amount:.2f}" if metric in {"tokens_per_iteration", "path_length"} else METRICS[metric].write(amount)


def _ours(metric: str, *, spread: bool = True) -> Callable[[Pair], Drawn]:
    def cell(pair: Pair) -> Drawn:
        one, shown = pair[0], METRICS[metric]
        if one is None:
            return value(NONE)
        if not shown.timed:
            return value(shown.write(one.mean(shown.of)))
        found = one.speedup if metric == "speedup" else one.spread(shown.of)
        return spread_cell(found, shown.write) if spread else value(shown.write(found.median if found else None))

    return cell


def _change(ratios: Sequence[float]) -> str:
    return f"{100 * (mean(ratios) - 1):+.1f}%" if ratios else NONE


def _their_change(published: Published, metric: str, base: str) -> Callable[[Pair], Drawn]:
    """The mean of the changes over the paper's settings."""

    def cell(pair: Pair) -> Drawn:
        both = [(published.value(pair[1], at, metric), published.value(base, at, metric))
                for at in published.settings]  # fmt: skip
        return value(_change([one.value / other.value for one, other in both if one and other]), paper=True)

    return cell


def _our_change(metric: str, base: Row | None) -> Callable[[Pair], Drawn]:
    """The mean of the changes over prompts."""

    def cell(pair: Pair) -> Drawn:
        if pair[0] is None or base is None:
            return value(NONE)
        own, other = (one.by_prompt(METRICS[metric].of) for one in (pair[0], base))
        return value(_change([own[at] / other[at] for at in own if other.get(at)]))

    return cell


def _over_x(each: Beside, found: Sequence[Row]) -> str:
    """Contenders by the swept value, the paper's settings being such values: a table a metric."""
    published = each.published
    swept = sorted({one.x for one in found if one.x is not None} | {float(name) for name in published.settings})
    drawn = []
    for metric in published.metrics:
        lines = []
        for method in published.methods:
            cells = (_theirs(published, (f"{x:g}",), metric)((None, method)) for x in swept)
            lines.append(row(f"{method}, theirs", cells))
        for name in dict.fromkeys(one.name for one in found):
            own = {one.x: one for one in found if one.name == name}
            lines.append(row(name, (_ours(metric, spread=False)((own.get(x), "")) for x in swept)))
        title = f"{METRICS[metric].heading}, {'medians' if METRICS[metric].timed else 'means'}"
        drawn.append(table(("", *(f"{x:g}" for x in swept)), lines, title))
    return "".join(drawn)


def _over_points(each: Beside, found: Sequence[Row]) -> str:
    """Two settings swept, the paper's settings being such pairs: a row a method and point, ours beside theirs."""
    published = each.published
    own = {(each.methods.get(one.name), f"{one.x:g}, {one.x2:g}"): one for one in found if one.x2 is not None}
    lines = []
    for method in published.methods:
        for point in published.settings:
            ours = (_ours(metric, spread=False)((own.get((method, point)), "")) for metric in published.metrics)
            theirs = (
                _theirs(published, (point,), metric, edge=not place)((None, method))
                for place, metric in enumerate(published.metrics)
            )
            lines.append(row(method, (point, *ours, *theirs)))
    headings = [METRICS[metric].heading for metric in published.metrics]
    groups = [("", 2), ("ours", len(headings)), ("theirs", len(headings))]
    return table(("", "at", *headings, *headings), lines, "", groups, words=2)


def _stated(published: Published) -> str:
    """Figures that are no table of methods: what, of what, how much."""
    lines = (row(one.method, (one.setting, value(f"{one.value:g}", paper=True))) for one in published.figures)
    return table(("the paper's figures", "of", ""), lines, words=2)
