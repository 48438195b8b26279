"""Random models of many families as pairs, their own text by the library, and what the caches must hold."""

import copy
from dataclasses import replace
from functools import cache

import torch
from support.heads import random_block, random_head
from support.records import assert_consistent
from support.tiny import tiny

import speclab
from speclab.heads.block_head import BlockRunner
from speclab.heads.runner import HeadRunner
from speclab.models.runner import Runner

NOISE = 0.02
SEEDS = {("gemma3_text", 64): 2}
"""Where the first seed gives a text that repeats itself, which any mask would give."""
PROMPT = [5, 9, 2, 40, 33, 7, 7, 1, 60, 22, 13, 8, 51]
"""Longer than the windows of the families that have one."""
SMALL = 16
"""The vocabulary of pairs whose draft heads are to be right now and then."""

BLOCKS = {
    "marginals": {},
    "bias": {"markov_rank": 6},
    "bias and anchor": {"markov_rank": 6, "sample_from_anchor": True, "temperature": 1.3},
}
"""Block heads of each kind."""


def noisy(model, noise, seed=0):
    """A copy with this share of noise on every weight, which agrees with the model now and then."""
    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    return twin


def target_of(family, vocab=64):
    return _target_of(family, vocab)


@cache
def _target_of(family, vocab):
    return tiny(family, seed=SEEDS.get((family, vocab), 0), vocab=vocab)


def draft_of(family, noise, vocab=64):
    """A noisy copy of the target, or another model."""
    return (
        tiny(family, seed=9, vocab=vocab)
        if noise is None
        else noisy(target_of(family, vocab), noise)
    )


def pair_of(family, noise=NOISE, vocab=64):
    """A target, a draft model and two draft heads; nothing is carried over from an earlier text."""
    return replace(_pair_of(family, noise, vocab), shared_state={})


@cache
def _pair_of(family, noise, vocab):
    target = target_of(family, vocab)
    heads = [random_head(target, seed, name) for seed, name in ((1, "prose"), (2, "code"))]
    return speclab.load_pair(target=target, draft=draft_of(family, noise, vocab), heads=heads)


@cache
def headed_pair(family):
    """A target with two heads that read different layers, each with a draft vocabulary, and no draft model."""
    target = target_of(family, SMALL)
    heads = [
        random_head(target, 1, "prose", [0, 1, 2, 4, 5, 7, 8, 9, 10, 12, 13, 15]),
        random_head(target, 2, "code", [0, 1, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14], layers=(0, 1)),
    ]
    return speclab.load_pair(target=target, heads=heads)


@cache
def block_pair(family, vocab=8, **shape):
    """A target with a block head; of few tokens, so that a random head is right now and then."""
    target = target_of(family, vocab)
    known = [token for token in range(vocab) if token != 4]
    head = random_block(target, 2, ids=known, block_size=7, **shape)
    return speclab.load_pair(target=target, heads=head)


@cache
def models_pair(family):
    """A target with two draft models in the place of heads."""
    target = target_of(family, SMALL)
    return speclab.load_pair(target=target, heads=[noisy(target, 0.03, seed) for seed in (0, 1)])


def library_text(model, prompt, count, **settings):
    """The library's own greedy decoding."""
    ids = torch.tensor([list(prompt)])
    chosen = {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0} | settings
    return model.generate(ids, attention_mask=torch.ones_like(ids), **chosen)[
        0, len(prompt) :
    ].tolist()


@cache
def own_text(family, count):
    return library_text(target_of(family), PROMPT, count)


def assert_cache_is_fresh(runner, text, target=None):
    """Length, and keys and values of every layer, as one causal pass of the module over the
    committed text leaves them.

    `target`: of a head, the model that it drafts for.
    """
    assert runner.length <= len(text)
    if runner.length == 0:
        return
    assert runner.length <= (runner.context or len(text))
    if isinstance(runner, HeadRunner):
        states = target(torch.tensor([text]), output_hidden_states=True).hidden_states
        fresh = type(runner)(runner.model, Runner(target, lean=False))
        seen = torch.cat([states[layer][0] for layer in runner.config.layers], dim=-1)[
            : runner.length
        ].detach()
        text = runner.shown(text)
        if isinstance(runner, BlockRunner):
            fresh.draft(0, seen)
            fresh.crop(runner.length)
        else:
            fresh.extend(text[1 : runner.length + 1], seen)
    else:
        fresh = Runner(runner.model, lean=False)
        fresh.extend(runner.shown(text[: runner.length]))
    for mine, its in zip(runner.cache.layers, fresh.cache.layers, strict=True):
        torch.testing.assert_close(mine.keys, its.keys, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(mine.values, its.values, rtol=1e-3, atol=1e-3)


def run_and_check_caches(session):
    """Steps to the end; after every iteration the target's cache holds all it should, the others a prefix."""
    while not session.done:
        step = session.step()
        assert_consistent(step)
        text = session.prompt_ids + session.token_ids
        drafted_root = step.root_choice is not None
        assert session.pair.target.length == len(text) - (not drafted_root)
        for runner in (*session.pair.runners.values(), *session.pair.heads):
            assert_cache_is_fresh(runner, text, session.pair.target.model)
    return session
