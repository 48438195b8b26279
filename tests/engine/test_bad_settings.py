"""Settings out of bounds, contradictory, misspelt: one sentence each; and the smallest that are still fine."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import PAIR, WAYS, both_ways, refused

import speclab
from speclab import Autoregressive, DynaTree, FixedTree, LinearSpeculation, Session, SettingsError
from speclab.settings import SessionSettings

# Settings of a session


SESSION_MISTAKES = {
    "max_new_tokens": (0, -5, 2.5, "many", None, True),
    "temperature": (-0.1, math.nan, math.inf, "hot", False),
    "top_k": (0, -3, True),
    "top_p": (0.0, 1.1, math.nan, True),
    "seed": (-1, 2**63, 1.5, True),
    "stop_at_eos": ("maybe",),
    "check": (3,),
    "acceptance": ("loose",),
    "typical_epsilon": (0.0,),
    "typical_delta": (1.5,),
}


@pytest.mark.parametrize("name", SESSION_MISTAKES)
def test_a_session_setting_out_of_bounds(name):
    for value in SESSION_MISTAKES[name]:
        with refused(SettingsError, name, "must", repr(value)):
            SessionSettings(**{name: value})


@both_ways
def test_a_setting_out_of_bounds_and_a_misspelt_one(way):
    with refused(SettingsError, "temperature", "must", "-1"):
        way(PAIR, DynaTree(), [1, 2], temperature=-1)
    with refused(SettingsError, "temprature", "temperature", "max_new_tokens"):
        way(PAIR, DynaTree(), [1, 2], temprature=1.0)


# Settings of strategies


STRATEGY_MISTAKES = {
    DynaTree: {
        "high_confidence": (1.5,), "low_confidence": (-0.1,), "min_branches": (0,), "max_branches": (1000,),
        "base_depth": (0,), "max_depth": (10**6,), "stop_probability": (-1, False), "deep_probability": (2,),
        "prune_probability": (1, math.nan), "node_budget": (0, -1, True), "root": ("sideways",), "commit": ("hope",),
        "drafting": (None,), "history": ("always",),
    },
    FixedTree: {"depth": (0,), "branching": (0, 2.5), "candidates": ("some",)},
    LinearSpeculation: {"draft_tokens": (0, "five", True), "confidence_stop": (1.0,)},
}  # fmt: skip


@pytest.mark.parametrize("kind", STRATEGY_MISTAKES)
def test_a_strategy_setting_out_of_bounds(kind):
    for name, values in STRATEGY_MISTAKES[kind].items():
        for value in values:
            with refused(SettingsError, kind.__name__, name, "must", repr(value)):
                kind(**{name: value})


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


def test_a_number_is_never_a_truth_and_a_truth_stays_one():
    """Of every strategy and setting."""
    for kind in (speclab.settings.SessionSettings, *speclab.strategies().values()):
        for name, field in kind.model_fields.items():
            if isinstance(field.default, int | float) and not isinstance(field.default, bool):
                with refused(SettingsError, kind.__name__, name, "must be a number", "True"):
                    kind(**{name: True})
    assert speclab.settings.SessionSettings(check=True, stop_at_eos=False).check is True


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


# Names and values that are no settings at all

ODD_NAMES = (
    "self",
    "values",
    "cls",
    "model_config",
    "model_fields",
    "__class__",
    "__dict__",
    "drafter",
    "",
    "\0",
    "x" * 300_000,
)
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
