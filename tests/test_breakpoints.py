"""Conditions to run until, on iterations whose outcome is known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from speclab.errors import SettingsError
from speclab.trace import conditions as breakpoints
from speclab.trace.conditions import BREAKPOINTS


def step(**changes):
    facts = {
        "counts": SimpleNamespace(accepted=2),
        "nodes": [
            SimpleNamespace(verdict=v, entropy=e) for v, e in (("root", 0.5), ("accepted", 1.5), ("rejected", 9.0))
        ],
        "committed": (4, 5),
        "texts": {4: " the", 5: " end"},
        "accepted": (1,),
        "tree": [0, 1, 2],
        "events": (),
        "adaptation": SimpleNamespace(before={"a": 1}, after={"a": 1}),
    }
    return SimpleNamespace(**{**facts, **changes})


@pytest.mark.parametrize(
    ("until", "holds"),
    [
        (breakpoints.fewer_accepted(2), False),
        (breakpoints.fewer_accepted(3), True),
        (breakpoints.token_rejected(), True),
        (breakpoints.token_appears(5), True),
        (breakpoints.token_appears(6), False),
        (breakpoints.text_appears("the end"), True),
        (breakpoints.text_appears("The"), False),
        (breakpoints.entropy_above(1.4), True),
        (breakpoints.entropy_above(1.5), False),
        (breakpoints.tree_exceeds(2), True),
        (breakpoints.tree_exceeds(3), False),
        (breakpoints.settings_change(), False),
    ],
)
def test_a_condition_holds_where_it_should(until, holds):
    assert until(step()) is holds


def test_nothing_rejected_and_changed_settings():
    calm = step(nodes=[SimpleNamespace(verdict="accepted", entropy=0.0)] * 2, accepted=(1,))
    assert not breakpoints.token_rejected()(calm)
    assert breakpoints.settings_change()(step(adaptation=SimpleNamespace(before={"a": 1}, after={"a": 2})))


def test_an_empty_text_is_refused():
    with pytest.raises(SettingsError, match="name a text"):
        breakpoints.text_appears("")


def routed(index, name):
    events = (SimpleNamespace(kind="route", values={"route": name}, reason=""),) if name else ()
    return step(index=index, events=events)


def test_a_changed_route_shows_against_the_step_before_wherever_one_begins():
    steps = [routed(i, name) for i, name in enumerate(["copy", "copy", "plain", "plain", None, "plain", "copy"])]
    condition = breakpoints.route_changes()
    for begin in range(len(steps)):
        holds = breakpoints.following(condition, steps[begin - 1] if begin else None)
        assert [i for i in range(begin, len(steps)) if holds(steps[i])] == [i for i in (2, 6) if i >= begin]
    assert not condition(steps[2]), "alone, a step has nothing to differ from"


def test_conditions_combine_with_each_other_with_functions_and_with_expressions():
    calm, wild = step(), step(counts=SimpleNamespace(accepted=0))
    both = breakpoints.all_of("accepted < 2", breakpoints.token_rejected())
    either = breakpoints.any_of(lambda step: step is calm, "accepted < 1")
    neither = breakpoints.none_of("accepted < 2", breakpoints.tree_exceeds(3))
    assert [both(calm), both(wild)] == [False, True]
    assert [either(calm), either(wild), either(step())] == [True, True, False]
    assert [neither(calm), neither(wild)] == [True, False]


def test_a_combination_looks_back_too():
    until = breakpoints.following(breakpoints.all_of("accepted < 3", breakpoints.route_changes()), None)
    assert [until(routed(i, name)) for i, name in enumerate(["copy", "plain", "plain"])] == [False, True, False]


def test_what_is_no_condition_is_refused():
    with pytest.raises(SettingsError, match="no condition: give an expression"):
        breakpoints.following(3, None)
    assert not breakpoints.following(None, None)(step())


def test_every_condition_on_offer_can_be_made_with_its_default():
    for point in BREAKPOINTS:
        assert isinstance(point.until(point.default)(step()), bool)
