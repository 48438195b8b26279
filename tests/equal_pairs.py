"""Random models of many families as pairs, their own text by the library, and what the caches must hold."""

from __future__ import annotations

import copy
from functools import cache

import torch
from heads import random_head
from records import assert_consistent
from tiny import tiny

import speclab
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner

NOISE = 0.02
SEEDS = {"gemma3_text": 2}
"""Where the first seed gives a text that repeats itself, which any mask would give."""
PROMPT = [5, 9, 2, 40, 33, 7, 7, 1, 60, 22, 13, 8, 51]
"""Longer than the windows of the families that have one."""


@cache
def target_of(family: str) -> torch.nn.Module:
    return tiny(family, seed=SEEDS.get(family, 0))


@cache
def draft_of(family: str, noise: float | None) -> torch.nn.Module:
    """Another model; or the target with this share of noise on every weight, which agrees now and then."""
    if noise is None:
        return tiny(family, seed=9)
    model = copy.deepcopy(target_of(family))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    return model


def pair_of(family: str, noise: float | None) -> ModelPair:
    target = target_of(family)
    heads = [random_head(target, seed, name) for seed, name in enumerate(("prose", "code"))]
    return speclab.load_pair(target=target, draft=draft_of(family, noise), heads=heads)


@cache
def own_text(family: str, count: int) -> list[int]:
    """The library's own greedy decoding."""
    prompt = torch.tensor([PROMPT])
    model = target_of(family)
    ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False)
    return ids[0, len(PROMPT) :].tolist()


def assert_cache_is_fresh(runner: Runner, text: list[int]) -> None:
    """Length, and keys and values of every layer, as one causal pass over the committed text leaves them."""
    assert runner.length <= len(text)
    if runner.length == 0:
        return
    fresh = Runner(runner.model)
    fresh.extend(text[: runner.length])
    for layer, other in zip(runner.cache.layers, fresh.cache.layers, strict=True):
        torch.testing.assert_close(layer.keys, other.keys, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(layer.values, other.values, rtol=1e-3, atol=1e-3)


def run_and_check_caches(session: speclab.Session) -> speclab.Session:
    """Steps to the end; after every iteration the target's cache holds all it should, the draft's a prefix."""
    while not session.done:
        step = session.step()
        assert_consistent(step)
        text = session.prompt_ids + session.token_ids
        drafted_root = step.root_choice is not None
        assert session.pair.target.length == len(text) - (not drafted_root)
        for runner in session.pair.runners.values():
            assert_cache_is_fresh(runner, text)
    return session
