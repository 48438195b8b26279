"""Compare methods on this machine.

    frame = bench.measure(pair, bench.methods(pair), prompts, repeats=3)
    bench.report(frame, "bench.html")

A method is a strategy, or arguments of transformers' `generate`. Every text is compared with the
target's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import cache, partial
from html import escape
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from speclab import __version__
from speclab.drafters import cost
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError
from speclab.files import write_whole
from speclab.prompts import Prompt, PromptInput, as_messages
from speclab.views import template

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from torch import Tensor
    from transformers import PreTrainedModel

    from speclab.pair import ModelPair

__all__ = [
    "COLUMNS",
    "Method",
    "measure",
    "methods",
    "report",
    "summary",
    "verdict",
]

Method = Strategy | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A strategy; arguments of transformers' `generate`; or several of them, and the fastest is measured."""
DRAFT = "draft"
"""Stands for the pair's draft model in arguments of `generate`."""
PLAIN = "plain, transformers"
"""The method that others are compared with."""
OWN_PLAIN = "plain"
"""speclab's own plain decoding: a strategy that is slower does not pay."""
COLUMNS = (
    "method", "runs_in", "prompt", "kind", "repeat", "arguments", "tokens", "seconds",
    "tokens_per_second", "tokens_per_iteration", "same_text", "models", "machine",
)  # fmt: skip
RESAMPLED = 2000
"""Draws of the prompts for an interval."""
_OF_ASSISTANT = {
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
}
"""Arguments that transformers reads from the assistant's generation_config."""
_one_at_a_time = Lock()


def methods(pair: ModelPair) -> dict[str, Method]:
    """The usual strategies that the pair can run, and transformers' own decoding."""
    from speclab import (
        Autoregressive,
        DDTree,
        DraftHead,
        DynaTree,
        Goose,
        LinearSpeculation,
        PromptLookup,
    )

    chosen: dict[str, Method] = {PLAIN: {}, OWN_PLAIN: Autoregressive()}
    if pair.draft is not None:
        assisted = [
            {"num_assistant_tokens": count, "num_assistant_tokens_schedule": "constant"}
            for count in (2, 3, 5)
        ]
        choices = [
            {},
            *assisted,
            *[{**each, "assistant_confidence_threshold": 0} for each in assisted],
        ]
        chosen["assisted, transformers"] = [{"assistant_model": DRAFT, **each} for each in choices]
        chosen |= {"chain": LinearSpeculation(), "DynaTree": DynaTree()}
    if pair.heads:
        chosen["draft head"] = DraftHead()
    if pair.block_heads:
        chosen["block tree"] = DDTree()
    chosen["prompt lookup, transformers"] = [
        {"prompt_lookup_num_tokens": count} for count in (3, 5, 10)
    ]
    return chosen | {"prompt lookup": PromptLookup(), "Goose": Goose()}


