"""`speclab bench`: a protocol, measured; `report`: its page, written again.

Every figure of a command comes from one run, its methods in turn; rows are shown as soon as they are there. Importing
this module imports no torch.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

import speclab
from speclab.bench.protocol import find, protocols
from speclab.bench.result import Result, RunInfo
from speclab.bench.summary import Summary, number, summaries, times
from speclab.bench.workloads import WORKLOADS, load

if TYPE_CHECKING:
    from speclab.bench.run import Measurement

app = typer.Typer(add_completion=False)
PLACE = {"out", "resume"}
"""Options that say where results go, not what is measured."""


def _list(wanted: bool) -> None:
    if wanted:
        console = Console()
        table = Table("protocol", "what it shows", "after", title="Protocols", title_justify="left", box=None)
        for protocol in protocols().values():
            table.add_row(protocol.name, protocol.title, protocol.source)
        console.print(table)
        console.print(f"Workloads: {', '.join(WORKLOADS)}, a JSONL file, or a folder of them.")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def bench(
    ctx: typer.Context,
    protocol: Annotated[
        str | None,
        typer.Option(help="A name (--list shows all) or a TOML file; else main, or chat where heads alone draft."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for results, parquet and report; else only shown.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="Prompts: a name, a JSONL file or a folder; else the protocol's own.")
    ] = None,
    chat: Annotated[
        bool | None, typer.Option(help="Prompts are what a user says: through the model's chat template.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Prompts of each kind; else the protocol's number.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="T; else the protocol's.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds on each prompt, after a warm-up.")] = 3,
    pair: Annotated[str, typer.Option(help="A pair by name.")] = "mini",
    target: Annotated[str | None, typer.Option(help="A hub id or folder, in place of a pair.")] = None,
    draft: Annotated[str | None, typer.Option(help="A hub id or folder.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float16, bfloat16")] = None,
    bitwise: Annotated[
        bool | None, typer.Option(help="Exact half precision: a row's bits do not depend on its neighbours.")
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="Threads of torch; 0 leaves its own choice.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")] = False,
    _: Annotated[bool, typer.Option("--list", callback=_list, is_eager=True, help="Show protocols.")] = False,
) -> None:
    """Measure a protocol: its methods on the same prompts, in turn, beside transformers' own decoding."""
    if ctx.invoked_subcommand is not None:
        return
    named = protocol and find(protocol)  # a wrong name is said before any model is loaded

    import torch

    from speclab.bench.run import plan

    if threads:
        torch.set_num_threads(threads)
    models = speclab.load_pair(pair, target=target, draft=draft, device=device, dtype=dtype, bitwise=bitwise)
    chosen = named or find("main" if models.draft or not models.heads else "chat")
    prompts = load(workload or chosen.workload, limit or chosen.limit, chat=chat)
    arguments = {
        "limit": limit or chosen.limit,
        "threads": torch.get_num_threads(),
        "device": str(models.target.device),
        "dtype": str(models.target.dtype).removeprefix("torch."),
        "bitwise": models.target.bitwise,
    }
    asked = plan(chosen, models, prompts, max_new_tokens=max_new_tokens, repeats=repeats, arguments=arguments)
    asked = replace(asked, command=_command(ctx, asked.arguments | {"chat": prompts.chat}))
    with tempfile.TemporaryDirectory() as scratch:
        _measure(asked, out or Path(scratch) / "results", resume=resume, kept=out is not None)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="Of results.")]) -> None:
    """Write the HTML report of what a folder of results holds, also of a run that is not done."""
    from speclab.bench.report import write_report

    typer.echo(write_report(folder))


def _measure(asked: Measurement, folder: Path, *, resume: bool, kept: bool) -> None:
    """Measures under a progress bar, and shows what came of it, also of a part."""
    from speclab.bench.run import finish, open_run, run

    console = Console()
    info, before = open_run(asked, folder, resume=resume)
    for note in asked.notes:
        console.print(note, highlight=False)
    results = list(before)
    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn())
    try:
        with Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True
        ) as progress:
            bar = progress.add_task("", total=asked.calls, completed=len(before))
            for result in run(asked, folder, info, before, lambda name: progress.update(bar, description=name)):
                results.append(result)
                progress.advance(bar)
    except KeyboardInterrupt:
        _show(console, results, info)
        again = f"{asked.command} --out {shlex.quote(str(folder))} --resume"
        rest = f"; {len(results)} results are kept. To go on: {again}" if kept else ""
        console.print(f"interrupted{rest}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    _show(console, results, info)
    if kept:
        for sentence in (f"{len(results)} results in {folder}", *finish(folder)):
            console.print(sentence, highlight=False, soft_wrap=True)


def _show(console: Console, results: list[Result], info: RunInfo) -> None:
    title = (
        f"{info.protocol}: {info.pair['pair']}, {info.arguments['max_new_tokens']} new tokens, {info.threads} threads"
    )
    for table in summary_tables(summaries(results, info), title, [n for n in (info.x_name, info.x2_name) if n]):
        console.print(table)
    for name, why in dict.fromkeys((result.method, result.failed) for result in results if result.failed):
        console.print(f"{name} failed: {why}", highlight=False, soft_wrap=True)


def _command(ctx: typer.Context, used: Mapping[str, Any]) -> str:
    """What measures the same: every option as it was given, or what was used in its place."""
    words = ["speclab", "bench"]
    for name, value in ctx.params.items():
        source = ctx.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        option, said = name.replace("_", "-"), value if given else used.get(name)
        if name in PLACE or said is None or (name == "pair" and ctx.params["target"]):
            continue
        words += [f"--{'' if said else 'no-'}{option}"] if isinstance(said, bool) else [f"--{option}", str(said)]
    return shlex.join(words)


def summary_tables(found: Sequence[Summary], title: str, swept: Sequence[str]) -> Iterator[Table]:
    """A table for each kind of prompt; `swept`: what the swept values are called."""
    names = [name.partition("(")[2].rstrip(")") or name for name in swept]
    columns = ("method", *names, "tok/s", "× plain", "quartiles", "tok/pass", "host ms", "same")
    for kind in dict.fromkeys(one.kind for one in found):
        shown = Table(title=f"{kind} ({title})", title_justify="left", box=None, padding=(0, 1, 0, 0))
        for place, column in enumerate(columns):
            shown.add_column(column, justify="right" if place else "left", min_width=len(column), no_wrap=not place)
        for one in found:
            if one.kind == kind:
                at = ["–" if x is None else f"{x:g}" for x in one.at[1:][: len(names)]]
                shown.add_row(one.method, *at, *(_summary_cells(one) if one.prompts else ["failed"]))
        yield shown


def _summary_cells(one: Summary) -> Iterator[str]:
    rate, over = one.spread("throughput"), one.speedup
    host = one.spread(lambda result: 1000 * result.host_seconds / result.iterations if result.iterations else None)
    yield f"{rate.median:.0f}" if rate else "–"
    yield times(over.median).rstrip("×") if over else "–"
    yield f"{over.low:.2f}–{over.high:.2f}" if over else "–"
    yield number(one.mean("tokens_per_iteration"))
    yield f"{host.median:.2f}" if host else "–"
    yield f"{one.equal}/{one.compared}"
