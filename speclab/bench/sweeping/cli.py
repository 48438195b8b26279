"""`speclab sweep`: a grid or an Optuna study over any settings of any strategy."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from speclab.bench.sweeping.decode import TIMED, Decode
from speclab.bench.sweeping.found import Sweep
from speclab.bench.sweeping.loop import slots_for, sweep, threads_for
from speclab.bench.sweeping.plan import Study
from speclab.bench.sweeping.rows import PARTS, Row
from speclab.bench.sweeping.space import words
from speclab.bench.workloads import load
from speclab.drafters import strategies
from speclab.drafters.base import Strategy
from speclab.errors import SettingsError

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
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one a core, 1 where a clock decides.")] = None,
    cluster: Annotated[str | None, typer.Option(metavar="local:N | tcp://…", help="A Dask cluster instead.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sampler.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the sweep in DIR.")] = False,
) -> None:
    """Try settings of a strategy; print the best as code, beside the default; keep every trial."""
    kind, console = _kind(strategy), Console()
    if not over:
        console.print(_fields(kind))
        return
    folder, prompts = _folder(out), _prompts(console, workload, limit)
    threads, rounds = _threads(cluster, workers or slots_for(objective)), repeats or (3 if objective in TIMED else 1)
    models = {"name": pair, "target": target, "draft": draft, "device": device, "dtype": dtype}
    measure = Decode(_given(models), prompts, max_new_tokens, rounds, threads, workload)
    run = partial(
        sweep, kind, over, folder, study=study, trials=trials, objective=objective, measure=measure, executor=cluster,
        workers=workers, resume=resume, seed=seed,
    )  # fmt: skip
    _print(console, _watched(console, run, folder))


def _folder(out: Path | None) -> Path:
    if out is None:
        raise SettingsError("A sweep needs a folder for its trials: --out DIR")
    return out


def _prompts(console: Console, workload: str, limit: int | None) -> list[str]:
    found = load(workload, limit)
    for note in found.notes:
        console.print(Text(note, style="dim"))
    return [task.text for task in found.tasks]


def _given(models: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in models.items() if value is not None}


def _watched(console: Console, run: Callable[..., Sweep], out: Path) -> Sweep:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    kept = ""
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        bar = progress.add_task("starting workers", total=None)

        def report(row: Row, done: int, total: int) -> None:
            nonlocal kept
            kept = f"{done} of {total} trials are done, and kept"
            figure = "no figure" if row.objective is None else f"{row.objective:.4g}"
            progress.update(bar, total=total, completed=done, description=f"trial {row.trial}: {figure}")

        try:
            return run(report=report)
        except KeyboardInterrupt:
            said = f"interrupted: {kept or 'what was done is kept'} in {out}; go on with --resume"
            console.print(Text(said), soft_wrap=True)
            raise typer.Exit(130) from None


def _print(console: Console, found: Sweep) -> None:
    best, default, objective = found.best, found.default, found.plan.objective
    table = Table(box=None, pad_edge=False)
    for column in ("", "trial", objective, *best.settings):
        table.add_column(column, justify="left" if not column else "right")
    for name, row in (("default", default), ("best", best)):
        figure = "–" if row.objective is None else f"{row.objective:.4g}"
        table.add_row(name, str(row.trial), figure, *(Text(f"{value}") for value in row.settings.values()))
    console.print(table)
    if best.trial == 0:
        console.print(f"No setting of {len(found.rows) - 1} beats the default:", highlight=False)
    elif best.objective and default.objective:
        console.print(f"{best.objective / default.objective - 1:+.1%} against the default:", highlight=False)
    # Code goes out as it is: no markup, and no line break of the console's.
    console.print(Text(best.code, style="bold"), soft_wrap=True)
    for note in found.notes():
        console.print(Text(note, style="dim"))
    console.print(Text(f"{len(found.rows)} trials in {found.folder / PARTS}", style="dim"), soft_wrap=True)


def _fields(kind: type[Strategy]) -> Table:
    table = Table(title=f"Settings of {kind.__name__}", title_justify="left", box=None)
    for column in ("setting", "default", "takes", "what"):
        table.add_column(column)
    for name, field in kind.model_fields.items():
        table.add_row(*(Text(cell) for cell in (name, str(field.default), words(field), field.description or "")))
    return table


def _kind(name: str) -> type[Strategy]:
    known = strategies()
    if name not in known:
        raise SettingsError(f"There is no strategy {name!r}: choose one of {', '.join(known)}.")
    return known[name]


def _threads(cluster: str | None, slots: int) -> int:
    """Threads of torch in each worker; on machines elsewhere, their own choice."""
    if cluster is None:
        return threads_for(slots)
    count = cluster.removeprefix("local:")
    return threads_for(int(count)) if re.fullmatch("[0-9]{1,4}", count) and int(count) else 0
