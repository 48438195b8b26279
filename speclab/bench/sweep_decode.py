"""What a sweep measures by default: prompts decoded with a strategy, on models that each worker loads once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, NoDraftError, PromptError, SpeclabError
from speclab.prompts import PromptInput
from speclab.trace.metrics import Counts, Metrics

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

TIMED = frozenset({"throughput", "ttft", "tpot"})
"""Figures that a clock gives; the others are counts, the same on any machine."""
LESS_IS_BETTER = frozenset({"ttft", "tpot", "iterations", "target_calls", "draft_calls"})


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a strategy: figures by name, of so many prompts, and a digest of the text decoded."""

    figures: Mapping[str, float]
    prompts: int = 0
    text: str = ""


@dataclass(frozen=True)
class Decode:
    """Decodes every prompt with a strategy; the figures are those of all prompts taken together.

    Counts of all prompts are added up before a figure is worked out, so a long text weighs more than a short one; a
    figure by the clock is the median over `repeats` rounds, after a warm-up, and `…_spread` its (largest - least) /
    median. Tables that a strategy carries from text to text start empty with each round.

    Args:
        pair: what `load_pair` is to load in each worker, by its arguments; or a pair in memory, where workers share it.
        prompts: texts, token ids, or messages.
        max_new_tokens: of each.
        repeats: rounds.
        threads: of torch in each worker; 0 leaves its own choice.
        name: what the prompts are called.
    """

    pair: Mapping[str, Any] | ModelPair
    prompts: Sequence[PromptInput]
    max_new_tokens: int = 128
    repeats: int = 1
    threads: int = 0
    name: str = "prompts"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def shipped(cls, *, repeats: int = 1, threads: int = 0) -> Decode:
        """The shipped prompts, with the mini family."""
        from speclab.prompts import examples

        return cls({}, [prompt.text for prompt in examples()], repeats=repeats, threads=threads, name="shipped")

    def __call__(self, strategy: Strategy) -> Measured:
        """Decodes all prompts `repeats` times, and once more before where the clock counts.

        Raises:
            MeasurementError: the models cannot be loaded, or are not what this strategy needs.
        """
        try:
            pair = _loaded(self.pair, self.threads) if isinstance(self.pair, Mapping) else self.pair
        except SpeclabError as error:
            raise MeasurementError(str(error)) from None
        if self.repeats > 1:
            self._round(pair, strategy, self.prompts[:1])
        rounds = [self._round(pair, strategy, self.prompts) for _ in range(self.repeats)]
        figures = {name: [metrics.as_dict()[name] for metrics, _ in rounds] for name in rounds[0][0].as_dict()}
        medians = {name: float(median(values)) for name, values in figures.items()}
        if self.repeats > 1:
            medians |= {f"{name}_spread": _spread(figures[name]) for name in sorted(TIMED)}
        return Measured(medians, len(self.prompts), rounds[0][1])

    @property
    def figures(self) -> list[str]:
        """The names of what is measured."""
        return [*Metrics(Counts(), 0.0, 0).as_dict(), *(f"{name}_spread" for name in sorted(TIMED) if self.repeats > 1)]

    def describe(self) -> dict[str, Any]:
        """What decides the figures, for records. Not the threads: a sweep may go on with others."""
        return {
            "pair": dict(self.pair) if isinstance(self.pair, Mapping) else self.pair.describe(),
            "workload": self.name, "prompts": len(self.prompts), "digest": _digest(map(str, self.prompts)),
            "max_new_tokens": self.max_new_tokens, "repeats": self.repeats, "settings": dict(self.settings),
        }  # fmt: skip

    def _round(self, pair: ModelPair, strategy: Strategy, prompts: Sequence[PromptInput]) -> tuple[Metrics, str]:
        from speclab.engine.generate import generate

        cold = replace(pair, shared_state={})
        counts, ttft, calls, ids = Counts(), 0.0, 0, list[str]()
        for prompt in prompts:
            try:
                result = generate(cold, strategy, prompt, max_new_tokens=self.max_new_tokens, **self.settings)
            except (NoDraftError, PromptError) as error:
                raise MeasurementError(str(error)) from None
            counts += result.metrics.counts
            ttft += result.metrics.ttft / len(prompts)
            calls += result.metrics.prefill_calls
            ids.append(str(result.token_ids))
        return Metrics(counts, ttft, calls), _digest(ids)


_KEPT: dict[str, ModelPair] = {}
"""In a worker: the models it decodes with, by what was asked for."""


def _loaded(asked: Mapping[str, Any], threads: int) -> ModelPair:
    import torch

    from speclab.models.pair import load_pair

    key = repr(sorted(asked.items()))
    if key not in _KEPT:
        if threads:
            torch.set_num_threads(threads)
        _KEPT.clear()
        _KEPT[key] = load_pair(**asked)
    return _KEPT[key]


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else 0.0
