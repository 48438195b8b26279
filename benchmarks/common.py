"""What the scripts of this folder share: rows as a table on the screen, and as JSON lines in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

Row = Mapping[str, Any]
Out = Annotated[Path | None, typer.Option(help="Also write the rows here, as JSON lines.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads of torch; 0 leaves its own choice.")]


def show(title: str, rows: Sequence[Row]) -> None:
    """Prints rows with the same keys as a table; numbers stand to the right."""
    if not rows:
        return
    table = Table(title=title, title_justify="left", box=None)
    for name, value in rows[0].items():
        table.add_column(name, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else f"{value}" for value in row.values()))
    Console(width=max(Console().width, 150)).print(table)


def write(out: Path | None, rows: Sequence[Row]) -> None:
    """Writes a line for each row."""
    if out is not None:
        out.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
