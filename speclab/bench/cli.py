"""`speclab bench`: a protocol, measured; `report`: its page, written again; `yields` and `routing`: counts.

Every figure of a command comes from one run, its methods in turn; rows are shown as soon as they are there.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from speclab.bench import counts
from speclab.bench.counts import CountRow, Turns
from speclab.bench.protocol import Protocol, find, protocols
from speclab.bench.result import Result, RunInfo
from speclab.bench.run import Measurement, finish, open_run, plan, run
from speclab.bench.summary import Summary, number, summaries, times
from speclab.bench.workloads import load, names
from speclab.drafters.base import Strategy
from speclab.models.pair import ModelPair, load_pair

app = typer.Typer(add_completion=False)
Pair = Annotated[str, typer.Option(help="A pair by name.")]
Prompts = Annotated[str, typer.Option(help="A workload by name, a JSONL file, or a folder of them.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads of torch; 0 leaves its own choice.")]
Out = Annotated[Path | None, typer.Option(help="Also write the rows here, as JSON lines.")]


def _list(wanted: bool) -> None:
    if wanted:
        console = Console()
        console.print(_protocols_table(protocols().values()))
        console.print(f"Workloads: {', '.join(names())}, a JSONL file, or a folder of them.")
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
    pair: Pair = "mini",
    target: Annotated[str | None, typer.Option(help="A hub id or folder, in place of a pair.")] = None,
    draft: Annotated[str | None, typer.Option(help="A hub id or folder.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, float16, bfloat16")] = None,
    threads: Threads = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")] = False,
    _: Annotated[bool, typer.Option("--list", callback=_list, is_eager=True, help="Show protocols.")] = False,
) -> None:
    """Measure a protocol: its methods on the same prompts, in turn, beside transformers' own decoding."""
    if ctx.invoked_subcommand is not None:
        return
    use_threads(threads)
    named = protocol and find(protocol)  # a wrong name is said before any model is loaded
    models = load_pair(pair, target=target, draft=draft, device=device, dtype=dtype)
    chosen = named or find("main" if models.draft or not models.heads else "chat")
    prompts = load(workload or chosen.workload, limit or chosen.limit, chat=chat)
    arguments = {
        "limit": limit or chosen.limit,
        "threads": torch.get_num_threads(),
        "device": str(models.target.device),
        "dtype": str(models.target.dtype).removeprefix("torch."),
    }
    asked = plan(chosen, models, prompts, max_new_tokens=max_new_tokens, repeats=repeats, arguments=arguments)
    with tempfile.TemporaryDirectory() as scratch:
        _measure(asked, out or Path(scratch) / "results", resume=resume, again=_again(ctx) if out else "")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Of results, or one that holds several such folders.")],
) -> None:
    """Write the HTML report of what a folder of results holds, also of a run that is not done."""
    from speclab.bench.report import write_report

    typer.echo(write_report(folder))


