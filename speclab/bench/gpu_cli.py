"""`speclab bench gpu`: how near decoding comes to what the machine allows, with random weights of real shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from speclab.bench.gpu import ROWS, Bench, the_device
from speclab.bench.gpu_rows import FloorRow, SpeedRow, VerifyRow, WorkRow
from speclab.bench.gpu_shapes import SHAPES, random_pair, shape
from speclab.errors import SettingsError
from speclab.models.loading import parse_dtype
from speclab.trace.records import PHASES


def gpu(
    shape_name: Annotated[str, typer.Option("--shape", help=f"Models: {', '.join(SHAPES)}.")] = "pythia",
    device: Annotated[str, typer.Option(help="cuda, cuda:1, …; cpu for a try with --shape tiny.")] = "cuda",
    dtype: Annotated[str | None, typer.Option(help="float32, float16, bfloat16; else the shape's own.")] = None,
    prefix: Annotated[int, typer.Option(min=1, help="Entries in the cache behind which passes are timed.")] = 256,
    tokens: Annotated[int, typer.Option(min=2, help="New tokens of every decoding.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Every figure is a median of so many.")] = 10,
    acceptance: Annotated[
        list[float] | None, typer.Option(help="Modelled: how often the draft's first guess is right; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the rows here, as JSON lines.")] = None,
) -> None:
    """Time passes of random weights against the memory's floor, and decoding under modelled acceptance."""
    chosen, place, shares = shape(shape_name), the_device(device), acceptance or [0.6, 0.8]
    if not all(0 < share < 1 for share in shares):
        raise SettingsError("An acceptance lies between 0 and 1, both excluded: try --acceptance 0.7.")
    context = int(chosen.target["max_position_embeddings"])
    if prefix + tokens + max(ROWS) > context:
        raise SettingsError(
            f"A prefix of {prefix}, {tokens} new tokens and {max(ROWS)} rows exceed the context, {context}: take less."
        )
    console = Console()
    bench = Bench(random_pair(chosen, place, parse_dtype(dtype)), shape_name, prefix, rounds)
    floor = bench.floor()
    console.print(floor_table(floor))
    verified = list(bench.verification())
    console.print(verify_table(verified))
    speeds = []
    for share in shares:
        found = list(bench.speed(share, tokens))
        console.print(*speed_tables(found))
        speeds += found
    worked = list(bench.work(shares[0], tokens)) if place.type == "cuda" else []
    if worked:
        console.print(work_table(worked))
    console.print("Weights are random and agreement is modelled, so no text is meant; all times were measured.")
    _write(out, [floor, *verified, *speeds, *worked])


def floor_table(row: FloorRow) -> Table:
    """Plain decoding beside the memory's floor."""
    title = f"Plain decoding behind {row.prefix} entries: {row.shape}, {row.dtype}, {row.device}, {row.forward}"
    shown = _table(title, "GB a token", "GB/s by a copy", "floor ms", "measured ms", "of the floor reached")
    figures = (row.gigabytes, row.gigabytes_a_second, row.floor_ms, row.token_ms)
    shown.add_row(*(f"{figure:.3g}" for figure in figures), f"{row.reached:.0%}")
    return shown


def verify_table(rows: Sequence[VerifyRow]) -> Table:
    """Passes by their rows."""
    shown = _table("A pass of so many rows", *(f"{row.rows}" for row in rows))
    shown.add_row(*(f"{row.pass_ms:.2f} ms" for row in rows))
    shown.add_row(*(f"{row.ratio:.2f} ×" for row in rows))
    return shown


def speed_tables(rows: Sequence[SpeedRow]) -> Iterator[Table]:
    """Ways to decode, and where the time of their iterations goes."""
    title = f"Modelled acceptance, measured time: the first guess is right {rows[0].acceptance:.0%} of the time"
    shown = _table(title, "way", "nodes", "draft calls", "tok/pass", "tok/s", "× plain")
    for row in rows:
        figures = (f"{row.nodes:.1f}", f"{row.draft_calls:.1f}", f"{row.tokens_per_iteration:.2f}")
        shown.add_row(row.way, *figures, f"{row.tokens_a_second:.0f}", f"{row.speedup:.2f}")
    yield shown
    shown = _table("… milliseconds an iteration, by phase", "way", *PHASES)
    for row in rows:
        shown.add_row(row.way, *(f"{row.milliseconds[name]:.2f}" for name in PHASES))
    yield shown


def work_table(rows: Sequence[WorkRow]) -> Table:
    """What an iteration asks of host and device."""
    title = "An iteration: calls by the profiler's count, time without it"
    shown = _table(title, "way", "waits", "kernels", "replays", "copies", "device ms", "iteration ms", "host alone")
    for row in rows:
        calls = (f"{count:.1f}" for count in (row.waits, row.kernels, row.replays, row.copies))
        shown.add_row(row.way, *calls, f"{row.device_ms:.2f}", f"{row.iteration_ms:.2f}", f"{row.host:.0%}")
    return shown


def _table(title: str, *columns: str) -> Table:
    shown = Table(title=title, title_justify="left", box=None)
    for column in columns:
        shown.add_column(column, justify="left" if column == "way" else "right")
    return shown


def _write(out: Path | None, rows: Iterable[BaseModel]) -> None:
    if out is not None:
        out.write_text("".join(f"{row.model_dump_json()}\n" for row in rows), encoding="utf-8")
