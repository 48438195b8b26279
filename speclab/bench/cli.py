"""`speclab bench`: ways to decode side by side; `speclab bench host`: host work; `speclab bench yields`: counts;
`speclab bench routing`: two heads, and routing between them; `speclab bench clicks`: the lab in a browser.

Every figure of a command comes from one run, its contenders in turn; rows are shown as soon as they are there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from pydantic import BaseModel
from rich.console import Console
from rich.progress import Progress

from speclab.bench.compare import Row, Runs, measure, rows
from speclab.bench.host_work import CONTEXTS, STRATEGIES, WARM_UP, WIDE, host_work, table_memory
from speclab.bench.routing import Turns, mixed, routing
from speclab.bench.routing import ways as routing_ways
from speclab.bench.shown import (
    clicks_table,
    host_table,
    kept_table,
    memory_table,
    routing_table,
    ways_table,
    yields_table,
)
from speclab.bench.ways import ways
from speclab.bench.yields import yields
from speclab.errors import SpeclabError
from speclab.models.pair import ModelPair, load_pair
from speclab.prompts import examples

app = typer.Typer(add_completion=False)

Pair = Annotated[str, typer.Option(help="A pair by name.")]
Prompts = Annotated[Path | None, typer.Option(help="JSONL with a field prompt; else the shipped prompts.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads of torch; 0 leaves its own choice.")]
Out = Annotated[Path | None, typer.Option(help="Also write the rows here, as JSON lines.")]


@app.callback(invoke_without_command=True)
def bench(
    ctx: typer.Context,
    pair: Pair = "mini",
    prompts: Prompts = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts a kind.")] = 3,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 128,
    repeats: Annotated[int, typer.Option(min=1)] = 3,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Measure every strategy, and transformers' own decoding, on the same prompts, in turn."""
    if ctx.invoked_subcommand is not None:
        return
    _use(threads)
    kinds = {kind: texts[:limit] for kind, texts in _texts(prompts).items()}
    models = load_pair(pair)
    table = _measure(Console(), models, kinds, max_new_tokens, repeats)
    _write(out, table)


@app.command()
def host(
    vocabulary: Annotated[int, typer.Option(min=16, help="Tokens that the made target knows.")] = 4096,
    rounds: Annotated[int, typer.Option(min=1, help="Iterations timed of each.")] = 200,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Time looking up, building and learning without a model, and say what the tables take."""
    _use(threads)
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


@app.command("yields")
def count(
    pair: Pair = "mini",
    prompts: Prompts = None,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 96,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Count tokens an iteration of the strategies that need no draft, by kind of prompt, tables cold."""
    _use(threads)
    kinds, models, found = _texts(prompts), load_pair(pair), []
    title = f"Tokens an iteration ({models.name}, {max_new_tokens} new tokens)"
    with Progress(console=Console(), transient=True) as progress:
        bar = progress.add_task("decoding", total=sum(map(len, kinds.values())) * len(STRATEGIES))
        for row in yields(models, kinds, max_new_tokens=max_new_tokens, done=lambda: progress.advance(bar)):
            found.append(row)
            progress.console.print(yields_table([row], title))
            title = ""
    _write(out, found)


@app.command("routing")
def route(
    pair: Pair = "mini",
    prompts: Prompts = None,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 64,
    node_budget: Annotated[int, typer.Option(min=1, help="Nodes of each head's tree.")] = 60,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Count tokens an iteration of both heads alone, of routing between them, and of both trees as one."""
    _use(threads)
    kinds, models, found = _texts(prompts), load_pair(pair), []
    texts: dict[str, list[Turns]] = {kind: [(text,) for text in some] for kind, some in kinds.items()}
    if {"prose", "code"} <= kinds.keys():
        texts["prose, then code"] = mixed(kinds)
    contenders = routing_ways(node_budget=node_budget)
    title = f"Tokens an iteration ({models.name}, {max_new_tokens} new tokens, {node_budget} nodes a tree)"
    with Progress(console=Console(), transient=True) as progress:
        bar = progress.add_task("decoding", total=sum(map(len, texts.values())) * len(contenders))
        done = partial(progress.advance, bar)
        for row in routing(models, texts, contenders, max_new_tokens=max_new_tokens, done=done):
            found.append(row)
            progress.console.print(routing_table([row], title))
            title = ""
    _write(out, found)


@app.command("clicks")
def click(
    clicks: Annotated[int, typer.Option(min=2, help="Clicks on each button.")] = 30,
    iterations: Annotated[int, typer.Option(min=2, help="Of the history kept.")] = 200,
    out: Out = None,
) -> None:
    """Time clicks in the lab, in a real browser, and say what a long history takes."""
    from speclab.bench import lab_clicks
    from speclab.bench.clicks import load

    console, found = Console(), list[BaseModel]()
    for row in lab_clicks.clicks(clicks):
        found.append(row)
        console.print(clicks_table([row], f"The lab in Chromium ({load()})"))
    history = list(lab_clicks.kept(iterations, lab_clicks.decoded))
    console.print(kept_table(history))
    _write(out, [*found, *history])


def _measure(
    console: Console, models: ModelPair, kinds: dict[str, list[str]], max_new_tokens: int, repeats: int
) -> list[Row]:
    contenders = ways(models)
    every: list[Runs] = []
    table: list[Row] = []
    title = f"{models.name}, {max_new_tokens} new tokens, {torch.get_num_threads()} threads"
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("decoding", total=sum(map(len, kinds.values())) * len(contenders) * (repeats + 1))

        def one(text: str) -> Runs:
            ids = models.encode(text)
            return measure(
                contenders, ids, max_new_tokens=max_new_tokens, repeats=repeats, done=lambda: progress.advance(bar)
            )

        def show(kind: str, measured: Sequence[Runs]) -> None:
            added = rows(kind, measured)
            table.extend(added)
            progress.console.print(ways_table(added, title))

        try:
            for kind, chosen in kinds.items():
                measured = [one(text) for text in chosen]
                every += measured
                show(kind, measured)
        except KeyboardInterrupt:
            console.print("interrupted; what is done follows")
        if every:
            show("all", every)
    return table


def _use(threads: int) -> None:
    if threads:
        torch.set_num_threads(threads)


def _write(out: Path | None, table: Sequence[BaseModel]) -> None:
    if out is not None:
        out.write_text("".join(row.model_dump_json() + "\n" for row in table), encoding="utf-8")


def _texts(path: Path | None) -> dict[str, list[str]]:
    texts = _from_file(path) if path else [(prompt.kind, prompt.text) for prompt in examples()]
    return {kind: [text for own, text in texts if own == kind] for kind, _ in texts}


def _from_file(path: Path) -> list[tuple[str, str]]:
    texts = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SpeclabError(f"{path} cannot be read ({error.strerror}): check the path") from None
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            texts.append((str(record.get("dataset") or path.stem), str(record["prompt"])))
        except (ValueError, KeyError, AttributeError) as error:
            raise SpeclabError(f"{path}, line {number}: no JSON object with a field prompt ({error})") from None
    return texts