@app.command()
def yields(
    pair: Pair = "mini",
    prompts: Prompts = "shipped",
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 96,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Count tokens per iteration of the strategies that need no draft, by kind of prompt, tables cold."""
    use_threads(threads)
    texts, models = _texts(prompts), load_pair(pair)
    title = f"Tokens per iteration ({models.name}, {max_new_tokens} new tokens)"
    _count(models, texts, counts.TRAINING_FREE, max_new_tokens, title, out, stop_at_eos=False)


@app.command()
def routing(
    pair: Pair = "mini",
    prompts: Prompts = "shipped",
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 64,
    node_budget: Annotated[int, typer.Option(min=1, help="Nodes of each head's tree.")] = 60,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Count tokens per iteration of both heads alone, of routing between them, and of the merged trees."""
    use_threads(threads)
    texts, models = _texts(prompts), load_pair(pair)
    if {"prose", "code"} <= texts.keys():
        texts["prose, then code"] = counts.mixed(
            {kind: [str(turns[0]) for turns in own] for kind, own in texts.items()}
        )
    strategies = counts.routing_strategies(node_budget=node_budget)
    title = f"Tokens per iteration ({models.name}, {max_new_tokens} new tokens, {node_budget} nodes per tree)"
    _count(models, texts, strategies, max_new_tokens, title, out)


def use_threads(threads: int) -> None:
    """Sets torch's threads, unless 0."""
    if threads:
        torch.set_num_threads(threads)


def _measure(asked: Measurement, folder: Path, *, resume: bool, again: str) -> None:
    """Measures under a progress bar, and shows what came of it, also of a part; `again` goes on with a kept one."""
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
        kept = f"; {len(results)} results are kept. To go on: {again}" if again else ""
        console.print(f"interrupted{kept}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    _show(console, results, info)
    if again:
        for sentence in (f"{len(results)} results in {folder}", *finish(folder)):
            console.print(sentence, highlight=False, soft_wrap=True)


def _show(console: Console, results: list[Result], info: RunInfo) -> None:
    title = (
        f"{info.protocol}: {info.pair['pair']}, {info.arguments['max_new_tokens']} new tokens, {info.threads} threads"
    )
    for table in _summary_tables(summaries(results, info), title, [n for n in (info.x_name, info.x2_name) if n]):
        console.print(table)
    for name, why in dict.fromkeys((result.method, result.failed) for result in results if result.failed):
        console.print(f"{name} failed: {why}", highlight=False, soft_wrap=True)


def _again(ctx: typer.Context) -> str:
    """The command as it was given, and --resume."""
    words = ["speclab", "bench"]
    for name, value in ctx.params.items():
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name != "resume":
            option = name.replace("_", "-")
            words += [f"--{'' if value else 'no-'}{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    return shlex.join([*words, "--resume"])


def _texts(name: str) -> dict[str, list[Turns]]:
    workload = load(name)
    for note in workload.notes:
        typer.echo(note, err=True)
    return {kind: [(text,) for text in texts] for kind, texts in workload.kinds.items()}


def _count(
    pair: ModelPair, texts: Mapping[str, Sequence[Turns]], strategies: Mapping[str, Strategy], max_new_tokens: int,
    title: str, out: Path | None, *, stop_at_eos: bool = True,
) -> None:  # fmt: skip
    """Shows each row under a progress bar as soon as it is there."""
    found: list[CountRow] = []
    with Progress(console=Console(), transient=True) as progress:
        bar = progress.add_task("decoding", total=sum(map(len, texts.values())) * len(strategies))
        rows = counts.count(
            pair, texts, strategies, max_new_tokens=max_new_tokens, stop_at_eos=stop_at_eos,
            done=lambda: progress.advance(bar),
        )  # fmt: skip
        for row in rows:
            progress.console.print(_count_table(row, "" if found else title))
            found.append(row)
    if out is not None:
        out.write_text("".join(f"{row.model_dump_json()}\n" for row in found), encoding="utf-8")


def _protocols_table(every: Iterable[Protocol]) -> Table:
    """What can be measured."""
    shown = Table(title="Protocols", title_justify="left", box=None)
    for column in ("protocol", "what it shows", "after"):
        shown.add_column(column)
    for protocol in every:
        shown.add_row(protocol.name, protocol.title, protocol.source)
    return shown


def _summary_tables(found: Sequence[Summary], title: str, swept: Sequence[str]) -> Iterator[Table]:
    """A table for each kind of prompt; `swept`: what the swept values are called."""
    names = [name.partition("(")[2].rstrip(")") or name for name in swept]
    columns = ("method", *names, "tok/s", "× plain", "quartiles", "tok/pass", "host ms", "same")
    for kind in dict.fromkeys(one.kind for one in found):
        shown = _table(f"{kind} ({title})", columns)
        shown.columns[0].no_wrap = True
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


def _count_table(row: CountRow, title: str) -> Table:
    """Tokens per iteration, the best in bold; of routing each head's share of the choices, confidence and share."""
    routed = ("chosen", "confidence", "followed") if row.chosen else ()
    shown = _table(title, ("kind", "same text", *row.tokens_per_iteration, *routed))
    best = max(row.tokens_per_iteration.values())
    rates = (f"[bold]{x:.3f}[/bold]" if x == best else f"{x:.3f}" for x in row.tokens_per_iteration.values())
    parts = (" ".join(f"{x:.3f}" for x in of.values()) for of in (row.chosen, row.confidence, row.share) if of)
    shown.add_row(row.kind, f"{row.equal}/{row.prompts}", *rates, *parts)
    return shown


def _table(title: str, columns: Sequence[str]) -> Table:
    """Without a title: lines that go on below another table, in line with it."""
    shown = Table(title=title or None, title_justify="left", show_header=bool(title), box=None, padding=(0, 1, 0, 0))
    shown.add_column(columns[0], min_width=14)
    for column in columns[1:]:
        shown.add_column(column, justify="right", min_width=len(column))
    return shown
