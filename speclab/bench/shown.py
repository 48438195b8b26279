"""Rows of a measurement as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from speclab.bench.clicks import ClickRow
from speclab.bench.compare import Row
from speclab.bench.host_work import HostRow, MemoryRow
from speclab.bench.lab_clicks import KeptRow
from speclab.bench.routing import RoutingRow
from speclab.bench.yields import YieldRow

FIRST = 14
"""Least width of the first column, so that tables of one kind stand in line."""


def ways_table(rows: Sequence[Row], title: str) -> Table:
    """Ways to decode, over the prompts of one kind."""
    columns = ("way", "tokens/s", "× plain", "tokens/pass", "accepted", "host ms", "same text")
    shown = _titled(f"{rows[0].kind} ({title})", columns)
    for row in rows:
        cells = (row.tokens_per_iteration, row.acceptance_rate, row.host_ms)
        figures = ["–" if cell is None else f"{cell:.2f}" for cell in cells]
        equal = f"{row.equal}/{row.prompts}"
        shown.add_row(row.way, f"{row.tokens_per_second:.0f}", f"{row.speedup:.2f}", *figures, equal)
    return shown


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
    shown = Table(title=title or None, title_justify="left", show_header=bool(title), box=None)
    shown.add_column(columns[0], min_width=FIRST)
    for column in columns[1:]:
        shown.add_column(column, justify="right", min_width=len(column))
    return shown
