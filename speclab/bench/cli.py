"""`speclab bench`: a table of ways, one run, alternating."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from speclab.bench.compare import Row, Runs, measure, rows
from speclab.bench.ways import ways
from speclab.errors import SpeclabError
from speclab.models.pair import ModelPair, load_pair
from speclab.prompts import examples

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    pair: Annotated[str, typer.Option(help="A pair by name.")] = "mini",
    prompts: Annotated[Path | None, typer.Option(help="JSONL with a field prompt; else the shipped prompts.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts a kind.")] = 3,
    max_new_tokens: Annotated[int, typer.Option(min=1)] = 128,
    repeats: Annotated[int, typer.Option(min=1)] = 3,
    threads: Annotated[int, typer.Option(min=0, help="Threads of torch; 0 leaves its own choice.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the rows here, as JSON lines.")] = None,
) -> None:
    """Measure every strategy, and transformers' own decoding, on the same prompts, in turn."""
    if threads:
        torch.set_num_threads(threads)
    texts = _from_file(prompts) if prompts else [(prompt.kind, prompt.text) for prompt in examples()]
    kinds = {kind: [text for own, text in texts if own == kind][:limit] for kind, _ in texts}
    models = load_pair(pair)
    console = Console()
    table = _measure(console, models, kinds, max_new_tokens, repeats)
    _show(console, table, f"{models.name}, {max_new_tokens} new tokens, {torch.get_num_threads()} threads")
    if out is not None:
        out.write_text("".join(row.model_dump_json() + "\n" for row in table), encoding="utf-8")


def _measure(
    console: Console, models: ModelPair, kinds: dict[str, list[str]], max_new_tokens: int, repeats: int
) -> list[Row]:
    contenders = ways(models)
    every: list[Runs] = []
    table: list[Row] = []
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("decoding", total=sum(map(len, kinds.values())) * len(contenders) * (repeats + 1))

        def one(text: str) -> Runs:
            ids = models.encode(text)
            return measure(
                contenders, ids, max_new_tokens=max_new_tokens, repeats=repeats, done=lambda: progress.advance(bar)
            )

        try:
            for kind, chosen in kinds.items():
                measured = [one(text) for text in chosen]
                every += measured
                table += rows(kind, measured)
        except KeyboardInterrupt:
            console.print("interrupted; what is done follows")
    return table + rows("all", every) if every else table


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


def _show(console: Console, table: list[Row], title: str) -> None:
    columns = ("way", "tokens/s", "× plain", "tokens/pass", "accepted", "host ms", "same text")
    for kind in dict.fromkeys(row.kind for row in table):
        shown = Table(*columns, title=f"{kind} ({title})", title_justify="left")
        for row in (row for row in table if row.kind == kind):
            cells = (row.tokens_per_iteration, row.acceptance_rate, row.host_ms)
            figures = ["–" if cell is None else f"{cell:.2f}" for cell in cells]
            shown.add_row(
                row.way,
                f"{row.tokens_per_second:.0f}",
                f"{row.speedup:.2f}",
                *figures,
                f"{row.equal}/{row.prompts}",
            )
        console.print(shown)
