"""Tokens an iteration of the strategies that need no draft, by kind of prompt: a count, the same on any machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean

from pydantic import BaseModel, ConfigDict

from speclab.bench.host_work import STRATEGIES
from speclab.drafters import Strategy
from speclab.engine.generate import generate
from speclab.models.pair import ModelPair


class YieldRow(BaseModel):
    """One kind of prompt: for each strategy the mean over its prompts of committed tokens / verification passes."""

    model_config = ConfigDict(frozen=True)

    kind: str
    prompts: int
    tokens_per_iteration: dict[str, float]


def yields(
    pair: ModelPair,
    prompts: Mapping[str, Sequence[str]],
    strategies: Mapping[str, Strategy] = STRATEGIES,
    *,
    max_new_tokens: int = 96,
    done: Callable[[], None] = lambda: None,
) -> Iterator[YieldRow]:
    """A row for each kind, when it is decoded: greedily, with tables that start cold unless a strategy carries its own.

    Args:
        pair: its target decodes; a draft is not called.
        prompts: texts by kind.
        strategies: by the name of their column; by default with trees of equal budget.
        max_new_tokens: the length of every text.
        done: called after each text.
    """
    for kind, texts in prompts.items():
        counted: dict[str, list[float]] = {name: [] for name in strategies}
        for text in texts:
            for name, strategy in strategies.items():
                result = generate(pair, strategy, text, max_new_tokens=max_new_tokens, stop_at_eos=False)
                counted[name].append(result.metrics.tokens_per_iteration)
                done()
        yield YieldRow(
            kind=kind, prompts=len(texts), tokens_per_iteration={name: mean(rates) for name, rates in counted.items()}
        )
