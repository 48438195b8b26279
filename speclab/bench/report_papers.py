"""A paper's table with our models in it: its own figures on a shade, ours before them, and under it what differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import mean
from typing import NamedTuple

from speclab.bench.page import METRICS, NONE, Cell, Item, Line, block, table, words
from speclab.bench.papers import PaperTable
from speclab.bench.summary import Summary

Pair = tuple[Summary | None, str]
"""A method of ours, or None where we have none, and the paper's method that it stands beside."""


class _Column(NamedTuple):
    """The heading above a column, its own, and its cell in a row."""

    group: str
    heading: str
    cell: Callable[[Pair], Cell]


def beside(paper: PaperTable, found: Sequence[Summary], ours: str) -> list[Item]:
    """The table, who measured what on what (`ours`: our models and machine), and what differs.

    Where the paper has a picture without numbers, what is known of it stands there instead.
    """
    models = f"Theirs: {paper.models}; {paper.hardware}. Ours: {ours}."
    notes: Item = {"kind": "list", "lines": (models, *paper.differs, *paper.remarks)}
    return block(f"{paper.paper}, {paper.place}: {paper.title}", *_table(paper, found), notes)


def _table(paper: PaperTable, found: Sequence[Summary]) -> list[Item]:
    if not set(paper.metrics) <= set(METRICS):  # no table of methods: what, of what, how much
        lines = (Line(one.method, [words(one.setting), Cell(f"{one.value:g}", paper=True)]) for one in paper.figures)
        return table(("the paper's figures", "of", ""), lines, text_columns=2)
    if any(one.x2 is not None for one in found):
        return _by_points(paper, found)
    if any(one.x is not None for one in found):
        return _by_x(paper, found)
    columns, known = _columns(paper, found), paper.methods
    pairs: list[Pair] = [(one, name) for one in found if (name := paper.beside.get(one.method, "")) in known]
    pairs += [(None, method) for method in known if method not in {name for _, name in pairs}]
    lines = (
        Line(one.method if one else NONE, [words(method), *(column.cell((one, method)) for column in columns)])
        for one, method in pairs
    )
    groups = [("", 2), *((name, len(list(own))) for name, own in groupby(columns, lambda column: column.group))]
    return table(("", "the paper's name", *(column.heading for column in columns)), lines, "", groups, 2)


def _columns(paper: PaperTable, found: Sequence[Summary]) -> list[_Column]:
    columns = [_Column("ours: all prompts", METRICS[name].heading, _ours(name)) for name in paper.metrics]
    if paper.relative:
        metric, method = paper.relative
        base = next((one for one in found if paper.beside.get(one.method) == method), None)
        columns.append(
            _Column("ours: all prompts", f"over {base.method if base else method}", _our_change(metric, base))
        )
    for group, settings in paper.groups.items():
        for place, metric in enumerate(paper.metrics):
            cell = _theirs(paper, settings, metric, edge=not place)
            columns.append(_Column(f"theirs: {group}", METRICS[metric].heading, cell))
    if paper.relative:
        columns.append(_Column("theirs: mean", f"over {paper.relative[1]}", _their_change(paper, *paper.relative)))
    return columns


def _ours(metric: str) -> Callable[[Pair], Cell]:
    return lambda pair: METRICS[metric].cell(pair[0])


def _theirs(paper: PaperTable, settings: Sequence[str], metric: str, *, edge: bool = False) -> Callable[[Pair], Cell]:
    def cell(pair: Pair) -> Cell:
        known = [figure for at in settings if (figure := paper.value(pair[1], at, metric))]
        if not known:
            return Cell(NONE, paper=True, edge=edge)
        spread = f"± {known[0].spread:g}" if len(known) == 1 and known[0].spread is not None else ""
        return Cell(_as_printed(metric, mean(one.value for one in known)), spread, paper=True, edge=edge)

    return cell


def _as_printed(metric: str, amount: float) -> str:
    """With the digits of the paper."""
    if metric == "throughput":
        return f"{amount:,.1f}"
    return f"{amount:.2f}" if metric in {"tokens_per_iteration", "path_length"} else METRICS[metric].write(amount)


def _change(ratios: Sequence[float]) -> str:
    return f"{100 * (mean(ratios) - 1):+.1f}%" if ratios else NONE


def _their_change(paper: PaperTable, metric: str, base: str) -> Callable[[Pair], Cell]:
    """The mean of the changes over the paper's settings."""

    def cell(pair: Pair) -> Cell:
        both = [(paper.value(pair[1], at, metric), paper.value(base, at, metric)) for at in paper.settings]
        return Cell(_change([one.value / other.value for one, other in both if one and other]), paper=True)

    return cell


def _our_change(metric: str, base: Summary | None) -> Callable[[Pair], Cell]:
    """The mean of the changes over prompts."""

    def cell(pair: Pair) -> Cell:
        if pair[0] is None or base is None:
            return Cell(NONE)
        own, other = (one.by_prompt(METRICS[metric].figure) for one in (pair[0], base))
        return Cell(_change([own[at] / other[at] for at in own if other.get(at)]))

    return cell


def _by_x(paper: PaperTable, found: Sequence[Summary]) -> list[Item]:
    """Methods by the swept value, the paper's settings being such values: a table for each metric."""
    swept = sorted({one.x for one in found if one.x is not None} | {float(name) for name in paper.settings})
    tables: list[Item] = []
    for name in paper.metrics:
        metric = METRICS[name]
        lines = [
            Line(f"{method}, theirs", [_theirs(paper, (f"{x:g}",), name)((None, method)) for x in swept])
            for method in paper.methods
        ]
        for title in dict.fromkeys(one.method for one in found):
            own = {one.x: one for one in found if one.method == title}
            lines.append(Line(title, [metric.cell(own.get(x), quartiles=False) for x in swept]))
        caption = f"{metric.heading}, {'medians' if metric.timed else 'means'}"
        tables += table(("", *(f"{x:g}" for x in swept)), lines, caption)
    return tables


def _by_points(paper: PaperTable, found: Sequence[Summary]) -> list[Item]:
    """Two settings swept, the paper's settings being such pairs: one row per method and point, ours beside theirs."""
    own = {(paper.beside.get(one.method), f"{one.x:g}, {one.x2:g}"): one for one in found if one.x2 is not None}
    lines = [
        Line(method, [
            words(point),
            *(METRICS[metric].cell(own.get((method, point)), quartiles=False) for metric in paper.metrics),
            *(_theirs(paper, (point,), metric, edge=not i)((None, method)) for i, metric in enumerate(paper.metrics)),
        ])
        for method in paper.methods for point in paper.settings
    ]  # fmt: skip
    headings = [METRICS[metric].heading for metric in paper.metrics]
    groups = [("", 2), ("ours", len(headings)), ("theirs", len(headings))]
    return table(("", "at", *headings, *headings), lines, "", groups, 2)
