"""Whole texts of four tokens out of three, 81 outcomes, under every strategy: their joint distribution is the target's.

A distribution of single tokens would not show an rng that is reused from one step to the next; the joint one does.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from distributions import assert_drawn_from, logits_of, text_distribution
from table_runner import mixed_probs, random_probs, table_pair
from variants import DRAWN, VARIANTS

import speclab
from speclab.drafters.base import Strategy
from speclab.engine.sampling import PositionalRng, RngPurpose, uniform

VOCAB, LENGTH, PROMPT = 3, 4, [1, 0, 2]
TARGET = random_probs(VOCAB, 1, low=0.3, high=0.8)
DRAFT = mixed_probs(TARGET, random_probs(VOCAB, 2, low=0.5, high=1.5), 0.7)
PAIR = table_pair(TARGET, DRAFT, VOCAB)
SETTINGS = {"temperature": 1.2}
CUT = {"temperature": 1.5, "top_k": 2, "top_p": 0.8}
PROBS = text_distribution(logits_of(TARGET, PROMPT), LENGTH, **SETTINGS)
HEADS = {"DraftHead", "DualDraft"}
"""Need heads, which tables have none of; their trees are tested with their own pairs."""
BEFOREHAND = {**VARIANTS, **{name: kind() for name, kind in speclab.strategies().items() if name not in HEADS}}
"""Strategies whose candidates are chosen before the target draws."""


def text(strategy: Strategy, seed: int, **settings: object) -> tuple[int, ...]:
    settings = {**SETTINGS, **settings}
    return tuple(speclab.generate(PAIR, strategy, PROMPT, max_new_tokens=LENGTH, seed=seed, **settings).token_ids)


def sample(strategy: Strategy, runs: int = 500, **settings: object) -> Counter:
    """Enough texts for every mistake below to show."""
    return Counter(text(strategy, seed, **settings) for seed in range(runs))


@cache
def plain(seed: int, *, cut: bool = False) -> tuple[int, ...]:
    return text(speclab.Autoregressive(), seed, **(CUT if cut else {}))


def test_there_are_81_outcomes_and_none_is_impossible():
    assert len(PROBS) == 81
    assert min(PROBS.values()) > 0.001


def test_plain_sampling_has_the_joint_distribution():
    assert_drawn_from(Counter(plain(seed) for seed in range(500)), PROBS)


@pytest.mark.parametrize("strategy", BEFOREHAND.values(), ids=BEFOREHAND)
def test_candidates_chosen_beforehand_change_no_token_of_any_text(strategy):
    """Then their joint distribution is plain sampling's, too; cut by top-k and top-p as well."""
    assert [text(strategy, seed) for seed in range(12)] == [plain(seed) for seed in range(12)]
    assert [text(strategy, seed, **CUT) for seed in range(12)] == [plain(seed, cut=True) for seed in range(12)]


@pytest.mark.parametrize("name", ["drawn chain", "independent tree", "tree without replacement"])
def test_drawn_candidates_keep_the_joint_distribution(name):
    assert_drawn_from(sample(DRAWN[name]), PROBS)


def test_drawn_candidates_give_other_texts_than_plain_sampling():
    """Else the test above would say nothing of them."""
    for strategy in DRAWN.values():
        assert [text(strategy, seed) for seed in range(8)] != [plain(seed) for seed in range(8)]


class Unplaced(PositionalRng):
    """A mistake: the same noise at every place."""

    def __init__(self, seed: int, place: int, use: RngPurpose) -> None:
        super().__init__(seed, 0, use)


@pytest.mark.parametrize("where", ["speclab.engine.decode.PositionalRng", "speclab.engine.sampling.PositionalRng"])
def test_noise_reused_between_steps_is_found_out(monkeypatch, where):
    monkeypatch.setattr(where, Unplaced)
    with pytest.raises(AssertionError):
        assert_drawn_from(sample(speclab.LinearSpeculation(draft_tokens=1, candidates="independent")), PROBS)


class Together(PositionalRng):
    """A mistake: drafting and acceptance share their noise."""

    def __init__(self, seed: int, place: int, use: RngPurpose) -> None:
        super().__init__(seed, place + (use == RngPurpose.DRAFTING), RngPurpose.ACCEPTANCE)


def test_noise_shared_by_drafting_and_acceptance_is_found_out(monkeypatch):
    for where in ("speclab.engine.decode.PositionalRng", "speclab.engine.sampling.PositionalRng"):
        monkeypatch.setattr(where, Together)
    with pytest.raises(AssertionError):
        assert_drawn_from(sample(DRAWN["drawn chain"], runs=800), PROBS)


# The streams of noise


def test_streams_of_neighbours_have_nothing_in_common():
    """Many draws at one place do not run into the next place's, nor into another use's, nor into plain sampling's."""
    numbers = [uniform(seed, place) for seed in range(4) for place in range(40)]
    for use in RngPurpose:
        for seed in range(4):
            for place in range(10):
                stream = PositionalRng(seed, place, use)
                numbers += [stream._random.random() for _ in range(40)]
    assert len(set(numbers)) == len(numbers)


def test_a_stream_is_uniform_over_seeds_and_places():
    for use in RngPurpose:
        first = [PositionalRng(seed, place, use)._random.random() for seed in range(60) for place in range(60)]
        assert_drawn_from(Counter(int(20 * x) for x in first), dict.fromkeys(range(20), 1 / 20))
