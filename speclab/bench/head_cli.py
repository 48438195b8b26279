"""`speclab diagnose head`: why acceptance of a draft head is low, measured. Importing this imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import speclab
from speclab.bench.head_page import HeadPage, write_head_page
from speclab.bench.summary import Table as PageTable
from speclab.bench.workloads import load

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def diagnose() -> None:
    """Find out what is wrong, by measuring."""


@app.command()
def head(
    name: Annotated[str, typer.Argument(metavar="HEAD", help="A folder or hub id, or the name of a head of the pair.")],
    target: Annotated[str | None, typer.Option(help="A hub id or folder; else the pair's target.")] = None,
    pair: Annotated[str, typer.Option(help="A pair by name.")] = "mini",
    prompts: Annotated[
        str | None, typer.Option(help="A workload by name, a JSONL file or a folder; else two shipped ones of a kind.")
    ] = None,
    chat: Annotated[
        bool | None, typer.Option(help="Prompts are what a user says: through the target's chat template.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts of each kind, of those given.")] = 4,
    max_new_tokens: Annotated[int, typer.Option(min=8, help="Of each text.")] = 64,
    to: Annotated[Path | None, typer.Option("--to", help="Write a page, such as head.html.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float16, bfloat16")] = None,
) -> None:
    """Say why a draft head's tokens are accepted so seldom: measured as it is loaded, and every other way."""
    console = Console()
    with console.status("Loading…") as status:
        models = speclab.load_pair(pair, target=target, device=device, dtype=dtype, report=status.update)
        asked = None
        if prompts is not None:
            asked = load(prompts, limit, chat=chat).inputs
        report = speclab.check_head(models, name, asked, max_new_tokens=max_new_tokens, report=status.update)
    page = HeadPage(report)
    console.print(Text(f"{report.head} on {report.target}", style="bold"))
    console.print(Text(page.lead))
    worst = report.likeliest
    if worst:
        console.print(Panel(Text(f"{worst.text} {worst.out}"), title=f"Likeliest cause: {worst.check}", expand=False))
    else:
        console.print(Text(page.normal))
    for shown in (page.depths, page.tried, page.checks):
        console.print(_table(shown))
    for note in report.notes:
        console.print(Text(note))
    if to is not None:
        console.print(Text(f"Written: {write_head_page(report, to)}"))


def _table(shown: PageTable) -> Table:
    table = Table(*shown.head, box=None, pad_edge=False)
    for place, column in enumerate(table.columns):
        column.justify = "left" if place < shown.text else "right"
    for row in shown.rows:
        table.add_row(*(Text(cell if isinstance(cell, str) else cell[0]) for cell in row))
    return table
