"""What `--over` reads: ranges, lists, and what a field itself allows; anything else is one sentence."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal, get_origin

import optuna
import pytest

import speclab
from speclab import DualDraft, DynaTree, FixedTree, Goose, Retrieval, SettingsError
from speclab.bench.sweeping.reading import axes
from speclab.bench.sweeping.space import Span, Values, bounds, grid, words


def values(kind, text):
    return axes(kind, [text])[0].listed().values


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("high_confidence=0.7:0.9:0.1", (0.7, 0.8, 0.9)),
        ("high_confidence=0.5:0.99:0.2", (0.5, 0.7, 0.9)),
        ("high_confidence = 0.8, 0.9", (0.8, 0.9)),
        ("high_confidence=1e-1,1", (0.1, 1.0)),
        ("max_depth=8:11", (8, 9, 10, 11)),
        ("max_depth=8:20:5", (8, 13, 18)),
        ("max_depth=9,9,12", (9, 12)),
        ("min_branches=1:1", (1,)),
        ("history=off,prompt", ("off", "prompt")),
        ("history", ("iteration", "prompt", "off")),
        ("min_branches", tuple(range(1, 17))),
    ],
)
def test_a_text_gives_values_of_the_fields_own_type(text, found):
    got = values(DynaTree, text)
    assert got == found
    assert [type(value) for value in got] == [type(value) for value in found]


def test_a_range_of_floats_has_no_rounding_dirt():
    assert values(Goose, "smoothing=0.1:1:0.1") == (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def test_switches_texts_and_strategies_are_values_too():
    assert values(Goose, "spine_branches") == (False, True)
    assert values(Goose, "spine_branches=true") == (True,)
    assert values(Retrieval, 'text="one, two",three') == ("one, two", "three")
    got = values(DualDraft, "second=PromptLookup,DynaTree(base_depth=3, max_depth=4)")
    assert got == ("PromptLookup()", "DynaTree(base_depth=3, max_depth=4)")


def test_values_by_name_are_taken_as_they_are():
    found = axes(DynaTree, {"max_depth": range(8, 10), "history": None, "high_confidence": "0.8:0.9"})
    assert found == (
        Values("max_depth", (8, 9)),
        Values("history", ("iteration", "prompt", "off")),
        Span("high_confidence", Decimal("0.8"), Decimal("0.9"), None, whole=False),
    )


def test_a_value_that_only_contradicts_another_default_may_be_tried():
    """0.95 is above the default of high_confidence, which may be swept as well."""
    assert values(DynaTree, "low_confidence=0.3,0.95") == (0.3, 0.95)


NUMBERS = [
    (name, kind, field)
    for name, kind in speclab.strategies().items()
    for field, info in kind.model_fields.items()
    if info.annotation in {int, float}
]


@pytest.mark.parametrize(("name", "kind", "field"), NUMBERS, ids=[f"{name}.{field}" for name, _, field in NUMBERS])
def test_every_number_of_every_strategy_has_a_range_of_its_own(name, kind, field):
    """Its ends are taken by the field, what lies beyond is not, and the default lies between."""
    (axis,) = axes(kind, [field])
    low, high = bounds(kind.model_fields[field])
    number = kind.model_fields[field].annotation
    assert (axis.low, axis.high) == (low, high)
    for end in (low, high):
        assert values(kind, f"{field}={number(end)!r}") == (number(end),)
    for beyond in (low - 1, high + 1):
        with pytest.raises(SettingsError, match=field):
            axes(kind, [f"{field}={number(beyond)!r}"])
    assert kind.model_fields[field].default in axis


@pytest.mark.parametrize("kind", speclab.strategies().values(), ids=speclab.strategies())
def test_what_a_field_takes_is_said(kind):
    for info in kind.model_fields.values():
        closed = info.annotation in {int, float, bool} or get_origin(info.annotation) is Literal
        assert (words(info) != "any") == closed


REFUSED = [
    ("hight_confidence=0.8", "has no setting 'hight_confidence'; its settings are: high_confidence, "),
    ("high_confidence=1.5", "must be less than or equal to 1 (got 1.5); it takes 0 to 1; the settings are: "),
    ("high_confidence=0.5:1.5:0.1", "(got 1.5); it takes 0 to 1"),
    ("max_depth=3.5", "must be a valid integer"),
    ("max_depth=0:8", "greater than or equal to 1 (got 0); it takes 1 to 64"),
    ("max_depth=9:8", "max_depth=9:8 is no range"),
    ("max_depth=1:8:0", "max_depth=1:8:0 is no range"),
    ("max_depth=1:8:1.5", "is no range"),
    ("high_confidence=0.9:0.8:0.1", "is no range"),
    ("high_confidence=0.7:0.9", "needs a step, as in high_confidence=0.7:0.9:0.1"),
    ("high_confidence", "needs a step"),
    ("history=sometimes", "'iteration', 'prompt' or 'off' (got 'sometimes')"),
    ("max_depth=", "max_depth"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_cannot_be_swept_is_one_sentence(text, said):
    with pytest.raises(SettingsError) as caught:
        values(DynaTree, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_field_without_a_range_asks_for_values():
    with pytest.raises(SettingsError, match=r"Retrieval: text has no range of its own: list its values"):
        axes(Retrieval, ["text"])


def test_a_wrong_field_lists_every_field():
    with pytest.raises(SettingsError) as caught:
        axes(Goose, ["nonsense=1"])
    assert all(name in str(caught.value) for name in Goose.model_fields)


@pytest.mark.parametrize(("over", "said"), [([], "Nothing to sweep over"), (["depth=1", "depth=2"], "twice")])
def test_a_sweep_needs_each_field_once(over, said):
    with pytest.raises(SettingsError, match=said):
        axes(FixedTree, over)


def test_a_grid_is_every_combination_but_the_default():
    listed = axes(FixedTree, ["depth=5,6", "branching=2,3"])
    assert grid(FixedTree, listed) == [
        {"depth": 5, "branching": 3},
        {"depth": 6, "branching": 2},
        {"depth": 6, "branching": 3},
    ]


def test_a_grid_too_large_is_refused_before_it_begins():
    listed = [axis.listed() for axis in axes(FixedTree, ["depth", "branching", "node_budget=1:30"])]
    with pytest.raises(SettingsError, match="15,360 settings"):
        grid(FixedTree, listed)


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("high_confidence=0.7:0.9", optuna.distributions.FloatDistribution(0.7, 0.9)),
        ("high_confidence=0.7:0.9:0.1", optuna.distributions.FloatDistribution(0.7, 0.9, step=0.1)),
        ("max_depth=1:8", optuna.distributions.IntDistribution(1, 8)),
        ("max_depth=1:9:2", optuna.distributions.IntDistribution(1, 9, step=2)),
        ("node_budget", optuna.distributions.IntDistribution(1, 1024, log=True)),
        ("history", optuna.distributions.CategoricalDistribution(("iteration", "prompt", "off"))),
    ],
)
def test_a_study_searches_the_range_as_it_is(text, distribution):
    (axis,) = axes(DynaTree, [text])
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)).ask()
    value = axis.suggest(trial)
    assert value in axis
    assert not isinstance(value, float) or len(repr(value)) <= 6, "to be pasted as code"
    assert trial.distributions == {axis.name: distribution}
