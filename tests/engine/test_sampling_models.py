"""Drawn candidates with torch models: short texts of a very small one, against the exact distribution of its texts.

Of each strategy there is a small sample under each temperature, top-k and top-p; their chi-squares are added up, so
that a bias that all of them share shows, too. Tables in the place of models stand in test_sampling_joint.py.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from distributions import chi_square, chi_square_critical, text_distribution
from heads import random_head
from reference.decoding import next_logits
from tiny import tiny
from variants import DRAWN

import speclab
from speclab.drafters.base import Strategy
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner

pytestmark = pytest.mark.model

VOCAB, LENGTH, PROMPT = 5, 3, [1, 3, 0]
SMALL = {"vocab": VOCAB, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32}
SETTINGS = [
    {"temperature": 0.6},
    {"temperature": 1.4},
    {"temperature": 1.4, "top_k": 3},
    {"temperature": 1.0, "top_k": 4, "top_p": 0.8},
]
RUNS = 45
"""Texts of a drawn strategy under each setting."""


@cache
def models() -> tuple:
    return tiny("gpt2", seed=1, **SMALL), tiny("gpt2", seed=2, **SMALL)


@cache
def pair() -> ModelPair:
    target, draft = models()
    return ModelPair(Runner(target), Runner(draft), name="very small")


def text(strategy: Strategy, seed: int, settings: dict, models: ModelPair | None = None) -> tuple[int, ...]:
    result = speclab.generate(models or pair(), strategy, PROMPT, max_new_tokens=LENGTH, seed=seed, **settings)
    return tuple(result.token_ids)


@cache
def headed_pair() -> ModelPair:
    """A head that can propose three of the five tokens in the place of the draft model."""
    target = models()[0]
    head = random_head(target, 1, ids=[0, 2, 3], heads=1, key_value_heads=1)
    return speclab.load_pair(target=target, heads=head)


@cache
def logits(after: tuple[int, ...]) -> list[float]:
    return next_logits(models()[0], [*PROMPT, *after])


def samples(strategy: Strategy, runs: int, models: ModelPair | None = None) -> list[tuple[float, int]]:
    """Chi-square and degrees of freedom under each setting."""
    return [
        chi_square(
            Counter(text(strategy, seed, settings, models) for seed in range(runs)),
            text_distribution(logits, LENGTH, **settings),
        )
        for settings in SETTINGS
    ]


def assert_target_distribution(statistics: list[tuple[float, int]]) -> None:
    for value, freedom in [*statistics, tuple(map(sum, zip(*statistics, strict=True)))]:
        assert value < chi_square_critical(freedom)


@pytest.mark.parametrize("strategy", DRAWN.values(), ids=DRAWN)
def test_drawn_candidates_give_texts_of_the_models_distribution(strategy):
    assert_target_distribution(samples(strategy, RUNS))


@pytest.mark.parametrize("name", ["drawn chain", "independent tree", "dynatree without replacement"])
def test_candidates_drawn_from_a_part_of_the_vocabulary_leave_the_distribution_as_it_is(name):
    assert_target_distribution(samples(DRAWN[name], RUNS, headed_pair()))
    rate = speclab.generate(
        headed_pair(), DRAWN[name], PROMPT, max_new_tokens=20, temperature=1.4
    ).metrics.acceptance_rate
    assert 0 < rate < 0.9
