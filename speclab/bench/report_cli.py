"""`speclab bench report DIR`: the report anew, of a run or of every run in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="Of results, or one that holds several such folders.")],
) -> None:
    """Write the HTML report of what a folder of results holds, also of a run that is not done."""
    from speclab.bench.report import write_report

    typer.echo(write_report(folder))
