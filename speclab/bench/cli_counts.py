"""`speclab bench host | yields | routing | clicks`: host work, counts, and clicks in the lab."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pydantic import BaseModel
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from speclab.bench.host_work import CONTEXTS, STRATEGIES, WARM_UP, WIDE, host_work, table_memory
from speclab.bench.routing import Turns, mixed, routing
from speclab.bench.routing import ways as routing_ways
from speclab.bench.shown import clicks_table, host_table, kept_table, memory_table, routing_table, yields_table
from speclab.bench.workloads import load
from speclab.bench.yields import yields
from speclab.models.pair import load_pair

Pair = Annotated[str, typer.Option(help="A pair by name.")]
Prompts = Annotated[str, typer.Option(help="A workload by name, a JSONL file, or a folder of them.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads of torch; 0 leaves its own choice.")]
Out = Annotated[Path | None, typer.Option(help="Also write the rows here, as JSON lines.")]


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this file."""
    commands: dict[str, Callable[..., None]] = {"host": host, "yields": count, "routing": route, "clicks": click}
    for name, command in commands.items():
        app.command(name)(command)


def use(threads: int) -> None:
    """Sets torch's threads, unless 0."""
    if threads:
        torch.set_num_threads(threads)


def host(
    vocabulary: Annotated[int, typer.Option(min=16, help="Tokens that the made target knows.")] = 4096,
    rounds: Annotated[int, typer.Option(min=1, help="Iterations timed of each.")] = 200,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Time looking up, building and learning without a model, and say what the tables take."""
    use(threads)
    title = f"Host work without a model, vocabulary {vocabulary:,}, {torch.get_num_threads()} threads"
    found = []
    with Progress(console=Console(), transient=True) as progress:
        bar = progress.add_task("timing", total=len(STRATEGIES) * (rounds + WARM_UP))
        measured = host_work(rounds=rounds, vocabulary=vocabulary, done=lambda: progress.advance(bar))
        for row in measured:
            found.append(row)
            if row.context == CONTEXTS[-1]:
                progress.console.print(host_table(found[-len(CONTEXTS) :], title))
                title = ""
        memory = table_memory(vocabulary=WIDE)
        progress.console.print(memory_table(memory))
    _write(out, [*found, *memory])


def count(
    pair: Pair = "mini",
    prompts: Prompts = "shipped",
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 96,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Count tokens an iteration of the strategies that need no draft, by kind of prompt, tables cold."""
    use(threads)
    kinds, models = _texts(prompts), load_pair(pair)
    title = f"Tokens an iteration ({models.name}, {max_new_tokens} new tokens)"
    rows = partial(yields, models, kinds, max_new_tokens=max_new_tokens)
    _write(out, _shown(sum(map(len, kinds.values())) * len(STRATEGIES), rows, yields_table, title))


def route(
    pair: Pair = "mini",
    prompts: Prompts = "shipped",
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 64,
    node_budget: Annotated[int, typer.Option(min=1, help="Nodes of each head's tree.")] = 60,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Count tokens an iteration of both heads alone, of routing between them, and of both trees as one."""
    use(threads)
    kinds, models = _texts(prompts), load_pair(pair)
    texts: dict[str, list[Turns]] = {kind: [(text,) for text in some] for kind, some in kinds.items()}
    if {"prose", "code"} <= kinds.keys():
        texts["prose, then code"] = mixed(kinds)
    contenders = routing_ways(node_budget=node_budget)
    title = f"Tokens an iteration ({models.name}, {max_new_tokens} new tokens, {node_budget} nodes a tree)"
    rows = partial(routing, models, texts, contenders, max_new_tokens=max_new_tokens)
    _write(out, _shown(sum(map(len, texts.values())) * len(contenders), rows, routing_table, title))


def click(
    clicks: Annotated[int, typer.Option(min=2, help="Clicks on each button.")] = 30,
    iterations: Annotated[int, typer.Option(min=2, help="Of the history kept.")] = 200,
    out: Out = None,
) -> None:
    """Time clicks in the lab, in a real browser, and say what a long history takes."""
    from speclab.bench import lab_clicks
    from speclab.bench.clicks import load as machine_load

    console, found = Console(), list[BaseModel]()
    for row in lab_clicks.clicks(clicks):
        found.append(row)
        console.print(clicks_table([row], f"The lab in Chromium ({machine_load()})"))
    history = list(lab_clicks.kept(iterations, lab_clicks.decoded))
    console.print(kept_table(history))
    _write(out, [*found, *history])


def _shown(
    total: int, rows: Callable[..., Iterable[Any]], table: Callable[[Sequence[Any], str], Table], title: str
) -> list[BaseModel]:
    """Shows each row under a progress bar as soon as it is there; `rows` takes what is called after each text."""
    found: list[BaseModel] = []
    with Progress(console=Console(), transient=True) as progress:
        bar = progress.add_task("decoding", total=total)
        for row in rows(done=lambda: progress.advance(bar)):
            found.append(row)
            progress.console.print(table([row], title if len(found) == 1 else ""))
    return found


def _texts(name: str) -> dict[str, list[str]]:
    workload = load(name)
    for note in workload.notes:
        typer.echo(note, err=True)
    return workload.kinds


def _write(out: Path | None, table: Sequence[BaseModel]) -> None:
    if out is not None:
        out.write_text("".join(row.model_dump_json() + "\n" for row in table), encoding="utf-8")
