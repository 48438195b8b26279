"""Rows of a measurement as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table

from speclab.bench.clicks import ClickRow
from speclab.bench.host_work import HostRow, MemoryRow
from speclab.bench.lab_clicks import KeptRow
from speclab.bench.protocols import Protocol
from speclab.bench.routing import RoutingRow
from speclab.bench.summary import Spread, Summary
from speclab.bench.yields import YieldRow

FIRST = 14
"""Least width of the first column, so that tables of one kind stand in line."""


def protocols_table(every: Iterable[Protocol]) -> Table:
    """What can be measured."""
    shown = Table(title="Protocols", title_justify="left", box=None)
    for column in ("protocol", "what it shows", "after"):
        shown.add_column(column)
    for protocol in every:
        shown.add_row(protocol.name, protocol.title, protocol.source)
    return shown


def summary_tables(found: Sequence[Summary], title: str, *swept: str | None) -> Iterator[Table]:
    """A table for each kind of prompt; `swept`: what the swept values are called, as far as there are any."""
    names = [name.partition("(")[2].rstrip(")") or name for name in swept if name]
    columns = ("way", *names, "tok/s", "× plain", "quartiles", "tok/pass", "host ms", "same")
    for kind in dict.fromkeys(one.kind for one in found):
        shown = _titled(f"{kind} ({title})", columns)
        shown.columns[0].no_wrap = True
        for one in found:
            if one.kind == kind:
                shown.add_row(*_summary_cells(one, len(names)))
        yield shown


def _summary_cells(one: Summary, swept: int) -> Iterator[str]:
    yield one.cell.contender
    yield from (_figure(value, "g") for value in (one.cell.x, one.cell.x2)[:swept])
    if not one.prompts:
        yield "failed"
        return
    speedup = one.speedup
    yield _figure(_median(one.throughput), ".0f")
    yield _figure(_median(speedup), ".2f")
    yield f"{speedup.low:.2f}–{speedup.high:.2f}" if speedup else "–"
    yield _figure(one.tokens_per_iteration, ".2f")
    yield _figure(_median(one.host_ms), ".2f")
    yield f"{one.equal}/{one.compared}"


def _median(found: Spread | None) -> float | None:
    return found.median if found else None


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"


def clicks_table(rows: Sequence[ClickRow], title: str) -> Table:
    """Actions in the lab: from the click to the painted views, without the model's share."""
    shown = _titled(title, ("action", "clicks", "median ms", "p95 ms", "model ms, apart", "target p95"))
    for row in rows:
        target = "–" if row.target_ms is None else f"{row.target_ms:.0f}"
        figures = (f"{row.median_ms:.0f}", f"{row.p95_ms:.0f}", f"{row.model_ms:.0f}")
        shown.add_row(row.action, str(row.clicks), *figures, target)
    return shown


def kept_table(rows: Sequence[KeptRow]) -> Table:
    """Histories of growing length."""
    shown = _titled("A run kept in history", ("iterations", "nodes a tree", "MiB in memory", "MiB on disk"))
    for row in rows:
        shown.add_row(str(row.iterations), f"{row.nodes:.0f}", f"{row.memory_mib:.1f}", f"{row.file_mib:.2f}")
    return shown


def host_table(rows: Sequence[HostRow], title: str) -> Table:
    """One strategy's host work, by length of context; without a title, lines that go on below another's."""
    columns = ("host work", "context", "nodes", "draft ms", "learn ms", "both ms", "× shortest")
    shown = _titled(title, columns)
    for row in rows:
        times = (f"{figure:.3f}" for figure in (row.draft_ms, row.learn_ms, row.total_ms))
        shown.add_row(row.way, str(row.context), f"{row.nodes:g}", *times, f"{row.growth:.2f}")
    return shown


def memory_table(rows: Iterable[MemoryRow]) -> Table:
    """What the tables take."""
    shown = _titled("Transition tables", ("table", "vocabulary", "unigram rows", "MiB", "bound, MiB"))
    for row in rows:
        shown.add_row(row.way, f"{row.vocabulary:,}", row.kind, f"{row.megabytes:.1f}", str(row.bound))
    return shown


def yields_table(rows: Sequence[YieldRow], title: str) -> Table:
    """Tokens an iteration, a line for each kind, the best in bold; without a title, lines that go on below others."""
    shown = _titled(title, ("kind", "prompts", *rows[0].tokens_per_iteration))
    for row in rows:
        rates = row.tokens_per_iteration.values()
        best = max(rates)
        cells = (f"[bold]{rate:.3f}[/bold]" if rate == best else f"{rate:.3f}" for rate in rates)
        shown.add_row(row.kind, str(row.prompts), *cells)
    return shown


def routing_table(rows: Sequence[RoutingRow], title: str) -> Table:
    """Tokens an iteration by way; each head's share of the choices, its confidence, and what the text followed."""
    shown = _titled(title, ("kind", "same text", *rows[0].tokens_per_iteration, "chosen", "confidence", "followed"))
    for row in rows:
        rates = (f"{rate:.3f}" for rate in row.tokens_per_iteration.values())
        parts = (" ".join(f"{share:.3f}" for share in of.values()) for of in (row.chosen, row.confidence, row.share))
        shown.add_row(row.kind, f"{row.equal}/{row.prompts}", *rates, *parts)
    return shown


def _titled(title: str, columns: Sequence[str]) -> Table:
    shown = Table(title=title or None, title_justify="left", show_header=bool(title), box=None, padding=(0, 1, 0, 0))
    shown.add_column(columns[0], min_width=FIRST)
    for column in columns[1:]:
        shown.add_column(column, justify="right", min_width=len(column))
    return shown
