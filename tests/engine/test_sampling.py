"""Sampling: the transforms, the draw, and whole texts against their exact distribution; noise is tied to the place."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from distributions import assert_drawn_from
from hypothesis import given
from hypothesis import strategies as st
from reference.decoding import transformed
from table_runner import mixed_probs, random_probs, table_pair
from variants import DRAWN, PATHS

import speclab
from speclab.engine.sampling import Targets, inverse_cdf, transform, uniform
from speclab.models.answer import Answer
from speclab.settings import SessionSettings

VOCAB = 4
PROMPT = [1, 0, 2]

TARGET = random_probs(VOCAB, 1, low=0.3, high=1.0)
PAIR = table_pair(TARGET, mixed_probs(TARGET, random_probs(VOCAB, 2), 0.4), VOCAB)

DISTRIBUTIONS = {
    "temperature 1": {"temperature": 1.0},
    "hot": {"temperature": 1.7},
    "cold": {"temperature": 0.5},
    "top-k": {"temperature": 1.2, "top_k": 2},
    "top-p": {"temperature": 1.0, "top_p": 0.7},
    "top-k and top-p": {"temperature": 1.5, "top_k": 3, "top_p": 0.8},
}


def test_the_chi_square_test_can_fail():
    with pytest.raises(AssertionError):
        assert_drawn_from(Counter({0: 600, 1: 400}), {0: 0.5, 1: 0.5})
    with pytest.raises(AssertionError):
        assert_drawn_from(Counter({0: 500, 1: 500, 2: 1}), {0: 0.5, 1: 0.5, 2: 0.0})


# The transforms


@given(st.integers(0, 500), st.floats(0.05, 5), st.none() | st.integers(1, 12), st.none() | st.floats(0.05, 1))
def test_transform_is_the_plain_one(seed, temperature, top_k, top_p):
    logits = torch.randn((3, 8), generator=torch.Generator().manual_seed(seed))
    got = transform(logits, SessionSettings(temperature=temperature, top_k=top_k, top_p=top_p))
    assert got.dtype == torch.float64
    for row in range(3):
        expected = transformed(logits[row].double().tolist(), temperature, top_k, top_p)
        assert got[row].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("temperature", [1e-300, 5e-324, 100.0])
def test_the_coldest_and_the_hottest_temperature_still_give_a_distribution(temperature):
    probs = transform(torch.tensor([[3.0, 40.0, -2.0]]), SessionSettings(temperature=temperature))
    assert probs.sum().item() == pytest.approx(1.0)


# The noise and the draw


def test_noise_is_uniform_over_seeds_and_places_and_their_neighbours():
    for noises in ([uniform(seed, 7) for seed in range(4000)], [uniform(7, place) for place in range(4000)]):
        assert_drawn_from(Counter(int(20 * x) for x in noises), dict.fromkeys(range(20), 1 / 20))
        pairs = Counter((int(5 * a), int(5 * b)) for a, b in itertools.pairwise(noises))
        assert_drawn_from(pairs, dict.fromkeys(itertools.product(range(5), repeat=2), 1 / 25))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda w: sum(w) > 0), st.floats(0, 1))
def test_draw_inverts_the_cumulative_distribution(weights, noise):
    probs = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    token = inverse_cdf(probs[None], [min(noise, math.nextafter(1, 0))])[0]
    assert probs[token] > 0
    assert probs[:token].sum() <= noise + 1e-12
    assert probs[: token + 1].sum() >= noise - 1e-12


def test_draw_at_the_edges_never_takes_an_impossible_token():
    probs = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64)
    assert [inverse_cdf(probs[None], [x])[0] for x in (0.0, 0.49, 0.5, 0.99, math.nextafter(1, 0), 1.0)] == [
        1, 1, 3, 3, 3, 3,
    ]  # fmt: skip


def test_a_choice_is_drawn_once_a_row():
    logits = torch.zeros((2, 50))
    choose = Targets(Answer(logits), [4, 4], SessionSettings(temperature=1.0)).choose
    assert choose(0) == choose(0) == choose(1), "the noise belongs to the place, not to the row"


# Whole texts


@pytest.mark.parametrize("settings", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_plain_sampling_is_one_law_one_noise_and_one_token_at_a_time(settings):
    for seed in (0, 1, 2**63 - 1):
        assert _text(PAIR, speclab.Autoregressive(), seed, settings) == _by_hand(seed, settings)


def _text(pair, strategy, seed: int, settings: dict) -> list[int]:
    return speclab.generate(pair, strategy, PROMPT, max_new_tokens=20, seed=seed, **settings).token_ids


def _by_hand(seed: int, settings: dict) -> list[int]:
    text = list(PROMPT)
    for _ in range(20):
        logits = torch.tensor(np.log(TARGET(tuple(text))), dtype=torch.float32).double().tolist()
        probs = transformed(logits, settings["temperature"], settings.get("top_k"), settings.get("top_p"))
        noise = uniform(seed, len(text))
        token = next(token for token, below in enumerate(itertools.accumulate(probs)) if noise < below)
        text.append(token)
    return text[len(PROMPT) :]


@pytest.mark.parametrize("strategy", (PATHS | DRAWN).values(), ids=PATHS | DRAWN)
def test_where_one_token_is_left_sampling_is_greedy_decoding(strategy):
    greedy = speclab.generate(PAIR, strategy, PROMPT, max_new_tokens=20).token_ids
    for sharp in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}, {"temperature": 0.0, "top_k": 3}):
        assert _text(PAIR, strategy, 5, {"temperature": 0.9} | sharp) == greedy


def test_where_the_device_has_no_float64_the_distribution_is_worked_out_on_the_host():
    class OnAppleGpu(SimpleNamespace):
        def double(self):
            raise TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."
            )

    logits = torch.tensor([[1.0, 2.0, 3.0]])
    there = OnAppleGpu(device=torch.device("mps"), cpu=lambda: logits)
    for settings in (SessionSettings(), SessionSettings(temperature=0.7, top_k=2, top_p=0.9)):
        probs = transform(there, settings)
        assert probs.dtype == torch.float64
        assert torch.equal(probs, transform(logits, settings))