def measure(
    pair: ModelPair | str | Mapping[str, Any],
    methods: Mapping[str, Method],
    prompts: Sequence[PromptInput | Prompt],
    *,
    repeats: int = 3,
    max_new_tokens: int = 128,
    executor: Executor | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Decodes each prompt greedily with each method in turn, `repeats` times; one row per timed
    call.

    Every method decodes the prompt once untimed. Then the order of the methods rotates from round
    to round, so that a machine that slows down slows all of them. Nothing streams and no hook is
    set while the clock runs.

    | column | meaning |
    |---|---|
    | `method`, `prompt`, `kind`, `repeat` | which call; `prompt` is its name or number |
    | `runs_in` | "speclab" or "transformers" |
    | `arguments` | the settings of the method, with the number that "auto" took; of several, the fastest |
    | `tokens`, `seconds`, `tokens_per_second` | new tokens, from the call to the last token, prefill included |
    | `tokens_per_iteration` | committed per verification pass; of transformers, new tokens per pass of the target |
    | `same_text` | the text equals the target's own, from transformers' `generate` |
    | `models`, `machine` | the models and their forward passes; the machine |

    Args:
        pair: the models, or arguments of `load_pair` (a name or a mapping), with which each worker
            loads its own.
        executor: any `concurrent.futures` executor, such as Dask's `client.get_executor()`; one
            task per prompt.
        progress: called with a sentence after each prompt.

    Raises:
        MeasurementError: there is nothing to measure, or the pair has no draft model for a method.
    """
    if not methods or not prompts or repeats < 1:
        raise MeasurementError(
            "There is nothing to measure: give methods, prompts, and at least one repeat."
        )
    in_memory = not isinstance(pair, str | Mapping)
    if in_memory and executor is not None and not isinstance(executor, ThreadPoolExecutor):
        raise MeasurementError(
            "Models in memory cannot be sent to other processes: give the name of a pair or "
            "arguments of load_pair, such as measure('mini', …), and each worker loads its own."
        )
    task = partial(_measure_prompt, pair, dict(methods), repeats, max_new_tokens)
    numbered = list(enumerate(prompts, start=1))
    results: Iterator[list[dict[str, Any]]] = map(task, numbered)
    if executor is not None:
        futures = [executor.submit(task, each) for each in numbered]
        results = (future.result() for future in futures)
    frames = []
    for number, rows in enumerate(results, start=1):
        frames.append(pd.DataFrame(rows, columns=list(COLUMNS)))
        progress(f"{number} of {len(prompts)} prompts measured.")
    return pd.concat(frames, ignore_index=True)


def _measure_prompt(
    models: ModelPair | str | Mapping[str, Any],
    methods: dict[str, Method],
    repeats: int,
    max_new_tokens: int,
    numbered: tuple[int, PromptInput | Prompt],
) -> list[dict[str, Any]]:
    number, prompt = numbered
    pair = _loaded(models)
    if not isinstance(prompt, Prompt):
        ids, _ = pair.read_prompt(prompt)
    else:  # a shipped example: a question for a chat model, else a text to continue
        ids, _ = pair.read_prompt(as_messages(prompt.text) if pair.chats else prompt.text)
    own = _by_transformers(pair, {}, ids, max_new_tokens).tokens
    where = {"models": _models(pair), "machine": _machine(pair)}
    about = (prompt.name, prompt.kind) if isinstance(prompt, Prompt) else (str(number), "")
    calls: dict[str, Callable[[], _Call]] = {}
    for name, method in methods.items():
        calls[name] = _fastest(pair, name, method, ids, max_new_tokens)
    rows = []
    for repeat in range(repeats):
        names = list(calls)
        turn = repeat % len(names)
        for name in [*names[turn:], *names[:turn]]:
            call = calls[name]()
            rows.append({
                "method": name,
                "runs_in": "speclab" if isinstance(methods[name], Strategy) else "transformers",
                "prompt": about[0],
                "kind": about[1],
                "repeat": repeat,
                "arguments": call.arguments,
                "tokens": len(call.tokens),
                "seconds": call.seconds,
                "tokens_per_second": len(call.tokens) / call.seconds,
                "tokens_per_iteration": call.tokens_per_iteration,
                "same_text": call.tokens == own,
                **where,
            })  # fmt: skip
    return rows


class _Call(NamedTuple):
    tokens: list[int]
    seconds: float
    arguments: str
    tokens_per_iteration: float = float("nan")


def _fastest(
    pair: ModelPair, name: str, method: Method, ids: list[int], max_new_tokens: int
) -> Callable[[], _Call]:
    """A timed call of a method; of several alternatives, each has run twice and the fastest second run is chosen."""
    if isinstance(method, Strategy):
        decode = partial(_by_speclab, pair, method, ids, max_new_tokens)
        decode()
        return decode
    alternatives = []
    for arguments in [method] if isinstance(method, Mapping) else method:
        if arguments.get("assistant_model") == DRAFT and pair.draft is None:
            raise MeasurementError(
                f"{name!r} needs a draft model and {pair.name} has none: load one, or leave it out."
            )
        decode = partial(_by_transformers, pair, arguments, ids, max_new_tokens)
        passes = _passes(pair, decode)
        alternatives.append(partial(decode, passes=passes))
    if len(alternatives) == 1:
        return alternatives[0]
    return min(alternatives, key=lambda decode: decode().seconds)


def _passes(pair: ModelPair, decode: Callable[[], _Call]) -> int:
    """Passes of the target in one untimed call."""
    counted: list[None] = []
    handle = pair.target.model.register_forward_hook(lambda *_: counted.append(None))
    try:
        decode()
    finally:
        handle.remove()
    return len(counted)


def _by_speclab(pair: ModelPair, strategy: Strategy, ids: list[int], max_new_tokens: int) -> _Call:
    from speclab.engine.generate import generate

    began = _now(pair)
    result = generate(pair, strategy, ids, max_new_tokens=max_new_tokens)
    seconds = _now(pair) - began
    used = repr(cost.with_node_budget(strategy, pair.target))
    measured = " (auto)" if getattr(strategy, "node_budget", None) == "auto" else ""
    return _Call(result.token_ids, seconds, used + measured, result.metrics.tokens_per_iteration)


def _by_transformers(
    pair: ModelPair,
    arguments: Mapping[str, Any],
    ids: list[int],
    max_new_tokens: int,
    passes: int = 0,
) -> _Call:
    import torch

    model = pair.target.model
    options = {key: value for key, value in arguments.items() if key not in _OF_ASSISTANT}
    assistant = None
    if options.get("assistant_model") == DRAFT and pair.draft is not None:
        assistant = options["assistant_model"] = pair.draft.model
    prompt = torch.tensor([ids], device=model.device)
    with _assistant(assistant, {key: arguments[key] for key in arguments if key in _OF_ASSISTANT}):
        began = _now(pair)
        output: Tensor = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            **options,
        )
        seconds = _now(pair) - began
    tokens = output[0, len(ids) :].tolist()
    words = ", ".join(f"{key}={arguments[key]}" for key in arguments)
    return _Call(tokens, seconds, words, len(tokens) / passes if passes else float("nan"))


@contextmanager
def _assistant(draft: PreTrainedModel | None, changes: Mapping[str, Any]) -> Iterator[None]:
    """Changes the draft's generation_config for one call, which transformers' heuristic schedule also modifies."""
    if draft is None:
        yield
        return
    with _one_at_a_time:  # threads may share the draft
        before = draft.generation_config
        draft.generation_config = type(before).from_dict({**before.to_dict(), **changes})
        try:
            yield
        finally:
            draft.generation_config = before


def _now(pair: ModelPair) -> float:
    """Seconds on the clock after the device has finished its work."""
    if pair.target.device.type == "cuda":
        import torch

        torch.cuda.synchronize(pair.target.device)
    return perf_counter()


@cache
def _loaded_once(arguments: tuple[tuple[str, Any], ...]) -> ModelPair:
    from speclab.pair import load_pair

    return load_pair(**dict(arguments))


def _loaded(models: ModelPair | str | Mapping[str, Any]) -> ModelPair:
    if isinstance(models, str):
        return _loaded_once((("name", models),))
    return _loaded_once(tuple(models.items())) if isinstance(models, Mapping) else models


def _models(pair: ModelPair) -> str:
    """The pair, and by which forward pass each of its models runs."""
    passes = [f"{role} {runner.forward_name}" for role, runner in pair.runners.items()]
    return f"{pair.name} ({', '.join(passes)})"


def _machine(pair: ModelPair) -> str:
    import torch

    from speclab.host import cores, processor, versions

    threads = f"{torch.get_num_threads()} threads of {cores()} cores"
    used = ", ".join(
        f"{name} {version}" for name, version in versions("torch", "transformers").items()
    )
    dtype = str(pair.target.dtype).removeprefix("torch.")
    return f"{processor(pair.target.device)}, {threads}, {dtype}; {used}"


# The report


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per method, fastest first.

    | column | meaning |
    |---|---|
    | `times_plain` | how many times as fast as `PLAIN`: the median over prompts of the ratio of medians |
    | `times_own_plain`, `low`, `high` | the same beside speclab's plain decoding, and a 95 % interval |
    | `tokens_per_iteration` | mean; of transformers, new tokens per pass of the target |
    | `median`, `lower_quartile`, `upper_quartile` | tokens per second of all calls |
    | `same_text`, `calls` | share of texts that are the target's own; number of calls |

    A missing base is replaced by the first method. The interval is a bootstrap over prompts; it is
    NaN below three prompts.
    """
    groups = frame.groupby("method", sort=False)
    speed = groups.tokens_per_second
    table = pd.DataFrame({"times_plain": _ratios(frame, PLAIN).median(axis=1)})
    own = _ratios(frame, OWN_PLAIN)
    table["times_own_plain"] = own.median(axis=1)
    table["low"], table["high"] = _interval(own)
    table["tokens_per_iteration"] = groups.tokens_per_iteration.mean()
    table["median"] = speed.median()
    table["lower_quartile"] = speed.quantile(0.25)
    table["upper_quartile"] = speed.quantile(0.75)
    table["same_text"] = groups.same_text.mean()
    table["calls"] = groups.size()
    return table.sort_values("times_plain", ascending=False)


def _ratios(frame: pd.DataFrame, base: str) -> pd.DataFrame:
    """How many times as fast as `base`, or as the first method, each method is, by prompt."""
    groups = frame.groupby(["method", "prompt"], sort=False)
    speeds = groups.tokens_per_second.median().unstack("prompt")
    return speeds / speeds.loc[base if base in speeds.index else speeds.index[0]]


def _interval(ratios: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """95 % of the medians of prompts that are drawn again, with replacement (the bootstrap)."""
    methods, prompts = ratios.shape
    if prompts < 3:
        missing = np.full(methods, np.nan)
        return missing, missing
    drawn = np.random.default_rng(0).integers(prompts, size=(RESAMPLED, prompts))
    medians = np.median(ratios.to_numpy()[:, drawn], axis=2)
    low, high = np.quantile(medians, (0.025, 0.975), axis=1)
    return low, high


def verdict(frame: pd.DataFrame) -> str:
    """Which strategies are slower here than speclab's plain decoding, in a sentence; empty without it."""
    if OWN_PLAIN not in set(frame.method):
        return ""
    times = _ratios(frame, OWN_PLAIN).median(axis=1)
    slower = times[[name for name in times.index if not _of_transformers(frame, name)]]
    slower = slower[slower < 1].sort_values()
    if slower.empty:
        return "Every strategy is at least as fast as speclab's plain decoding."
    listed = ", ".join(f"{name} ({share:.2f} times)" for name, share in slower.items())
    return f"Slower here than speclab's plain decoding, so they do not pay: {listed}."


def _of_transformers(frame: pd.DataFrame, name: object) -> bool:
    return bool(frame[frame.method == name].runs_in.eq("transformers").all())


def report(frame: pd.DataFrame, path: str | Path) -> Path:
    """Writes one HTML page that works offline: ratios with intervals, the settings, models and
    machines.

    Raises:
        MeasurementError: the frame has no calls.
        TraceError: the file cannot be written.
    """
    if not len(frame):
        raise MeasurementError("There is nothing to report: the frame has no calls.")
    table = summary(frame)
    different = frame[~frame.same_text].groupby("method", sort=False).prompt.nunique()
    texts = "Every text equals the target's own."
    if len(different):
        counts = ", ".join(f"{name}: {count}" for name, count in different.items())
        texts = f"Prompts whose text differs from the target's own, by method: {counts}."
    columns = (["method", "arguments"], ["prompt", "kind"], ["models", "machine"])
    about = (
        f"{frame.prompt.nunique()} prompts, {frame.repeat.nunique()} timed calls each after an "
        f"untimed one, greedy, at most {int(frame.tokens.max())} new tokens, methods in turn; "
        f"speclab {__version__}, {datetime.now():%Y-%m-%d}. Of several arguments of transformers, "
        "the fastest of one timed call on the same prompt is measured, which favours transformers; "
        "strategies of speclab run with the settings below."
    )
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>speclab bench</title>",
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
        "table{border-collapse:collapse}td,th{padding:2px 10px;text-align:right;border:0}"
        "th:first-child,td:first-child{text-align:left}</style>",
        f"<h1>Methods side by side</h1><p>{about}</p>",
        *[f"<p>{escape(sentence, quote=False)}</p>" for sentence in (texts, verdict(frame))],
        _figure(table).to_html(full_html=False, config={"displayModeBar": False}),
        table.to_html(float_format=lambda value: f"{value:.3g}", na_rep="–", border=0),
        *[frame[names].drop_duplicates().to_html(index=False, border=0) for names in columns],
        "</html>",
    ]
    return write_whole(path, "\n".join(parts).encode())


def _figure(table: pd.DataFrame) -> Figure:
    """Times as fast as speclab's plain decoding, with the interval over prompts."""
    import plotly.graph_objects as go

    times = table.times_own_plain
    figure = go.Figure(
        go.Scatter(
            x=times,
            y=table.index,
            mode="markers",
            marker_size=11,
            error_x={"array": table.high - times, "arrayminus": times - table.low},
        )
    )
    figure.add_vline(x=1, line_dash="dot")
    figure.update_layout(
        template=template(),
        height=120 + 34 * len(table),
        xaxis_title="times as fast as plain decoding in speclab, 95 % over prompts",
        xaxis_rangemode="tozero",
        yaxis={"autorange": "reversed", "automargin": True},
    )
    return figure


def __dir__() -> list[str]:
    return __all__
