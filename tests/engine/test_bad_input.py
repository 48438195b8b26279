"""What a person may get wrong: one clear sentence, its cause and the way out, and nothing decoded is lost."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from refusals import LONE, PAIR, SHORT, VOCAB, WAYS, both_ways, refused
from words import word_tokenizer

import speclab
from speclab import (
    Autoregressive,
    ContextExceededError,
    DynaTree,
    FixedTree,
    LinearSpeculation,
    NoDraftError,
    PromptError,
    Session,
    SettingsError,
    SpeclabError,
)
from speclab.models.pair import ModelPair
from speclab.settings import SessionSettings

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
@pytest.mark.parametrize(
    "strategy",
    [DynaTree(), FixedTree(), LinearSpeculation()],
    ids=["dynatree", "tree", "chain"],
)
def test_a_strategy_that_needs_a_draft_model(way, strategy):
    with refused(NoDraftError, type(strategy).__name__, "draft="):
        way(LONE, strategy, [1, 2], max_new_tokens=4)


# Moving in time, and forks


@pytest.fixture
def session() -> Session:
    session = Session(SHORT, DynaTree(), [1, 2, 3], max_new_tokens=10)
    session.run()
    return session


@pytest.mark.parametrize("index", [-1, 99, 1.5, "1"])
def test_going_where_nothing_is_decoded(session, index):
    shown = session.cursor
    for move in (session.goto, session.fork):
        with refused(SettingsError, str(index), str(len(session.steps))):
            move(index)
    assert session.cursor == shown


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


# Settings


MISTAKES = {
    SessionSettings: {
        "max_new_tokens": (0, -5, 2.5, "many", None, True),
        "temperature": (-0.1, math.nan, math.inf, "hot", False),
        "top_k": (0, -3, True),
        "top_p": (0.0, 1.1, math.nan, True),
        "seed": (-1, 2**63, 1.5, True),
        "stop_at_eos": ("maybe",),
        "check": (3,),
    },
    DynaTree: {"node_budget": (0, True), "stop_probability": (-1, False), "prune_probability": (1, math.nan),
               "root": ("sideways",), "history": (None,)},
    LinearSpeculation: {"draft_tokens": (0, "five", 2.5)},
}  # fmt: skip


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_setting_out_of_bounds(kind):
    for name, values in MISTAKES[kind].items():
        for value in values:
            with refused(SettingsError, "" if kind is SessionSettings else kind.__name__, name, "must", repr(value)):
                kind(**{name: value})


CONTRADICTIONS = [
    ({"low_confidence": 0.95}, "low_confidence", "high_confidence"),
    ({"high_confidence": 0.3}, "low_confidence", "high_confidence"),
    ({"min_branches": 4}, "min_branches", "max_branches"),
    ({"base_depth": 9}, "base_depth", "max_depth"),
    ({"max_depth": 4}, "base_depth", "max_depth"),
    ({"stop_probability": 0.6}, "stop_probability", "deep_probability"),
]


def test_settings_that_contradict_each_other():
    for mistake, small, large in CONTRADICTIONS:
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


def test_what_is_no_pair():
    for wrong in ("mini", None, PAIR.target):
        for way in WAYS:
            with refused(SettingsError, "pair", "load_pair"):
                way(wrong, DynaTree(), [1, 2], max_new_tokens=4)


def test_what_is_no_run():
    for wrong in ("run.json.gz", None, PAIR):
        with refused(SettingsError, "Expected a session"):
            speclab.replay(wrong, DynaTree())


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


def test_a_number_is_never_a_truth_and_a_truth_stays_one():
    """Of every strategy and setting."""
    for kind in (SessionSettings, *speclab.strategies().values()):
        for name, field in kind.model_fields.items():
            if isinstance(field.default, int | float) and not isinstance(field.default, bool):
                with refused(SettingsError, kind.__name__, name, "must be a number", "True"):
                    kind(**{name: True})
    assert SessionSettings(check=True, stop_at_eos=False).check is True


# Names and values that are no settings at all

ODD_NAMES = ("self", "values", "cls", "model_config", "__class__", "__dict__", "drafter", "", "\0", "x" * 300_000)
ODD_VALUES = (10**5000, "x" * 300_000, "\0\n\ud800", [[[]]], {"self": 1}, object(), math.nan, b"\xff")


@pytest.mark.parametrize("kind", [SessionSettings, *speclab.strategies().values()], ids=lambda kind: kind.__name__)
def test_any_name_and_any_value_is_taken_or_refused_in_one_short_sentence(kind):
    """Names come from a command line; errors of one sentence must not become one of 300,000 characters."""
    for make in (kind, kind().changed):
        for name in ODD_NAMES:
            sentence = _refusal(make, name, 1)
            assert sentence
            assert len(sentence) <= 500
        for name, value in product(kind.model_fields, ODD_VALUES):
            sentence = _refusal(make, name, value)
            assert len(sentence) <= 500
            assert not sentence or sentence.isprintable()


def _refusal(make, name, value) -> str:
    """The sentence; none where it is taken."""
    try:
        make(**{name: value})
    except SettingsError as error:
        return str(error)
    return ""


# Every error is one family


def test_every_error_of_speclab_is_a_speclab_error():
    kinds = [kind for kind in vars(speclab.errors).values() if isinstance(kind, type)]
    assert len(kinds) >= 13
    assert all(issubclass(kind, SpeclabError | Warning) for kind in kinds)
    assert all(kind.__doc__ for kind in kinds)
