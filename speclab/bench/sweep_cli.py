"""`speclab sweep`: a grid or an Optuna study over any settings of any strategy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from speclab.bench.sweep import Report, Study, Sweep, slots_for, sweep, threads_for
from speclab.bench.sweep_decode import TIMED, Decode
from speclab.bench.sweep_study import TABLE, Row, takes
from speclab.bench.workloads import load
from speclab.drafters import strategies
from speclab.drafters.base import Strategy
from speclab.errors import SettingsError
from speclab.prompts import as_messages

app = typer.Typer(add_completion=False)

_RANGES = "FIELD[=LOW:HIGH[:STEP] | =V1,V2,…]"


@app.command()
def command(
    strategy: Annotated[str, typer.Argument(help="A name from the registry of strategies.")],
    over: Annotated[list[str] | None, typer.Option(metavar=_RANGES, help="What to sweep; without it, a list.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="For study.db and trials.parquet.")] = None,
    study: Annotated[Study, typer.Option(help="Every combination, or as many as --trials, proposed by TPE.")] = "grid",
    trials: Annotated[int, typer.Option(min=1, help="Of optuna: settings tried besides the defaults.")] = 20,
    objective: Annotated[str, typer.Option(help="tokens_per_iteration, throughput, tpot, …")] = "tokens_per_iteration",
    workload: Annotated[str, typer.Option(help="A workload by name, a JSONL file, or a folder of them.")] = "shipped",
    limit: Annotated[int | None, typer.Option(min=1, help="Prompts of each kind.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 128,
    repeats: Annotated[int | None, typer.Option(min=1, help="Rounds; 3 where a clock decides, else 1.")] = None,
    pair: Annotated[str, typer.Option(help="A pair by name.")] = "mini",
    target: Annotated[str | None, typer.Option(help="A hub id or folder.")] = None,
    draft: Annotated[str | None, typer.Option(help="A hub id or folder.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float16, bfloat16")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; one per core, 1 where a clock decides.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampler.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the sweep in DIR.")] = False,
) -> None:
    """Try settings of a strategy; print the best as code, beside the default; keep every trial."""
    console, known = Console(), strategies(by_hand=False)
    if strategy not in known:
        raise SettingsError(f"There is no strategy {strategy!r}: choose one of {', '.join(known)}.")
    if not over:
        console.print(_fields(known[strategy]))
        return
    if out is None:
        raise SettingsError("A sweep needs a folder for its trials: --out DIR")
    found = load(workload, limit)
    for note in found.notes:
        console.print(Text(note, style="dim"))
    models = {"name": pair, "target": target, "draft": draft, "device": device, "dtype": dtype}
    measure = Decode(
        {name: value for name, value in models.items() if value is not None},
        [as_messages(task.text) if found.chat else task.text for task in found.tasks],
        max_new_tokens,
        repeats or (3 if objective in TIMED else 1),
        threads_for(workers or slots_for(objective)),
        workload,
    )
    with _bar(console, out) as report:
        best = sweep(
            known[strategy], over, out, study=study, trials=trials, objective=objective, measure=measure,
            workers=workers, resume=resume, seed=seed, report=report,
        )  # fmt: skip
    _print(console, best)


@contextmanager
def _bar(console: Console, out: Path) -> Iterator[Report]:
    """A progress bar, moved by what is yielded; at Ctrl-C it says what is kept and how to go on."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    kept = "what was done is kept"
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("starting workers", total=None)

        def report(row: Row, done: int, total: int) -> None:
            nonlocal kept
            kept = f"{done} of {total} trials are done, and kept"
            description = f"trial {row.trial}: {_figure(row) or 'no figure'}"
            progress.update(task, total=total, completed=done, description=description)

        try:
            yield report
        except KeyboardInterrupt:
            sentence = f"interrupted: {kept} in {out}; go on with the same command and --resume"
            console.print(Text(sentence), soft_wrap=True)
            raise typer.Exit(130) from None


def _print(console: Console, found: Sweep) -> None:
    best, default = found.best, found.default
    table = Table(box=None, pad_edge=False)
    for column in ("", "trial", found.objective, *best.settings):
        table.add_column(column, justify="left" if not column else "right")
    for name, row in (("default", default), ("best", best)):
        table.add_row(name, str(row.trial), _figure(row) or "–", *(Text(f"{each}") for each in row.settings.values()))
    console.print(table)
    if best.trial == 0:
        console.print(f"No setting of {len(found.rows) - 1} beats the default:", highlight=False)
    elif best.objective and default.objective:
        console.print(f"{best.objective / default.objective - 1:+.1%} against the default:", highlight=False)
    console.print(Text(best.code, style="bold"), soft_wrap=True)  # as it is: no markup, and no line break
    for note in found.notes():
        console.print(Text(note, style="dim"))
    console.print(Text(f"{len(found.rows)} trials in {found.folder / TABLE}", style="dim"), soft_wrap=True)


def _figure(row: Row) -> str:
    return "" if row.objective is None else f"{row.objective:.4g}"


def _fields(kind: type[Strategy]) -> Table:
    table = Table(title=f"Settings of {kind.__name__}", title_justify="left", box=None)
    for column in ("setting", "default", "takes", "what"):
        table.add_column(column)
    for name, field in kind.model_fields.items():
        table.add_row(*(Text(cell) for cell in (name, str(field.default), takes(field), field.description or "")))
    return table
