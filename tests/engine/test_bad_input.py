"""What a person may get wrong: one clear sentence, its cause and the way out, and nothing decoded is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from refusals import LONE, PAIR, SHORT, VOCAB, both_ways, refused
from words import word_tokenizer

import speclab
from speclab import (
    Autoregressive,
    ContextExceededError,
    DynaTree,
    FinishedError,
    FixedTree,
    LinearSpeculation,
    NoDraftError,
    PromptError,
    Session,
    SettingsError,
    SpeclabError,
)
from speclab.models.pair import ModelPair

# Prompts


@pytest.fixture(scope="module")
def speaking() -> ModelPair:
    """A pair whose tokenizer knows eight words."""
    return replace(PAIR, tokenizer=word_tokenizer(VOCAB))


@both_ways
@pytest.mark.parametrize("prompt", ["", "  ", [], (), np.array([], dtype=int)], ids=repr)
def test_an_empty_prompt(way, prompt, speaking):
    with refused(PromptError, "prompt is empty", "at least one token"):
        way(speaking, DynaTree(), prompt, max_new_tokens=4)


@both_ways
def test_bytes_that_are_no_text(way, speaking):
    """As a terminal hands them over."""
    with refused(PromptError, "UTF-8"):
        way(speaking, DynaTree(), b"w1 \xff w2".decode(errors="surrogateescape"), max_new_tokens=4)


def test_text_and_its_ids_are_the_same_prompt(speaking):
    by_text = speclab.generate(speaking, DynaTree(), "w1 w2 w3", max_new_tokens=6)
    by_ids = speclab.generate(speaking, DynaTree(), [1, 2, 3], max_new_tokens=6)
    assert by_text.token_ids == by_ids.token_ids
    assert by_text.text == by_ids.text == " ".join(f"w{token}" for token in by_ids.token_ids)


@both_ways
@pytest.mark.parametrize("ids", [[-1], [VOCAB], [1, 2, 10**12]], ids=str)
def test_ids_outside_the_vocabulary(way, ids):
    with refused(PromptError, str(ids[-1]), f"0 to {VOCAB - 1}"):
        way(PAIR, DynaTree(), ids, max_new_tokens=4)


@both_ways
@pytest.mark.parametrize("prompt", [[1.5], ["a"], [True], [None], [[1, 2]], None, 7, {1}], ids=repr)
def test_what_is_neither_text_nor_ids(way, prompt):
    with refused(PromptError, "token ids"):
        way(PAIR, DynaTree(), prompt, max_new_tokens=4)


@both_ways
def test_text_without_a_tokenizer(way):
    with refused(PromptError, "tokenizer", "token ids"):
        way(PAIR, DynaTree(), "hello", max_new_tokens=4)


def test_ids_of_numpy_and_of_a_range_are_ids():
    expected = speclab.generate(PAIR, DynaTree(), [1, 2, 3], max_new_tokens=6).token_ids
    for prompt in (np.array([1, 2, 3]), (1, 2, 3), range(1, 4)):
        assert speclab.generate(PAIR, DynaTree(), prompt, max_new_tokens=6).token_ids == expected


def test_the_prompt_given_is_not_changed():
    prompt = [1, 2, 3]
    speclab.generate(PAIR, DynaTree(), prompt, max_new_tokens=6)
    assert prompt == [1, 2, 3]


# Context


@both_ways
@pytest.mark.parametrize("length", [1, 10, 15])
def test_prompt_and_new_tokens_up_to_the_context_fit(way, length):
    prompt = [1] * length
    done = way(SHORT, DynaTree(), prompt, max_new_tokens=16 - length)
    if isinstance(done, Session):
        done.run()
    assert len(done.token_ids) == 16 - length


@both_ways
@pytest.mark.parametrize("length", [1, 10, 15])
def test_one_token_beyond_the_context(way, length):
    with refused(ContextExceededError, "16", "max_new_tokens", str(16 - length)):
        way(SHORT, DynaTree(), [1] * length, max_new_tokens=17 - length)


@both_ways
@pytest.mark.parametrize("length", [16, 17, 1000])
def test_a_prompt_that_fills_the_context_alone(way, length):
    with refused(ContextExceededError, "shorten the prompt"):
        way(SHORT, DynaTree(), [1] * length, max_new_tokens=1)


@both_ways
def test_the_context_of_a_draft_that_is_not_asked_bounds_nothing(way):
    pair = replace(PAIR, draft=SHORT.draft.fork(0))
    for strategy in (Autoregressive(), speclab.PromptLookup(), speclab.Goose(node_budget=8)):
        done = way(pair, strategy, [1, 2, 3], max_new_tokens=40)
        if isinstance(done, Session):
            done.run()
            with refused(ContextExceededError, "16 tokens", "max_new_tokens"):
                done.fork(0, DynaTree())
        assert len(done.token_ids) == 40
    with refused(ContextExceededError, "16 tokens", "max_new_tokens to 13"):
        way(pair, DynaTree(), [1, 2, 3], max_new_tokens=40)


def test_a_fork_that_outgrows_the_context():
    session = Session(SHORT, DynaTree(), [1] * 8, max_new_tokens=8)
    session.run()
    before = session.token_ids
    with refused(ContextExceededError, "max_new_tokens"):
        session.fork(max_new_tokens=9)
    assert session.token_ids == before


# What the pair lacks


@both_ways
@pytest.mark.parametrize("strategy", [DynaTree(), FixedTree(), LinearSpeculation()], ids=["dynatree", "tree", "chain"])
def test_a_strategy_that_needs_a_draft_model(way, strategy):
    with refused(NoDraftError, type(strategy).__name__, "draft="):
        way(LONE, strategy, [1, 2], max_new_tokens=4)


def test_a_fork_to_a_strategy_that_needs_a_draft_model():
    session = Session(LONE, Autoregressive(), [1, 2], max_new_tokens=8)
    session.run()
    before = session.token_ids
    with refused(NoDraftError, "DynaTree", "draft="):
        session.fork(1, DynaTree())
    assert session.token_ids == before


# Moving in time


@pytest.fixture
def session() -> Session:
    session = Session(PAIR, DynaTree(), [1, 2, 3], max_new_tokens=10)
    session.run()
    return session


@pytest.mark.parametrize("index", [-1, 99])
def test_going_where_nothing_is_decoded(session, index):
    shown = session.cursor
    with refused(SettingsError, str(index), str(len(session.steps))):
        session.goto(index)
    with refused(SettingsError, str(index), str(len(session.steps))):
        session.fork(index)
    assert session.cursor == shown


def test_stepping_past_the_end(session):
    with refused(FinishedError, "fork", "max_new_tokens"):
        session.step()
    assert len(session.token_ids) == 10


def test_a_fork_with_fewer_tokens_than_there_are(session):
    with refused(SettingsError, "max_new_tokens"):
        session.fork(max_new_tokens=3)


def test_a_fork_with_a_setting_that_does_not_exist(session):
    with refused(SettingsError, "'colour'"):
        session.fork(0, colour="blue")


def test_a_fork_with_contradictory_settings(session):
    with refused(SettingsError, "low_confidence", "high_confidence"):
        session.fork(0, low_confidence=0.95)
    assert session.strategy == DynaTree()


def test_a_fork_with_a_session_setting_out_of_bounds(session):
    with refused(SettingsError, "temperature", "-1"):
        session.fork(0, temperature=-1)
    assert session.settings.temperature == 0.0


# Every error is one family


def test_every_error_of_speclab_is_a_speclab_error():
    kinds = [kind for kind in vars(speclab.errors).values() if isinstance(kind, type)]
    assert len(kinds) >= 13
    assert all(issubclass(kind, SpeclabError | Warning) for kind in kinds)
    assert all(kind.__doc__ for kind in kinds)
