"""Whole texts of four tokens out of three, 81 outcomes, under every strategy: their joint
distribution is the target's.

A distribution of single tokens would not show random numbers that are used again in the next step;
the joint one does.
"""

from collections import Counter

import pytest
from support.distributions import assert_drawn_from, logits_of, text_distribution
from support.table_runner import mixed_probs, random_probs, table_pair
from support.variants import DRAWN

import speclab

VOCAB = 3
LENGTH = 4
PROMPT = [1, 0, 2]
TARGET = random_probs(VOCAB, 1, low=0.3, high=0.8)
PAIR = table_pair(
    TARGET, mixed_probs(TARGET, random_probs(VOCAB, 2, low=0.5, high=1.5), 0.7), VOCAB
)
WARM = {"temperature": 1.2}
PROBS = text_distribution(logits_of(TARGET, PROMPT), LENGTH, **WARM)


def text(strategy, seed):
    settings = {"max_new_tokens": LENGTH, "seed": seed, **WARM}
    return tuple(speclab.generate(PAIR, strategy, PROMPT, **settings).token_ids)


SAMPLED = {
    "one drawn token": speclab.LinearSpeculation(draft_tokens=1, candidates="independent"),
    **{
        name: DRAWN[name]
        for name in ("drawn chain", "drawn block", "independent tree", "tree without replacement")
    },
}


@pytest.mark.parametrize("strategy", SAMPLED.values(), ids=SAMPLED)
def test_sampling_has_the_joint_distribution(strategy):
    assert_drawn_from(Counter(text(strategy, seed) for seed in range(400)), PROBS)
