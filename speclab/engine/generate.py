"""`generate`: the decoding loop at full speed, without records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Never

from speclab.display import line, short
from speclab.drafters import cost
from speclab.drafters.base import Strategy, checked
from speclab.engine.decode import iterate, start
from speclab.engine.exactness import Checker
from speclab.pair import ModelPair, checked_pair
from speclab.prompts import PromptInput
from speclab.settings import SessionSettings
from speclab.trace.metrics import Counts, Metrics


@dataclass(frozen=True)
class Generation:
    """Ids without the prompt, their text, the metrics, and why the text ended."""

    token_ids: list[int]
    text: str
    metrics: Metrics
    finished: str

    def __repr__(self) -> str:
        return line(
            "Generation",
            tokens=len(self.token_ids),
            iterations=self.metrics.iterations,
            finished=self.finished,
            text=short(self.text),
        )


def generate(
    pair: ModelPair,
    strategy: Strategy,
    prompt: PromptInput,
    *,
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    stop_at_eos: bool = True,
    check: bool = False,
    template: Mapping[str, Any] | None = None,
    **misspelt: Never,
) -> Generation:
    """Decodes `prompt` (text, token ids or messages) with `strategy`; settings are those of a
    `Session`.

    Raises:
        SpeclabError: the prompt, a setting or the pair does not fit.
    """
    chosen = SessionSettings(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop_at_eos=stop_at_eos,
        check=check,
        **misspelt,
    )
    strategy = cost.with_node_budget(checked(strategy), checked_pair(pair))
    began = perf_counter()
    decoding = start(pair.fresh(), strategy, pair.read_prompt(prompt, template)[0], chosen)
    ttft = perf_counter() - began
    prefill_calls = decoding.pair.target.calls
    counts = Counts()
    checker = None
    if chosen.check:
        checker = Checker(decoding)
        checker.compare(decoding.prompt_length)
    while not decoding.finished:
        committed = len(decoding.tokens)
        iteration = iterate(decoding)
        if checker is not None:
            checker.compare(committed, iteration.rule)
        counts = counts + iteration.counts
    prompt_ids = decoding.tokens[: decoding.prompt_length]
    ids = decoding.tokens[decoding.prompt_length :]
    metrics = Metrics(counts, ttft, prefill_calls)
    return Generation(ids, pair.continuation(prompt_ids, ids), metrics, decoding.finished)
