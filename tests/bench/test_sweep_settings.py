"""What `--over` reads: ranges, lists, and what a field itself allows; anything else is one sentence."""

from __future__ import annotations

from typing import Literal, get_args, get_origin

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

import speclab
from speclab import DualDraft, DynaTree, FixedTree, Goose, Retrieval, SettingsError
from speclab.bench.sweep_ranges import grid, read_over, short, takes
from speclab.settings import bounds


def values(kind, text):
    (name,) = read_over(kind, [text])
    default = kind().model_dump()[name]
    listed = [point[name] for point in grid(kind, read_over(kind, [text]))]
    return listed, default


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("high_confidence=0.7:0.9:0.1", [0.7, 0.8]),  # without the default, 0.9
        ("high_confidence=0.5:0.99:0.2", [0.5, 0.7]),
        ("high_confidence = 0.8, 0.85", [0.8, 0.85]),
        ("high_confidence=1e-1,1", [0.1, 1.0]),
        ("prune_probability=0.1:0.9:0.1", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),  # no rounding errors
        ("max_depth=9:12", [9, 10, 11, 12]),
        ("max_depth=9:20:5", [9, 14, 19]),
        ("max_depth=9,9,12", [9, 12]),
        ("history=off,prompt", ["off", "prompt"]),
        ("history", ["prompt", "off"]),
        ("low_confidence=0.35,0.95", [0.35, 0.95]),  # contradicts a default that may be swept as well
    ],
)
def test_a_text_gives_values_of_the_fields_own_type(text, found):
    got, default = values(DynaTree, text)
    assert got == [value for value in found if value != default]
    assert {type(value) for value in got} == {type(default)}


def test_switches_texts_and_strategies_are_values_too():
    def choices(kind, text):
        (own,) = read_over(kind, [text]).values()
        return own.choices

    assert choices(Goose, "spine_branches") == (False, True)
    assert choices(Goose, "spine_branches=true") == (True,)
    assert choices(Retrieval, 'text="one, two",three') == ("one, two", "three")
    got = choices(DualDraft, "second=PromptLookup,DynaTree(base_depth=3, max_depth=4)")
    assert got == ("PromptLookup(budget='fixed')", "DynaTree(base_depth=3, max_depth=4)")


def test_values_by_name_are_taken_as_they_are():
    found = read_over(DynaTree, {"max_depth": range(8, 10), "history": None, "high_confidence": "0.8:0.9"})
    assert found == {
        "max_depth": CategoricalDistribution((8, 9)),
        "history": CategoricalDistribution(("iteration", "prompt", "off")),
        "high_confidence": FloatDistribution(0.8, 0.9),
    }


@pytest.mark.parametrize("kind", speclab.strategies().values(), ids=speclab.strategies())
def test_every_number_of_every_strategy_has_a_range_of_its_own_and_says_it(kind):
    """Its ends are taken by the field, what lies beyond is not, and the default lies between."""
    for name, field in kind.model_fields.items():
        number = next((kind for kind in get_args(field.annotation) if kind in {int, float}), field.annotation)
        closed = number in {int, float, bool} or get_origin(number) is Literal
        assert (takes(field) != "any") == closed
        if number not in {int, float}:
            continue
        (own,) = read_over(kind, [name]).values()
        low, high = bounds(field)
        assert (own.low, own.high) == (low, high)
        for beyond in (low - 1, high + 1):
            with pytest.raises(SettingsError, match=name):
                read_over(kind, [f"{name}={number(beyond)!r}"])
        assert field.default is None or own.low <= field.default <= own.high
        for end in (number(low), number(high)):
            assert read_over(kind, [f"{name}={end!r}"])[name].choices == (end,)


REFUSED = [
    (DynaTree, "hight_confidence=0.8", "has no setting 'hight_confidence'; its settings are: high_confidence, "),
    (DynaTree, "high_confidence=1.5", "must be less than or equal to 1 (got 1.5); it takes 0 to 1"),
    (DynaTree, "high_confidence=0.5:1.5:0.1", "(got 1.5); it takes 0 to 1"),
    (DynaTree, "max_depth=3.5", "must be a valid integer"),
    (DynaTree, "max_depth=0:8", "greater than or equal to 1 (got 0); it takes 1 to 64"),
    (DynaTree, "max_depth=9:8", "max_depth=9:8 is no range"),
    (DynaTree, "max_depth=1:8:0", "max_depth=1:8:0 is no range"),
    (DynaTree, "max_depth=1:8:1.5", "is no range"),
    (DynaTree, "high_confidence=0.7:0.9", "needs a step, as in high_confidence=0.7:0.9:0.1"),
    (DynaTree, "history=sometimes", "'iteration', 'prompt' or 'off' (got 'sometimes')"),
    (DynaTree, "max_depth=", "max_depth has no values"),
    (Retrieval, "text", "Retrieval: text has no range of its own: list its values"),
]


@pytest.mark.parametrize(("kind", "text", "said"), REFUSED, ids=[text for _, text, _ in REFUSED])
def test_what_cannot_be_swept_is_one_sentence(kind, text, said):
    with pytest.raises(SettingsError) as caught:
        grid(kind, read_over(kind, [text]))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ([], "Nothing to sweep over"),
        (["depth=1", "depth=2"], "twice"),
        (["depth", "branching", "node_budget=1:30"], "15,360 settings"),
    ],
)
def test_a_grid_has_each_field_once_and_is_not_too_large(over, said):
    with pytest.raises(SettingsError, match=said):
        grid(FixedTree, read_over(FixedTree, over))


def test_a_grid_is_every_combination_but_the_default():
    assert grid(FixedTree, read_over(FixedTree, ["depth=5,6", "branching=2,3"])) == [
        {"depth": 5, "branching": 3},
        {"depth": 6, "branching": 2},
        {"depth": 6, "branching": 3},
    ]


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("high_confidence=0.7:0.9", FloatDistribution(0.7, 0.9)),
        ("high_confidence=0.7:0.95:0.1", FloatDistribution(0.7, 0.9, step=0.1)),
        ("prune_probability=0.001:0.1", FloatDistribution(0.001, 0.1, log=True)),
        ("max_depth=1:8", IntDistribution(1, 8)),
        ("max_depth=1:10:2", IntDistribution(1, 9, step=2)),
        ("node_budget", IntDistribution(1, 1024, log=True)),
    ],
)
def test_a_study_searches_the_range_as_it_is(text, distribution):
    ((name, own),) = read_over(DynaTree, [text]).items()
    assert own == distribution
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)).ask({name: own})
    value = short(own, trial.params[name])
    optuna.trial.create_trial(params={name: value}, distributions={name: own}, value=0.0)  # raises beyond the range
    assert not isinstance(value, float) or len(repr(value)) <= 8, "to be pasted as code"
