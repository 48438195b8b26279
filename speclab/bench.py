"""Compare methods on this machine, and see where the time of one iteration goes.

    frame = bench.measure(pair, bench.methods(pair), prompts, repeats=3)
    bench.report(frame, "bench.html")
    bench.where(pair, bench.methods(pair), prompts)

A method is a strategy, or arguments of transformers' `generate`. Every text is compared with the
target's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from copy import copy, deepcopy
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from speclab import __version__
from speclab.drafters import cost, from_str
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError
from speclab.prompts import Prompt, PromptInput, as_messages
from speclab.settings import SessionSettings
from speclab.trace.metrics import INTERVAL, drawn_again, loops
from speclab.views import template

if TYPE_CHECKING:
    from torch import Tensor

    from speclab.pair import ModelPair

__all__ = ["Method", "measure", "methods", "report", "summary", "where"]

Method = Strategy | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A strategy; arguments of transformers' `generate`; or several of them, and the fastest is measured."""
DRAFT = "draft"
"""Stands for the pair's draft model in arguments of `generate`."""
PLAIN = "plain, transformers"
"""The method that others are compared with."""
OWN_PLAIN = "plain"
"""speclab's own plain decoding: a strategy that is slower does not pay."""
USUAL = ("LinearSpeculation", "DynaTree", "DraftHead", "DDTree", "PromptLookup", "Goose")
"""Strategies that are compared by default."""
PARTS = ["tokens", "rows", "target", "passes", "draft", "python", "outside", "whole"]
"""What is known of an iteration, its times in ms."""
_OF_ASSISTANT = {
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
}
"""Arguments that transformers reads from the assistant's generation_config."""


def methods(pair: ModelPair) -> dict[str, Method]:
    """The usual strategies that the pair can run, and transformers' own decoding."""
    usual: dict[str, Method] = {PLAIN: {}}
    if pair.draft is not None:
        assisted: list[dict[str, Any]] = [{"assistant_model": DRAFT}]
        for count in (2, 3, 5):
            assisted.append({
                "assistant_model": DRAFT,
                "num_assistant_tokens": count,
                "num_assistant_tokens_schedule": "constant",
                "assistant_confidence_threshold": 0,
            })  # fmt: skip
        usual["assisted, transformers"] = assisted
    usual["prompt lookup, transformers"] = [
        {"prompt_lookup_num_tokens": count} for count in (3, 5, 10)
    ]
    usual[OWN_PLAIN] = from_str("Autoregressive")
    for name in USUAL:
        strategy = from_str(name)
        if not strategy.missing(pair.offer):
            usual[name] = strategy
    return usual


