"""Strategies on random models of many families: the target's own text, and caches as plain decoding leaves them."""

from __future__ import annotations

import itertools

import pytest
import torch
from support.pairs import (
    NOISE,
    PROMPT,
    block_pair,
    library_text,
    own_text,
    pair_of,
    run_and_check_caches,
)
from support.refusals import refused
from support.tiny import BORDER, tiny
from support.variants import PATHS, VARIANTS

import speclab

pytestmark = pytest.mark.model

NEW = 16
FAMILIES = ("gpt_neox", "llama", "qwen3", "gpt2", "opt", "mistral", "gemma3_text", "llama4_text")
WINDOWED = ("mistral", "gemma3_text", "llama4_text")
every_path = pytest.mark.parametrize("strategy", PATHS.values(), ids=PATHS)


# The text


def _every_strategy():
    """The variants, all that are registered with their presets, and DynaTree's ways to draft a root and to commit."""
    yield from VARIANTS.items()
    for name, kind in speclab.strategies().items():
        yield name, kind()
        yield from ((f"{name}: {preset}", strategy) for preset, strategy in kind.presets().items())
    for root, commit in itertools.product(("verified", "drafted"), ("gather", "rebuild")):
        yield (
            f"{root}, {commit}",
            speclab.DynaTree(root=root, commit=commit, history="iteration", base_depth=3),
        )


RUNS = [
    *(
        (name, strategy, FAMILIES[place % 8])
        for place, (name, strategy) in enumerate(_every_strategy())
    ),
    *(
        (name, strategy, family)
        for (name, strategy), family in itertools.product(PATHS.items(), WINDOWED)
    ),
]
"""Every strategy on some family, and every path through the engine on families whose rows do not see everything."""


@pytest.mark.parametrize(
    ("strategy", "family"), [run[1:] for run in RUNS], ids=[f"{run[0]}-{run[2]}" for run in RUNS]
)
def test_the_text_is_the_targets_own_and_the_caches_are_fresh(strategy, family):
    pair = pair_of(family, NOISE)
    if strategy.missing(pair.offer):
        pair = block_pair(family, 64)
    session = speclab.Session(pair, strategy, PROMPT, max_new_tokens=NEW)
    assert run_and_check_caches(session).token_ids == own_text(family, NEW)


@every_path
def test_generate_is_the_session_without_records_and_a_check_passes(strategy):
    pair = pair_of("qwen3", NOISE)
    for settings in ({}, {"temperature": 1.0, "top_p": 0.9}):
        session = speclab.Session(pair, strategy, PROMPT, max_new_tokens=NEW, **settings)
        session.run()
        for check in (False, True):
            result = speclab.generate(
                pair, strategy, PROMPT, max_new_tokens=NEW, check=check, **settings
            )
            assert (result.token_ids, result.text) == (session.token_ids, session.text)
            for name in (
                "iterations",
                "target_calls",
                "draft_calls",
                "acceptance_rate",
                "tokens_per_iteration",
            ):
                assert getattr(result.metrics, name) == getattr(session.metrics, name)


# Every node against a fresh pass over its own path


# The shortest and the longest text


@every_path
def test_longrope_decodes_up_to_where_it_would_change_all_angles(strategy):
    """Phi-3-128k turns all positions by other angles once a text is long."""
    pair = speclab.load_pair(target=tiny("phi3"), draft=tiny("phi3", seed=3))
    # so n-grams match
    prompt = torch.randint(0, 4, (20,), generator=torch.Generator().manual_seed(20)).tolist()
    session = speclab.Session(pair, strategy, prompt, max_new_tokens=BORDER - 20, check=True)
    session.run()
    assert session.token_ids == library_text(pair.target.model, prompt, BORDER - 20)
    with refused(speclab.ContextExceededError, "32 tokens: set max_new_tokens to 12 or less"):
        session.fork(max_new_tokens=13)
