"""Drawn candidates with torch models: short texts of a very small model, against the exact
distribution of its texts.

Each strategy gives a small sample under each temperature, top-k and top-p; the chi-squares are
added up, so that a bias that all of them share shows too. Tables in place of models:
test_sampling_joint.py.
"""

from collections import Counter
from functools import cache

import pytest
from reference.decoding import next_logits
from support.distributions import chi_square, chi_square_critical, text_distribution
from support.heads import random_block, random_head
from support.tiny import tiny
from support.variants import DRAWN

import speclab
from speclab.models.runner import Runner
from speclab.pair import ModelPair

pytestmark = pytest.mark.model

EVERY = DRAWN | {"ddtree": speclab.DDTree(node_budget=6)}
LENGTH = 3
PROMPT = [1, 3, 0]
RUNS = 45
SMALL = {"vocab": 5, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32}
SETTINGS = [
    {"temperature": 0.6},
    {"temperature": 1.4, "top_k": 3},
    {"temperature": 1.2, "top_k": 4, "top_p": 0.8},
]


@cache
def pair(drafting):
    """A draft model, of fewer or more tokens too, or a head or a block head that can propose some of the five."""
    target = tiny("gpt2", seed=1, **SMALL)
    if drafting == "model":
        return ModelPair(Runner(target), Runner(tiny("gpt2", seed=2, **SMALL)))
    if drafting in ("smaller model", "larger model"):
        draft = tiny("gpt2", seed=2, **SMALL | {"vocab": 3 if drafting == "smaller model" else 9})
        return speclab.load_pair(target=target, draft=draft)
    shape = {"heads": 1, "key_value_heads": 1}
    if drafting in ("block", "biased block"):
        shape |= {"layers": (1,), "block_size": 4, "markov_rank": 3 * (drafting != "block")}
        return speclab.load_pair(
            target=target, heads=random_block(target, 2, ids=[0, 2, 3, 4], **shape)
        )
    return speclab.load_pair(target=target, heads=random_head(target, 1, ids=[0, 2, 3], **shape))


@cache
def logits(after):
    return next_logits(pair("model").target.model, [*PROMPT, *after])


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "drafting"),
    [
        ("independent tree", "model"),
        ("independent dynatree", "smaller model"),
        ("drawn chain", "larger model"),
        ("drawn chain", "head"),
        ("dynatree without replacement", "head"),
        ("ddtree", "block"),
        ("dynatree without replacement", "biased block"),
    ],
)
def test_drawn_candidates_give_texts_of_the_models_distribution(name, drafting):
    statistics = []
    rates = []
    for settings in SETTINGS:
        results = [
            speclab.generate(
                pair(drafting), EVERY[name], PROMPT, max_new_tokens=LENGTH, seed=seed, **settings
            )
            for seed in range(RUNS)
        ]
        rates += [result.metrics.acceptance_rate for result in results]
        probs = text_distribution(logits, LENGTH, **settings)
        statistics.append(chi_square(Counter(tuple(result.token_ids) for result in results), probs))
    for value, freedom in [*statistics, tuple(map(sum, zip(*statistics, strict=True)))]:
        assert value < chi_square_critical(freedom)
    assert 0 < sum(rates) / len(rates) < 0.9, "candidates are accepted and rejected"
