"""`speclab bench`: a protocol, measured; `speclab bench report`: its page, anew.

`speclab bench host | yields | routing | clicks | gpu`: host work, counts, the lab, a GPU against its own bounds.

Every figure of a command comes from one run, its contenders in turn; rows are shown as soon as they are there.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from speclab.bench import cli_counts
from speclab.bench.asked import Asked, ask, keys
from speclab.bench.gpu_cli import gpu
from speclab.bench.protocols import find, protocols
from speclab.bench.report_cli import report
from speclab.bench.result import Result, RunInfo
from speclab.bench.running import made_of, opened, run
from speclab.bench.shown import protocols_table, summary_tables
from speclab.bench.summary import summaries
from speclab.bench.workloads import load, names
from speclab.models.pair import load_pair

app = typer.Typer(add_completion=False)
cli_counts.add_to(app)
app.command("report")(report)
app.command("gpu")(gpu)


def _list(wanted: bool) -> None:
    if wanted:
        console = Console()
        console.print(protocols_table(protocols().values()))
        console.print(f"Workloads: {', '.join(names())}, a JSONL file, or a folder of them.")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def bench(
    ctx: typer.Context,
    protocol: Annotated[str, typer.Option(help="What to measure; --list shows all.")] = "main",
    out: Annotated[Path | None, typer.Option(help="A folder for results, parquet and report; else only shown.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="Prompts: a name, a JSONL file or a folder; else the protocol's own.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Prompts a kind; else the protocol's number.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="T; else the protocol's.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds on each prompt, after a warm-up.")] = 3,
    pair: cli_counts.Pair = "mini",
    target: Annotated[str | None, typer.Option(help="A hub id or folder, in place of a pair.")] = None,
    draft: Annotated[str | None, typer.Option(help="A hub id or folder.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float16, bfloat16")] = None,
    threads: cli_counts.Threads = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")] = False,
    _: Annotated[bool, typer.Option("--list", callback=_list, is_eager=True, help="Show protocols.")] = False,
) -> None:
    """Measure a protocol: its contenders on the same prompts, in turn, beside transformers' own decoding."""
    if ctx.invoked_subcommand is not None:
        return
    cli_counts.use(threads)
    chosen = find(protocol)
    prompts = load(workload or chosen.workload, limit or chosen.limit)
    models = load_pair(pair, target=target, draft=draft, device=device, dtype=dtype)
    arguments = {
        "limit": limit or chosen.limit,
        "threads": torch.get_num_threads(),
        "device": str(models.target.device),
        "dtype": str(models.target.dtype).removeprefix("torch."),
    }
    asked = ask(chosen, models, prompts, max_new_tokens=max_new_tokens, repeats=repeats, arguments=arguments)
    with tempfile.TemporaryDirectory() as scratch:
        _measure(asked, out or Path(scratch) / "results", resume=resume, again=_again(ctx) if out else "")


def _measure(asked: Asked, folder: Path, *, resume: bool, again: str) -> None:
    """Measures under a progress bar, and shows what came of it, also of a part; `again` goes on with a kept one."""
    console = Console()
    info, before = opened(asked, folder, resume=resume)
    for note in asked.notes:
        console.print(note, highlight=False)
    results = list(before)
    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn())
    try:
        with Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True
        ) as progress:
            bar = progress.add_task("", total=len(keys(asked)), completed=len(before))
            for result in run(asked, folder, info, before, lambda name: progress.update(bar, description=name)):
                results.append(result)
                progress.advance(bar)
    except KeyboardInterrupt:
        _show(console, results, info)
        said = f"; {len(results)} results are kept. To go on: {again}" if again else ""
        console.print(f"interrupted{said}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    _show(console, results, info)
    if again:
        for sentence in (f"{len(results)} results in {folder}", *made_of(folder)):
            console.print(sentence, highlight=False, soft_wrap=True)


def _show(console: Console, results: list[Result], info: RunInfo) -> None:
    title = (
        f"{info.protocol}: {info.pair['pair']}, {info.arguments['max_new_tokens']} new tokens, {info.threads} threads"
    )
    for table in summary_tables(summaries(results, info.baseline), title, info.x_name, info.x2_name):
        console.print(table)
    for one in dict.fromkeys((result.contender, result.failed) for result in results if result.failed):
        console.print(f"{one[0]} failed: {one[1]}", highlight=False, soft_wrap=True)


def _again(ctx: typer.Context) -> str:
    """The command as it was given, and --resume."""
    words = ["speclab", "bench"]
    for name, value in ctx.params.items():
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and not isinstance(value, bool):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*words, "--resume"])
