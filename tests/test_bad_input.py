"""What a person may get wrong: one clear sentence, its cause and the way out, and nothing decoded is lost."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_runner import random_law, table_pair
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

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

VOCAB = 8
TARGET, DRAFT = random_law(VOCAB, 1), random_law(VOCAB, 2)
PAIR = table_pair(TARGET, DRAFT, VOCAB)
SHORT = table_pair(TARGET, DRAFT, VOCAB, context=16)
LONE = table_pair(TARGET, None, VOCAB)
WAYS = [Session, speclab.generate]
both_ways = pytest.mark.parametrize("way", WAYS, ids=["session", "generate"])


@contextlib.contextmanager
def refused(kind: type[SpeclabError], *said: str):
    """One sentence of that class that says each of these."""
    with pytest.raises(kind) as caught:
        yield
    assert isinstance(caught.value, SpeclabError)
    message = str(caught.value)
    assert "\n" not in message
    assert 20 < len(message) < 250
    assert not {"Traceback", "pydantic", "NoneType", "object at 0x"} & set(message.split())
    for word in said:
        assert word in message, message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None, "the cause is in the sentence"


# Prompts


@pytest.fixture(scope="module")
def speaking() -> ModelPair:
    """A pair whose tokenizer knows eight words."""
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w0"))
    words.pre_tokenizer = WhitespaceSplit()
    return replace(PAIR, tokenizer=PreTrainedTokenizerFast(tokenizer_object=words))


@both_ways
@pytest.mark.parametrize("prompt", ["", "  ", [], (), np.array([], dtype=int)], ids=repr)
def test_an_empty_prompt(way, prompt, speaking):
    with refused(PromptError, "prompt is empty", "at least one token"):
        way(speaking, DynaTree(), prompt, max_new_tokens=4)


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
@pytest.mark.parametrize("prompt", [[1.5], ["a"], [True], [None], [[1, 2]], None, 7, object()], ids=repr)
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


def test_a_fork_that_outgrows_the_context():
    session = Session(SHORT, DynaTree(), [1] * 8, max_new_tokens=8)
    session.run()
    before = session.token_ids
    with refused(ContextExceededError, "max_new_tokens"):
        session.fork(max_new_tokens=9)
    assert session.token_ids == before


# Settings of a session


SESSION_MISTAKES = [
    {"max_new_tokens": 0},
    {"max_new_tokens": -5},
    {"max_new_tokens": 2.5},
    {"max_new_tokens": "many"},
    {"max_new_tokens": None},
    {"temperature": -0.1},
    {"temperature": math.nan},
    {"temperature": math.inf},
    {"temperature": "hot"},
    {"top_k": 0},
    {"top_k": -3},
    {"top_p": 0.0},
    {"top_p": 1.1},
    {"top_p": math.nan},
    {"seed": -1},
    {"seed": 2**63},
    {"seed": 1.5},
    {"stop_at_eos": "maybe"},
    {"check": 3},
]


@both_ways
@pytest.mark.parametrize("mistake", SESSION_MISTAKES, ids=str)
def test_a_session_setting_out_of_bounds(way, mistake):
    ((name, value),) = mistake.items()
    with refused(SettingsError, name, "must", repr(value)):
        way(PAIR, DynaTree(), [1, 2], **mistake)


@both_ways
def test_a_misspelt_setting_names_those_there_are(way):
    with refused(SettingsError, "temprature", "temperature", "max_new_tokens"):
        way(PAIR, DynaTree(), [1, 2], temprature=1.0)


# Settings of strategies


STRATEGY_MISTAKES = [
    (DynaTree, {"high_confidence": 1.5}),
    (DynaTree, {"low_confidence": -0.1}),
    (DynaTree, {"min_branches": 0}),
    (DynaTree, {"max_branches": 1000}),
    (DynaTree, {"base_depth": 0}),
    (DynaTree, {"max_depth": 10**6}),
    (DynaTree, {"stop_probability": -1}),
    (DynaTree, {"deep_probability": 2}),
    (DynaTree, {"prune_probability": 1}),
    (DynaTree, {"prune_probability": math.nan}),
    (DynaTree, {"node_budget": 0}),
    (DynaTree, {"node_budget": -1}),
    (DynaTree, {"root": "sideways"}),
    (DynaTree, {"commit": "hope"}),
    (DynaTree, {"drafting": None}),
    (DynaTree, {"history": "always"}),
    (FixedTree, {"depth": 0}),
    (FixedTree, {"branching": 0}),
    (FixedTree, {"branching": 2.5}),
    (LinearSpeculation, {"draft_tokens": 0}),
    (LinearSpeculation, {"draft_tokens": "five"}),
    (LinearSpeculation, {"confidence_stop": 1.0}),
]


@pytest.mark.parametrize(("kind", "mistake"), STRATEGY_MISTAKES, ids=str)
def test_a_strategy_setting_out_of_bounds(kind, mistake):
    ((name, value),) = mistake.items()
    with refused(SettingsError, kind.__name__, name, "must", repr(value)):
        kind(**mistake)


CONTRADICTIONS = [
    ({"low_confidence": 0.95}, "low_confidence", "high_confidence"),
    ({"high_confidence": 0.3}, "low_confidence", "high_confidence"),
    ({"min_branches": 3}, "min_branches", "mid_branches"),
    ({"mid_branches": 4}, "mid_branches", "max_branches"),
    ({"max_branches": 1}, "mid_branches", "max_branches"),
    ({"base_depth": 9}, "base_depth", "max_depth"),
    ({"max_depth": 4}, "base_depth", "max_depth"),
    ({"stop_probability": 0.6}, "stop_probability", "deep_probability"),
]


@pytest.mark.parametrize(("mistake", "small", "large"), CONTRADICTIONS, ids=str)
def test_settings_that_contradict_each_other(mistake, small, large):
    with refused(SettingsError, small, large, "above", "lower", "raise"):
        DynaTree(**mistake)


@pytest.mark.parametrize("kind", speclab.strategies().values(), ids=speclab.strategies())
def test_a_setting_that_a_strategy_lacks(kind):
    with refused(SettingsError, kind.__name__, "'colour'", "settings"):
        kind(colour="blue")


def test_what_is_no_strategy():
    for wrong in (DynaTree, "DynaTree", None, {"base_depth": 3}):
        for way in WAYS:
            with refused(SettingsError, "strategy"):
                way(PAIR, wrong, [1, 2], max_new_tokens=4)


def test_settings_cannot_be_changed_in_place_and_the_error_says_how():
    strategy = DynaTree()
    with refused(SettingsError, "changed"):
        strategy.base_depth = 3
    assert strategy.changed(base_depth=3).base_depth == 3


@pytest.mark.parametrize("root", ["verified", "drafted"])
def test_a_tree_budget_of_one_is_plain_decoding(root):
    plain = speclab.generate(PAIR, Autoregressive(), [1, 2, 3], max_new_tokens=12)
    for strategy in (DynaTree(node_budget=1, root=root), FixedTree(node_budget=1)):
        session = Session(PAIR, strategy, [1, 2, 3], max_new_tokens=12)
        session.run()
        assert session.token_ids == plain.token_ids
        assert {len(step.tree) for step in session.steps} == {1}


@given(
    st.dictionaries(st.sampled_from(sorted(DynaTree.model_fields)), st.none() | st.integers() | st.floats() | st.text())
)
def test_any_settings_are_taken_or_refused_in_one_sentence(values):
    try:
        strategy = DynaTree(**values)
    except SettingsError as error:
        message = str(error)
    else:
        assert strategy.changed() == strategy
        return
    assert len(message.splitlines()) == 1
    assert any(name in message for name in values)
    assert len(message) < 250


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
    assert all(issubclass(kind, SpeclabError) for kind in kinds)
    assert all(kind.__doc__ for kind in kinds)