def measure(
    pair: ModelPair | str | Mapping[str, Any],
    methods: Mapping[str, Method],
    prompts: Sequence[PromptInput | Prompt],
    *,
    repeats: int = 3,
    max_new_tokens: int = 128,
    executor: Executor | None = None,
    timeout: float = 3600,
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
    | `arguments` | the settings of the method, with the number that "auto" took; of several, the fastest |
    | `tokens`, `seconds`, `tokens_per_second` | new tokens, from the call to the last token, prefill included |
    | `tokens_per_iteration` | committed per verification pass; of transformers, new tokens per pass of the target |
    | `same_text` | the text equals the target's own, from transformers' `generate` |
    | `loops` | the target's own text, of 64 new tokens or more, repeats itself (`trace.metrics.loops`) |
    | `models`, `machine` | the models and their forward passes; the machine |

    Args:
        pair: the models, or arguments of `load_pair` (a name or a mapping), with which each worker
            loads its own.
        executor: any `concurrent.futures` executor, such as Dask's `client.get_executor()`; one
            task per prompt. Give it the name of a pair: models are not sent to other processes.
        timeout: seconds that an executor may take for all prompts.
        progress: called with a sentence after each prompt.

    Raises:
        MeasurementError: there is nothing to measure, the pair has no draft model for a method, or
            the executor did not answer in time.
    """
    if not methods or not prompts or repeats < 1:
        raise MeasurementError(
            "There is nothing to measure: give methods, prompts, and at least one repeat."
        )
    task = partial(_measure_prompt, pair, dict(methods), repeats, max_new_tokens)
    run: Callable[..., Iterator[Any]] = map
    if executor is not None:
        run = partial(executor.map, timeout=timeout)
    frames: list[pd.DataFrame] = []
    try:
        for rows in run(task, list(enumerate(prompts, start=1))):
            frames.append(pd.DataFrame(rows))
            progress(f"{len(frames)} of {len(prompts)} prompts measured.")
    except TimeoutError:
        raise MeasurementError(
            f"The executor measured {len(frames)} of {len(prompts)} prompts in {timeout:g} seconds: "
            "see that it has workers, or set timeout."
        ) from None
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
    ids = _ids(pair, prompt)
    text = _by_transformers(pair, {}, ids, max_new_tokens).tokens
    constant = {"prompt": str(number), "kind": "", "loops": loops(text)} | _conditions(pair)
    if isinstance(prompt, Prompt):
        constant |= {"prompt": prompt.name, "kind": prompt.kind}
    calls = {}
    for name, method in methods.items():
        calls[name] = _fastest(pair, name, method, ids, max_new_tokens)
    names = list(calls)
    rows = []
    for repeat in range(repeats):
        turn = repeat % len(names)
        for name in names[turn:] + names[:turn]:
            call = calls[name]()
            row = {
                "method": name,
                "repeat": repeat,
                "arguments": call.arguments,
                "tokens": len(call.tokens),
                "seconds": call.seconds,
                "tokens_per_second": len(call.tokens) / call.seconds,
                "tokens_per_iteration": call.tokens_per_iteration,
                "same_text": call.tokens == text,
            }
            rows.append(row | constant)
    return rows


def _ids(pair: ModelPair, prompt: PromptInput | Prompt) -> list[int]:
    """Token ids; a shipped example is a question for a chat model, else a text to continue."""
    if not isinstance(prompt, Prompt):
        return pair.encode(prompt)
    if pair.chats:
        return pair.encode(as_messages(prompt.text))
    return pair.encode(prompt.text)


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
    if isinstance(method, Mapping):
        method = [method]
    for arguments in method:
        if arguments.get("assistant_model") == DRAFT and pair.draft is None:
            raise MeasurementError(
                f"{name!r} needs a draft model and {pair.name} has none: load one, or leave it out."
            )
        decode = partial(_by_transformers, pair, arguments, ids, max_new_tokens)
        passes = _passes(pair, decode)
        alternatives.append(partial(decode, passes=passes))
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

    used = repr(cost.with_node_budget(strategy, pair.fresh()))
    began = _now(pair)
    result = generate(pair, strategy, ids, max_new_tokens=max_new_tokens)
    seconds = _now(pair) - began
    if strategy.is_auto:
        used += " (auto)"
    return _Call(result.token_ids, seconds, used, result.metrics.tokens_per_iteration)


def _by_transformers(
    pair: ModelPair,
    arguments: Mapping[str, Any],
    ids: list[int],
    max_new_tokens: int,
    passes: int = 0,
) -> _Call:
    import torch

    model = pair.target.model
    options = dict(arguments)
    if options.get("assistant_model") == DRAFT and pair.draft is not None:
        # a copy with the same weights, whose generation_config is its own
        assistant = copy(pair.draft.model)
        assistant.generation_config = deepcopy(assistant.generation_config)
        for key in _OF_ASSISTANT & options.keys():
            setattr(assistant.generation_config, key, options.pop(key))
        options["assistant_model"] = assistant
    prompt = torch.tensor([ids], device=model.device)
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
    words = ", ".join([f"{key}={value}" for key, value in arguments.items()])
    if passes:
        return _Call(tokens, seconds, words, len(tokens) / passes)
    return _Call(tokens, seconds, words)


def _now(pair: ModelPair) -> float:
    """Seconds on the clock after the device has finished its work."""
    if pair.target.device.type == "cuda":
        import torch

        torch.cuda.synchronize(pair.target.device)
    return perf_counter()


@cache
def _load(*name: str, **arguments: Any) -> ModelPair:
    from speclab.pair import load_pair

    return load_pair(*name, **arguments)


def _loaded(models: ModelPair | str | Mapping[str, Any]) -> ModelPair:
    if isinstance(models, str):
        return _load(models)
    if isinstance(models, Mapping):
        return _load(**models)
    return models


def _conditions(pair: ModelPair) -> dict[str, str]:
    """The models and by which forward pass each runs, and the machine."""
    import torch
    import transformers

    from speclab.host import cores, processor

    passes = [f"{role} {runner.forward_name}" for role, runner in pair.runners.items()]
    machine = (
        f"{processor(pair.target.device)}, {torch.get_num_threads()} threads of {cores()} cores, "
        f"{pair.target.dtype}; torch {torch.__version__}, transformers {transformers.__version__}"
    )
    return {"models": f"{pair.name} ({', '.join(passes)})", "machine": machine}


# The report


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per method, fastest first.

    | column | meaning |
    |---|---|
    | `times_plain` | how many times as fast as `PLAIN`: the median over prompts of the ratio of medians |
    | `times_own_plain`, `low`, `high` | the same beside speclab's plain decoding, and a 95 % interval |
    | `tokens_per_iteration` | mean; of transformers, new tokens per pass of the target |
    | `tokens_per_second` | median of all calls |
    | `times_no_loops`, `tokens_no_loops` | `times_own_plain`, `tokens_per_iteration` of texts that do not loop |
    | `same_text`, `calls` | share of texts that are the target's own; number of calls |
    | `arguments` | the settings of the method |

    A missing base is replaced by the first method. The interval is a bootstrap over prompts; it is
    NaN below three prompts.
    """
    groups = frame.groupby("method", sort=False)
    calm = frame[~frame.loops]
    times = _ratios(frame, OWN_PLAIN)
    interval = _interval(times)
    table = pd.DataFrame({
        "times_plain": _ratios(frame, PLAIN).median(axis=1),
        "times_own_plain": times.median(axis=1),
        "low": interval.low,
        "high": interval.high,
        "tokens_per_iteration": groups.tokens_per_iteration.mean(),
        "tokens_per_second": groups.tokens_per_second.median(),
        "times_no_loops": times[calm.prompt.unique()].median(axis=1),
        "tokens_no_loops": calm.groupby("method").tokens_per_iteration.mean(),
        "same_text": groups.same_text.mean(),
        "calls": groups.size(),
        "arguments": groups.arguments.first(),
    })  # fmt: skip
    return table.sort_values("times_plain", ascending=False)


def _ratios(frame: pd.DataFrame, base: str) -> pd.DataFrame:
    """How many times as fast as `base`, or as the first method, each method is, by prompt."""
    groups = frame.groupby(["method", "prompt"], sort=False)
    speeds = groups.tokens_per_second.median().unstack("prompt")
    if base not in speeds.index:
        base = speeds.index[0]
    return speeds / speeds.loc[base]


def _interval(ratios: pd.DataFrame) -> pd.DataFrame:
    """95 % of the medians of prompts that are drawn again, with replacement (the bootstrap)."""
    ends = pd.DataFrame(np.nan, ratios.index, ["low", "high"])
    prompts = ratios.shape[1]
    if prompts >= 3:
        medians = np.median(ratios.to_numpy()[:, drawn_again(prompts)], axis=2)
        ends[:] = np.quantile(medians, INTERVAL, axis=1).T
    return ends


def report(frame: pd.DataFrame, path: str | Path) -> Path:
    """Writes a picture that opens offline: how many times as fast as plain decoding each method is,
    with the interval over prompts, and its row of the summary where the mouse is.
    """
    import plotly.express as px

    table = summary(frame).reset_index()
    title = (
        f"Times as fast as plain decoding in speclab, 95 % over {frame.prompt.nunique()} prompts of "
        f"{frame.repeat.nunique()} calls each<br><sup>{frame.models[0]}; {frame.machine[0]}; "
        f"speclab {__version__}, {datetime.now():%Y-%m-%d}</sup>"
    )
    figure = px.scatter(
        table,
        x="times_own_plain",
        y="method",
        error_x=table.high - table.times_own_plain,
        error_x_minus=table.times_own_plain - table.low,
        hover_data=list(table),
        template=template(),
        title=title,
    )
    figure.add_vline(x=1, line_dash="dot")
    figure.update_yaxes(autorange="reversed")
    figure.write_html(path, config={"showSendToCloud": False})
    return Path(path)


# One iteration


def where(
    pair: ModelPair,
    methods: Mapping[str, Method],
    prompts: Sequence[PromptInput | Prompt],
    *,
    max_new_tokens: int = 64,
) -> pd.DataFrame:
    """Where the time of one iteration goes: one row per method, means over all iterations, in ms.

    | column | meaning |
    |---|---|
    | `tokens` | committed per iteration |
    | `rows`, `target` | rows of the target pass, and its time |
    | `passes`, `each`, `draft` | draft passes, the time of one, and of all |
    | `python` | the rest of the phases: trees, acceptance, learning |
    | `outside` | before, between and after the phases |
    | `whole` | the iteration; of transformers with its share of the prefill |
    | `limit` | tokens in the time of one plain pass, if the passes alone took time |
    | `reached` | tokens in the time of one plain pass |
    """
    frames = []
    for name, method in methods.items():
        for prompt in prompts:
            ids = _ids(pair, prompt)
            decode = _fastest(pair, name, method, ids, max_new_tokens)
            if isinstance(method, Strategy):
                frames.append(pd.DataFrame(_iterations(pair, method, ids, max_new_tokens)))
            else:
                call = decode()
                tokens = call.tokens_per_iteration
                whole = 1e3 * call.seconds * tokens / len(call.tokens)
                frames.append(pd.DataFrame({"tokens": [tokens], "whole": [whole]}))
            frames[-1]["method"] = name
    means = pd.concat(frames).groupby("method", sort=False).mean()
    table = means.reindex(columns=PARTS)
    plain_pass = table.target.get(OWN_PLAIN, np.nan)
    table.insert(4, "each", table.draft / table.passes)
    table["limit"] = table.tokens * plain_pass / (table.target + table.draft)
    table["reached"] = table.tokens * plain_pass / table.whole
    return table


def _iterations(
    pair: ModelPair, strategy: Strategy, ids: list[int], max_new_tokens: int
) -> Iterator[dict[str, float]]:
    from speclab.engine.decode import iterate, runners, start

    settings = SessionSettings(max_new_tokens=max_new_tokens)
    decoding = start(pair.fresh(), strategy, ids, settings)
    spent = defaultdict[str, float](float)

    def timed(what: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        began = _now(pair)
        answer = call(*arguments, **options)
        spent[what] += _now(pair) - began
        return answer

    for source in runners(decoding.pair):
        part = "draft"
        passes = ["after_text", "after_nodes"]
        if source is decoding.pair.target:
            part = "target"
            passes = ["logits"]
        for name in passes:
            setattr(source, name, partial(timed, part, getattr(source, name)))
    while not decoding.finished:
        spent.clear()
        began = _now(pair)
        iteration = iterate(decoding)
        whole = _now(pair) - began
        phases = sum(iteration.watch.phase_seconds.values())
        yield {
            "tokens": iteration.counts.committed,
            "rows": len(iteration.draft.tree),
            "target": 1e3 * spent["target"],
            "passes": iteration.counts.draft_calls,
            "draft": 1e3 * spent["draft"],
            "python": 1e3 * (phases - sum(spent.values())),
            "outside": 1e3 * (whole - phases),
            "whole": 1e3 * whole,
        }


def __dir__() -> list[str]:
    return __all__
