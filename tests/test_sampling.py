"""Sampling: the transforms, the draw, and random numbers that are tied to the position in the text."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from reference.decoding import transformed
from support.distributions import assert_drawn_from
from support.table_runner import mixed_probs, random_probs, table_pair
from support.variants import DRAWN, PATHS

import speclab
from speclab.sampling import PositionalRng, RngPurpose, inverse_cdf, transform, uniform
from speclab.settings import SessionSettings

VOCAB = 4
PROMPT = [1, 0, 2]
TARGET = random_probs(VOCAB, 1, low=0.3, high=1.0)
PAIR = table_pair(TARGET, mixed_probs(TARGET, random_probs(VOCAB, 2), 0.4), VOCAB)


@given(
    st.integers(0, 500),
    st.floats(0.05, 100),
    st.none() | st.integers(1, 12),
    st.none() | st.floats(0.05, 1),
)
def test_transform_is_the_plain_one(seed, temperature, top_k, top_p):
    logits = torch.randn((3, 8), generator=torch.Generator().manual_seed(seed))
    got = transform(logits, SessionSettings(temperature=temperature, top_k=top_k, top_p=top_p))
    assert got.dtype == torch.float64
    for row in range(3):
        expected = transformed(logits[row].double().tolist(), temperature, top_k, top_p)
        assert got[row].tolist() == pytest.approx(expected, abs=1e-9)


def test_numbers_are_uniform_over_seeds_and_positions_and_their_neighbours():
    for numbers in (
        [uniform(seed, 7) for seed in range(4000)],
        [uniform(7, place) for place in range(4000)],
    ):
        assert_drawn_from(Counter(int(20 * x) for x in numbers), dict.fromkeys(range(20), 1 / 20))
        pairs = Counter((int(5 * a), int(5 * b)) for a, b in itertools.pairwise(numbers))
        assert_drawn_from(pairs, dict.fromkeys(itertools.product(range(5), repeat=2), 1 / 25))


def test_streams_share_no_number_with_neighbours_or_other_purposes():
    """Many draws at one position do not run into those of the next, nor into plain sampling's."""
    numbers = [uniform(seed, place) for seed in range(4) for place in range(40)]
    for purpose, seed, place in itertools.product(RngPurpose, range(4), range(40)):
        numbers += PositionalRng(seed, place, purpose)._random.random(20).tolist()
    assert len(set(numbers)) == len(numbers)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda w: sum(w) > 0), st.floats(0, 1)
)
@example([0.0, 0.5, 0.0, 0.5, 0.0], 1.0)
def test_a_draw_inverts_the_cumulative_distribution(weights, number):
    probs = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    token = inverse_cdf(probs[None], [number])[0]
    assert probs[token] > 0
    assert probs[:token].sum() <= number + 1e-12
    assert probs[: token + 1].sum() >= number - 1e-12


def _text(strategy, seed, **settings):
    return speclab.generate(
        PAIR, strategy, PROMPT, max_new_tokens=20, seed=seed, **settings
    ).token_ids


def test_plain_sampling_takes_one_number_and_one_token_at_a_time():
    for seed, settings in ((0, (1.7, None, None)), (2**63 - 1, (1.5, 3, 0.8))):
        text = list(PROMPT)
        for _ in range(20):
            logits = np.log(TARGET(tuple(text))).astype(np.float32).tolist()
            number = uniform(seed, len(text))
            sums = itertools.accumulate(transformed(logits, *settings))
            text.append(next(token for token, below in enumerate(sums) if number < below))
        chosen = dict(zip(("temperature", "top_k", "top_p"), settings, strict=True))
        assert _text(speclab.Autoregressive(), seed, **chosen) == text[len(PROMPT) :]


@pytest.mark.parametrize("strategy", (PATHS | DRAWN).values(), ids=PATHS | DRAWN)
def test_where_one_token_is_left_sampling_is_greedy_decoding(strategy):
    greedy = _text(strategy, 0)
    for sharp in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}):
        assert _text(strategy, 5, **{"temperature": 0.9} | sharp) == greedy
