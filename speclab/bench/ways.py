"""Ways to decode a prompt that are measured against each other: our strategies, and transformers' own `generate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn

from speclab.drafters import Strategy
from speclab.drafters.autoregressive import Autoregressive
from speclab.drafters.chain import LinearSpeculation
from speclab.drafters.dynatree import DynaTree
from speclab.drafters.fixed_tree import FixedTree
from speclab.generation import generate
from speclab.metrics import Metrics
from speclab.models.pair import ModelPair


@dataclass(frozen=True, slots=True)
class Run:
    """One text decoded: its ids, seconds of the whole call, seconds of it inside the models, our metrics if ours."""

    token_ids: list[int]
    seconds: float
    model_seconds: float
    metrics: Metrics | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """A named way to decode `prompt_ids` into at most so many new tokens."""

    name: str
    decode: Callable[[Sequence[int], int], tuple[list[int], Metrics | None]]
    modules: tuple[nn.Module, ...]

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Run:
        """Decodes once and times it; a CUDA device is waited for."""
        with _inside(self.modules) as spent:
            _wait()
            began = perf_counter()
            token_ids, metrics = self.decode(prompt_ids, max_new_tokens)
            _wait()
            seconds = perf_counter() - began
        return Run(token_ids, seconds, spent[0], metrics)


def ways(pair: ModelPair) -> list[Way]:
    """Plain decoding first (the baseline), then ours, then transformers' own on the same modules."""
    named: dict[str, Strategy] = {
        "plain": Autoregressive(),
        "linear, 5": LinearSpeculation(),
        "linear, long while sure": LinearSpeculation(draft_tokens=20, confidence_stop=0.4),
        "fixed tree, D 5 B 2 (paper)": FixedTree(),
        "fixed tree, D 8 B 3 τ 0.1 (paper)": FixedTree(depth=8, branching=3, prune_probability=0.1),
        "DynaTree": DynaTree(),
        "DynaTree, for an unsure draft": DynaTree.for_unsure_draft(),
        "DynaTree, for an unsure draft, 8 nodes": DynaTree.for_unsure_draft().changed(node_budget=8),
        "DynaTree, paper's procedure": DynaTree(root="drafted", commit="rebuild", drafting="node"),
    }
    ours = [ours_way(pair, name, strategy) for name, strategy in named.items()]
    return [*ours, _peer(pair, "transformers generate", assisted=False)] + (
        [_peer(pair, "transformers assisted, defaults", assisted=True)] if pair.draft else []
    )


def ours_way(pair: ModelPair, name: str, strategy: Strategy) -> Way:
    """One of our strategies as a way."""

    def decode(prompt_ids: Sequence[int], max_new_tokens: int) -> tuple[list[int], Metrics | None]:
        result = generate(pair, strategy, prompt_ids, max_new_tokens=max_new_tokens)
        return result.token_ids, result.metrics

    return Way(name, decode, _modules(pair))


def _peer(pair: ModelPair, name: str, *, assisted: bool) -> Way:
    target = pair.target.model
    extra = {"assistant_model": pair.draft.model} if assisted and pair.draft else {}

    def decode(prompt_ids: Sequence[int], max_new_tokens: int) -> tuple[list[int], Metrics | None]:
        ids = torch.tensor([list(prompt_ids)], device=target.device)
        mask = torch.ones_like(ids)
        # A peer runs as its users run it; no_grad is what generate sets by itself.
        output = target.generate(
            ids, attention_mask=mask, max_new_tokens=max_new_tokens, do_sample=False, pad_token_id=0, **extra
        )
        return output[0, len(prompt_ids) :].tolist(), None

    return Way(name, decode, _modules(pair))


def _modules(pair: ModelPair) -> tuple[nn.Module, ...]:
    return tuple(runner.model for runner in pair.runners.values())


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def _inside(modules: Sequence[nn.Module]) -> Iterator[list[float]]:
    """Adds up the wall-clock time spent inside these modules' forward."""
    spent, began = [0.0], [0.0]

    def before(_module: nn.Module, _args: object) -> None:
        _wait()
        began[0] = perf_counter()

    def after(_module: nn.Module, _args: object, _output: object) -> None:
        _wait()
        spent[0] += perf_counter() - began[0]

    handles = [hook for module in modules for hook in (module.register_forward_pre_hook(before),)]
    handles += [module.register_forward_hook(after) for module in modules]
    try:
        yield spent
    finally:
        for handle in handles:
            handle.remove()
