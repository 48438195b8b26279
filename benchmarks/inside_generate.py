"""Ours beside theirs, all inside transformers' `model.generate`: plain, assisted, prompt lookup, and each strategy.

Every method decodes the same prompts greedily, in turn, round after round, so that what slows the machine down slows
all of them; with one thread on a CPU it is the processor's time that counts. A method's time stands against plain
decoding's of the same prompt and round; medians are shown. Texts are compared with plain decoding's, and what a
callable prepares once is prepared before the clock starts.

    python benchmarks/inside_generate.py --pair mini
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from time import perf_counter, process_time
from typing import Annotated, Any

import torch
import typer
from common import Out, Row, Threads, show, write
from rich.progress import track
from torch import Tensor

import speclab
from speclab.models.pair import ModelPair

app = typer.Typer(add_completion=False)
Method = Mapping[str, Any]
"""What `generate` is given beside the prompt."""


def methods(pair: ModelPair) -> Iterator[tuple[str, Method]]:
    """The library's own ways that the pair allows, then every strategy: with the draft model, or with a head."""
    yield "generate", {}
    if pair.draft is not None:
        yield "generate, assistant_model", {"assistant_model": pair.draft.model}
    yield "generate, prompt_lookup_num_tokens=10", {"prompt_lookup_num_tokens": 10}
    for name, kind in speclab.strategies().items():
        strategy = kind()
        if strategy.by_hand or len(pair.heads) < strategy.heads_needed:
            continue
        draft: Any = pair.heads[: strategy.heads_needed or 1]
        if pair.draft is not None and not strategy.heads_needed:
            draft = pair.draft
        with_what = f", {draft.name if draft is pair.draft else 'head'}" if strategy.needs_draft else ""
        yield f"speclab.{name}(){with_what}", {"custom_generate": speclab.custom_generate(strategy, draft)}


def prompts(pair: ModelPair, limit: int) -> list[Tensor]:
    """Ids `[1, L]` of one shipped prompt of each kind, `limit` of them at most."""
    shipped = speclab.prompts.examples(chat=pair.chats)
    of_kind = {prompt.kind: prompt.text for prompt in reversed(shipped)}
    texts = [of_kind[kind] for kind in speclab.prompts.kinds(chat=pair.chats)][:limit]
    asked = [speclab.prompts.as_messages(text) if pair.chats else text for text in texts]
    return [torch.tensor([pair.encode(prompt)], device=pair.target.device) for prompt in asked]


def clock_for(device: torch.device) -> Callable[[], float]:
    """The processor's own time where one thread does all the work, for others take no part in it; else the wall's."""
    return process_time if device.type == "cpu" and torch.get_num_threads() == 1 else perf_counter


def timed(clock: Callable[[], float], run: Callable[[], Tensor]) -> tuple[float, list[int]]:
    """Seconds, and the ids that came back."""
    began = clock()
    text = run()[0].tolist()  # waits for the device
    return clock() - began, text


def measure(pair: ModelPair, model: Any, tokens: int, rounds: int, limit: int) -> list[Row]:
    """A row for each method."""
    ways, texts, clock = dict(methods(pair)), prompts(pair, limit), clock_for(pair.target.device)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    equal = dict.fromkeys(ways, 0)
    for ids in track(texts, description="once before the clock starts"):
        for way in ways.values():
            generate(model, ids, 8, way)
    for number in track(range(rounds * len(texts)), description="rounds"):
        asked = partial(generate, model, texts[number % len(texts)], tokens)
        found = {name: timed(clock, partial(asked, way)) for name, way in ways.items()}
        for name, (spent, text) in found.items():
            seconds[name].append(spent)
            equal[name] += text == found["generate"][1]
    plain = seconds["generate"]
    return [
        {
            "method": name,
            "seconds a text": median(times),
            "× generate": median(base / own for base, own in zip(plain, times, strict=True)),
            "equal texts": f"{equal[name]} of {len(times)}",
        }
        for name, times in seconds.items()
    ]


def generate(model: Any, ids: Tensor, tokens: int, way: Method) -> Tensor:
    """Greedy, and no text ends before its tokens are there."""
    mask = torch.ones_like(ids)
    text: Tensor = model.generate(
        ids, attention_mask=mask, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0, **way
    )
    return text


@app.command()
def main(
    pair: Annotated[str, typer.Option(help="A preset: mini, or smollm2 where it was fetched.")] = "mini",
    tokens: Annotated[int, typer.Option(min=8, help="New tokens of each text.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds over all prompts.")] = 3,
    limit: Annotated[int, typer.Option(min=1, help="Prompts, one of each kind.")] = 4,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Times and compares, and prints a table."""
    if threads:
        torch.set_num_threads(threads)
    loaded = speclab.load_pair(pair)
    model = loaded.target.model
    rows = measure(loaded, model, tokens, rounds, limit)
    show(f"{pair}, {tokens} new tokens, greedy, {torch.get_num_threads()} threads, {loaded.target.device}", rows)
    write(out, rows)


if __name__ == "__main__":
    app()
