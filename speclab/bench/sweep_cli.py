"""`speclab sweep`: a grid or an Optuna study over any settings of any strategy, and the best of it decoded."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from speclab.bench.cli import summary_tables
from speclab.bench.protocol import Method, Protocol
from speclab.bench.summary import over_all, summaries, times
from speclab.bench.sweep import TABLE, Row, Study, Sweep, sweep
from speclab.bench.sweep_ranges import takes
from speclab.bench.sweep_texts import Texts
from speclab.bench.workloads import Workload, load
from speclab.drafters import strategies, to_str
from speclab.drafters.base import Strategy
from speclab.drafters.chain import Autoregressive
from speclab.errors import SettingsError

app = typer.Typer(add_completion=False)

SHOWN = 3
"""Best trials in the table."""
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
    check: Annotated[int, typer.Option(min=0, help="Of the best so many are decoded, in turn with plain.")] = 3,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds of that on each prompt.")] = 1,
    pair: Annotated[str, typer.Option(help="A pair by name.")] = "mini",
    target: Annotated[str | None, typer.Option(help="A hub id or folder.")] = None,
    draft: Annotated[str | None, typer.Option(help="A hub id or folder.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float16, bfloat16")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with models and texts of its own.")] = 1,
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
    with _bar(console, out) as bar, _pool(workers) as pool:
        texts = Texts(
            {name: value for name, value in models.items() if value is not None},
            found.inputs, max_new_tokens, workload, report=partial(bar.show, "decoding texts", len(found.tasks)),
        )  # fmt: skip
        best = sweep(
            known[strategy], over, out, study=study, trials=trials, objective=objective,
            measure=texts if pool is None else replace(texts, report=None),  # a bar is of this process
            executor=pool, workers=workers, resume=resume, seed=seed, report=bar.report,
        )  # fmt: skip
        _print(console, best)
        if check:
            _check(best, texts, found, check, repeats, console, bar)


def _pool(workers: int) -> Executor | nullcontext[None]:
    """Processes begun anew: one that is forked would share what torch's threads hold."""
    return nullcontext() if workers == 1 else ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))


class _Bar:
    """A progress bar, and what is kept of a sweep that Ctrl-C ends."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._task = progress, progress.add_task("loading", total=None)
        self.kept = "what was done is kept"

    def show(self, what: str, total: int, done: int) -> None:
        """So many of so many are done."""
        self._progress.update(self._task, total=total, completed=done, description=what)

    def report(self, row: Row, done: int, total: int) -> None:
        """A trial is done."""
        self.kept = f"{done} of {total} trials are done, and kept"
        self.show(f"trial {row.trial}: {_figure(row) or 'no figure'}", total, done)


@contextmanager
def _bar(console: Console, out: Path) -> Iterator[_Bar]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        bar = _Bar(progress)
        try:
            yield bar
        except KeyboardInterrupt:
            sentence = f"interrupted: {bar.kept} in {out}; go on with the same command and --resume"
            console.print(Text(sentence), soft_wrap=True)
            raise typer.Exit(130) from None


def _check(
    found: Sweep, texts: Texts, workload: Workload, most: int, repeats: int, console: Console, bar: _Bar
) -> None:
    """Decodes the best few settings, the default and plain, in turn, and says which is fastest by the clock."""
    from speclab.bench.run import finish, open_run, plan, run

    tried = {row.trial: row for row in (found.default, *found.ranked[:most])}
    named = {"plain": Autoregressive(), **{f"trial {number}": row.built(found.kind) for number, row in tried.items()}}
    methods = [Method(name=name, strategy=own) for name, own in named.items()]
    protocol = Protocol(name="sweep", title=f"The best of a sweep of {found.kind.__name__}", methods=tuple(methods))
    asked = plan(protocol, texts.models(), workload, max_new_tokens=texts.max_new_tokens, repeats=repeats)
    folder = found.folder / "-".join(["check", *map(str, [*tried][1:])])
    info, before = open_run(asked, folder, resume=True)
    results = list(before)
    for result in run(asked, folder, info, before):
        results.append(result)
        bar.show("decoding the best", asked.calls, len(results))
    every = over_all(summaries(results, info))
    console.print(*summary_tables(every, f"decoded in turn, {repeats} × each prompt", []))
    for sentence in (*asked.notes, *finish(folder)):
        console.print(Text(sentence, style="dim"), soft_wrap=True)
    if speedup := {one.method: one.speedup.median for one in every if one.speedup}:
        best = max(speedup, key=speedup.__getitem__)
        code = f"{times(speedup[best])} plain: speclab.{to_str(named[best])}"
        console.print(Text(f"Decoded in turn, {best} is fastest, {code}"), soft_wrap=True)


def _print(console: Console, found: Sweep) -> None:
    best, default = found.best, found.default
    table = Table(box=None, pad_edge=False)
    for column in ("", "trial", found.objective, *best.settings):
        table.add_column(column, justify="left" if not column else "right")
    for place, row in enumerate([default, *found.ranked[:SHOWN]]):
        name = "best" if place == 1 else "" if place else "default"
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
