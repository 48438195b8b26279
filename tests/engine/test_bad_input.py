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


NOT_IDS = [[1.5], ["a"], [True], [None], [[1, 2]], None, 7, object()]


@both_ways
@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        *((empty, ("prompt is empty", "at least one token")) for empty in ("", "  ", [], (), np.array([], dtype=int))),
        (b"w1 \xff w2".decode(errors="surrogateescape"), ("UTF-8",)),  # bytes that are no text, as from a terminal
        *(([1, token], (str(token), f"0 to {VOCAB - 1}")) for token in (-1, VOCAB, 10**12)),
        *((prompt, ("token ids",)) for prompt in NOT_IDS),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_prompt(way, prompt, said, speaking):
    with refused(PromptError, *said):
        way(speaking, DynaTree(), prompt, max_new_tokens=4)


@both_ways
def test_text_without_a_tokenizer(way):
    with refused(PromptError, "tokenizer", "token ids"):
        way(PAIR, DynaTree(), "hello", max_new_tokens=4)


def test_text_and_whatever_holds_its_ids_are_the_same_prompt_and_stay_as_they_are(speaking):
    by_text = speclab.generate(speaking, DynaTree(), "w1 w2 w3", max_new_tokens=6)
    assert by_text.text == " ".join(f"w{token}" for token in by_text.token_ids)
    for prompt in ([1, 2, 3], np.array([1, 2, 3]), (1, 2, 3), range(1, 4)):
        assert speclab.generate(speaking, DynaTree(), prompt, max_new_tokens=6).token_ids == by_text.token_ids
        assert list(prompt) == [1, 2, 3]


# Context


@both_ways
@pytest.mark.parametrize("length", [1, 15])
def test_prompt_and_new_tokens_up_to_the_context_fit_and_one_more_does_not(way, length):
    done = way(SHORT, DynaTree(), [1] * length, max_new_tokens=16 - length)
    if isinstance(done, Session):
        done.run()
    assert len(done.token_ids) == 16 - length
    with refused(ContextExceededError, "16", "max_new_tokens", str(16 - length)):
        way(SHORT, DynaTree(), [1] * length, max_new_tokens=17 - length)


@both_ways
@pytest.mark.parametrize("length", [16, 1000])
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


# What the pair lacks


@both_ways
@pytest.mark.parametrize("strategy", [DynaTree(), FixedTree(), LinearSpeculation()], ids=["dynatree", "tree", "chain"])
def test_a_strategy_that_needs_a_draft_model(way, strategy):
    with refused(NoDraftError, type(strategy).__name__, "draft="):
        way(LONE, strategy, [1, 2], max_new_tokens=4)


# Moving in time, and forks


@pytest.fixture
def session() -> Session:
    session = Session(SHORT, DynaTree(), [1, 2, 3], max_new_tokens=10)
    session.run()
    return session


@pytest.mark.parametrize("index", [-1, 99])
def test_going_where_nothing_is_decoded(session, index):
    shown = session.cursor
    for move in (session.goto, session.fork):
        with refused(SettingsError, str(index), str(len(session.steps))):
            move(index)
    assert session.cursor == shown


def test_stepping_past_the_end(session):
    with refused(FinishedError, "fork", "max_new_tokens"):
        session.step()
    assert len(session.token_ids) == 10


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        (SettingsError, {"max_new_tokens": 3}, ("max_new_tokens",)),
        (ContextExceededError, {"max_new_tokens": 14}, ("max_new_tokens",)),
        (SettingsError, {"colour": "blue"}, ("'colour'",)),
        (SettingsError, {"low_confidence": 0.95}, ("low_confidence", "high_confidence")),
        (SettingsError, {"temperature": -1}, ("temperature", "-1")),
    ],
    ids=str,
)
def test_a_fork_that_cannot_be_leaves_the_session_as_it_was(session, kind, changes, said):
    before = session.token_ids
    with refused(kind, *said):
        session.fork(**changes)
    assert session.token_ids == before
    assert session.strategy == DynaTree()
    assert session.settings.temperature == 0.0


def test_a_fork_to_a_strategy_that_needs_a_draft_model():
    session = Session(LONE, Autoregressive(), [1, 2], max_new_tokens=8)
    session.run()
    with refused(NoDraftError, "DynaTree", "draft="):
        session.fork(1, DynaTree())
    assert len(session.token_ids) == 8


# Every error is one family


def test_every_error_of_speclab_is_a_speclab_error():
    kinds = [kind for kind in vars(speclab.errors).values() if isinstance(kind, type)]
    assert len(kinds) >= 13
    assert all(issubclass(kind, SpeclabError | Warning) for kind in kinds)
    assert all(kind.__doc__ for kind in kinds)
