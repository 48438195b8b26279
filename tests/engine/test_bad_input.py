"""What a person may get wrong: one sentence with the cause and the way out, and nothing decoded is lost."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from refusals import LONE, PAIR, SHORT, VOCAB, both_ways, refused
from words import word_tokenizer

import speclab
from speclab import (
    Autoregressive,
    ContextExceededError,
    DynaTree,
    LinearSpeculation,
    NoDraftError,
    PromptError,
    Session,
    SettingsError,
    SpeclabError,
)
from speclab.settings import SessionSettings

SPEAKING = replace(PAIR, tokenizer=word_tokenizer(VOCAB))

PROMPTS = {
    **dict.fromkeys(("", "  ", (), range(0)), ("prompt is empty", "at least one token")),
    b"w1 \xff w2".decode(errors="surrogateescape"): ("UTF-8",),  # bytes that are not text, as from a terminal
    **{(1, token): (str(token), f"0 to {VOCAB - 1}") for token in (-1, VOCAB, 10**12)},
    **dict.fromkeys([(1.5,), ("a",), (True,), (None,), ((1, 2),), None, 7], ("token ids",)),
}
CALLS = [
    *((PromptError, SPEAKING, DynaTree(), prompt, words) for prompt, words in PROMPTS.items()),
    (PromptError, PAIR, DynaTree(), "hello", ("tokenizer", "token ids")),
    (ContextExceededError, SHORT, DynaTree(), [1] * 1000, ("shorten the prompt",)),
    (ContextExceededError, SHORT, DynaTree(), [1] * 13, ("16", "max_new_tokens to 3")),
    *((NoDraftError, LONE, kind(), [1], (kind.__name__, "draft=")) for kind in (DynaTree, LinearSpeculation)),
    *((SettingsError, PAIR, wrong, [1], ("strategy",)) for wrong in (DynaTree, "DynaTree", None, {"base_depth": 3})),
    *((SettingsError, wrong, DynaTree(), [1], ("pair", "load_pair")) for wrong in ("mini", None, PAIR.target)),
]  # fmt: skip


@both_ways
@pytest.mark.parametrize(("error", "pair", "strategy", "prompt", "words"), CALLS)
def test_a_call_that_cannot_decode(way, error, pair, strategy, prompt, words):
    with refused(error, *words):
        way(pair, strategy, prompt, max_new_tokens=4)


def test_text_and_anything_that_holds_its_ids_are_the_same_prompt_and_stay_as_they_are():
    by_text = speclab.generate(SPEAKING, DynaTree(), "w1 w2 w3", max_new_tokens=6)
    assert by_text.text == " ".join(f"w{token}" for token in by_text.token_ids)
    for prompt in ([1, 2, 3], np.array([1, 2, 3]), (1, 2, 3), range(1, 4)):
        assert speclab.generate(SPEAKING, DynaTree(), prompt, max_new_tokens=6).token_ids == by_text.token_ids
        assert list(prompt) == [1, 2, 3]


@pytest.mark.parametrize("length", [1, 15])
def test_prompt_and_new_tokens_fill_the_context(length):
    assert len(speclab.generate(SHORT, DynaTree(), [1] * length, max_new_tokens=16 - length).token_ids) == 16 - length
    with refused(ContextExceededError, "16", "max_new_tokens", str(16 - length)):
        speclab.generate(SHORT, DynaTree(), [1] * length, max_new_tokens=17 - length)


def test_the_context_of_a_draft_that_is_not_used_is_no_bound():
    pair = replace(PAIR, draft=SHORT.draft.fork(0))
    session = Session(pair, speclab.Goose(node_budget=8), [1, 2, 3], max_new_tokens=40)
    session.run()
    assert len(session.token_ids) == 40
    with refused(ContextExceededError, "16 tokens", "max_new_tokens"):
        session.fork(0, DynaTree())


# Forks


@pytest.fixture
def session() -> Session:
    session = Session(SHORT, DynaTree(), [1, 2, 3], max_new_tokens=10)
    session.run()
    return session


@pytest.mark.parametrize("index", [-1, 99, 1.5, "1"])
def test_going_where_nothing_is_decoded(session, index):
    for move in (session.goto, session.fork):
        with refused(SettingsError, str(index), str(len(session.steps))):
            move(index)
    assert session.cursor == len(session.steps)


@pytest.mark.parametrize(
    ("error", "changes", "words"),
    [
        (SettingsError, {"max_new_tokens": 3}, ("max_new_tokens",)),
        (ContextExceededError, {"max_new_tokens": 14}, ("max_new_tokens",)),
        (SettingsError, {"colour": "blue"}, ("'colour'",)),
        (SettingsError, {"low_confidence": 0.95}, ("low_confidence", "high_confidence")),
    ],
)
def test_a_fork_that_cannot_be_leaves_the_session_as_it_was(session, error, changes, words):
    before = session.token_ids
    with refused(error, *words):
        session.fork(**changes)
    assert (session.token_ids, session.strategy, session.settings.temperature) == (before, DynaTree(), 0.0)


# Settings

KINDS = [SessionSettings, *speclab.strategies().values()]
MISTAKES = [
    *((SessionSettings, "max_new_tokens", value) for value in (0, -5, 2.5, "many", None)),
    *((SessionSettings, "temperature", value) for value in (-0.1, math.nan, math.inf, "hot")),
    *((SessionSettings, "top_k", value) for value in (0, -3)),
    *((SessionSettings, "top_p", value) for value in (0.0, 1.1, math.nan)),
    *((SessionSettings, "seed", value) for value in (-1, 2**63, 1.5)),
    (SessionSettings, "stop_at_eos", "maybe"), (SessionSettings, "check", 3),
    (DynaTree, "node_budget", 0), (DynaTree, "stop_probability", -1), (DynaTree, "prune_probability", 1),
    (DynaTree, "root", "sideways"), (DynaTree, "history", None), (LinearSpeculation, "draft_tokens", "five"),
    *((kind, name, True) for kind in KINDS for name, field in kind.model_fields.items()
      if type(field.default) in (int, float)),  # a number is never a truth
]  # fmt: skip


def test_a_setting_out_of_bounds():
    for kind, name, value in MISTAKES:
        with refused(SettingsError, "" if kind is SessionSettings else kind.__name__, name, "must", repr(value)):
            kind(**{name: value})


@pytest.mark.parametrize(
    ("mistake", "small", "large"),
    [
        ({"low_confidence": 0.95}, "low_confidence", "high_confidence"),
        ({"high_confidence": 0.3}, "low_confidence", "high_confidence"),
        ({"min_branches": 4}, "min_branches", "max_branches"),
        ({"base_depth": 9}, "base_depth", "max_depth"),
        ({"stop_probability": 0.6}, "stop_probability", "deep_probability"),
    ],
)
def test_settings_that_contradict_each_other(mistake, small, large):
    with refused(SettingsError, small, large, "above", "lower", "raise"):
        DynaTree(**mistake)


def test_settings_cannot_be_changed_in_place():
    strategy = DynaTree()
    with refused(SettingsError, "changed"):
        strategy.base_depth = 3
    assert strategy.changed(base_depth=3).base_depth == 3


ODD_NAMES = ("colour", "self", "values", "cls", "model_config", "__class__", "drafter", "", "\0", "x" * 300_000)
ODD_VALUES = (10**5000, "x" * 300_000, "\0\n\ud800", [[[]]], {"self": 1}, object(), math.nan, b"\xff")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_any_name_and_any_value_is_taken_or_refused_in_one_short_sentence(kind):
    """Names and values come from a command line."""
    odd = [*((name, 1) for name in ODD_NAMES), *product(kind.model_fields, ODD_VALUES)]
    for make, (name, value) in product((kind, kind().changed), odd):
        sentence = ""
        try:
            make(**{name: value})
        except SettingsError as error:
            sentence = str(error)
        assert len(sentence) <= 500
        assert not sentence or sentence.isprintable()
        assert name in kind.model_fields or kind.__name__ in sentence


@pytest.mark.parametrize("root", ["verified", "drafted"])
def test_a_tree_budget_of_one_is_plain_decoding(root):
    session = Session(PAIR, DynaTree(node_budget=1, root=root), [1, 2, 3], max_new_tokens=12)
    session.run()
    assert session.token_ids == speclab.generate(PAIR, Autoregressive(), [1, 2, 3], max_new_tokens=12).token_ids
    assert {len(step.tree) for step in session.steps} == {1}


def test_every_error_of_speclab_is_a_speclab_error():
    kinds = [kind for kind in vars(speclab.errors).values() if isinstance(kind, type)]
    assert kinds
    assert all(issubclass(kind, SpeclabError | Warning) for kind in kinds)
