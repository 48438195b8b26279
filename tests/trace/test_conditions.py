"""Conditions to run until: what an expression means, what is refused, where, and with which way out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import TREE, step_of

from speclab.drafters import setting_names
from speclab.errors import ExpressionError, SettingsError
from speclab.trace.conditions import BREAKPOINTS, LONGEST, STEP_FIELDS, compiled, parse, stateful
from speclab.trace.records import Adaptation, Event

NAMES = setting_names()
STEP = step_of(TREE, index=2)
STEP = replace(
    STEP,
    settings={**STEP.settings, "node_budget": None},
    nodes=(replace(STEP.nodes[0], verdict="root", target_prob=None), *STEP.nodes[1:]),
    committed=(3, 1),
    counts=replace(STEP.counts, committed=2, drafted=3),
)
FORMER = replace(STEP, index=1, committed=(3,), adaptation=Adaptation("calm"))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("accepted < 2", True),
        ("accepted < 1", False),
        ("1 <= accepted < 2", True),
        ("accepted < 2 and entropy > 3", False),
        ("accepted < 2 or entropy > 3", True),
        ("not entropy > 1.4", False),
        ("accepted > -1", True),
        ("accepted + 2 - 1 == committed and -accepted < index - 2", True),
        ("settings.base_depth + 1 > 5 and seconds.draft - seconds < 0", True),
        ('"rejected" in verdicts or nodes >= 24', True),
        ('"accepted" not in verdicts', True),
        ('"the" in text', True),
        ('text == " the\\n"', True),
        ('"The" in text', False),
        ("3 in tokens and 4 not in tokens", True),
        ('route == "both" and route in ("both", "copy") and route not in ["copy"]', True),
        ("iteration == 3 and index == 2", True),
        ("nodes == 4 and depth == 2 and width == 2", True),
        ("drafted == 3 and rejected == 3 and committed == 2", True),
        ("0.3 < acceptance < 0.4", True),
        ("confidence == 0.5", True),
        ("high_confidence > 0.8 and settings.base_depth == 5", True),
        ("history", True),
        ("history and not adapted", False),
        ('root == "verified" and "base_depth" in changed and "draft" in sources', True),
        ("not mask_differs", True),
        ("corrected", False),
        ("bonus == None", True),
        ("bonus != None", False),
        ("node_budget == None", True),
        ("  accepted\n < 2 ", True),
    ],
)
def test_an_expression_holds_where_it_should(text, holds):
    assert parse(text, NAMES)(STEP) is holds


@pytest.mark.parametrize(
    "text",
    ["node_budget > 1", "node_budget", "node_budget < 1", "node_budget == 1", "node_budget != 1", 'bonus != "x"',
     'bonus in ("x", "y")', "seconds.commit < 1", "branching > 0", "high_confidence == 1", 'base_depth == "5"',
     "previous.accepted < 9", "previous.accepted + 1 > 0", "-node_budget < 1", "root - 1 < 9",
     "route != previous.route", '"x" in previous.text'],
)  # fmt: skip
def test_what_a_step_lacks_satisfies_no_comparison(text):
    assert parse(text, NAMES)(STEP) is False


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", None, "is empty: enter one"),
        ("   ", None, "is empty: enter one"),
        ("accepted <", 11, "cannot be read"),
        ('text contains "the"', 6, 'write "the" in text'),
        ("accepted = 2", 10, "compared with =="),
        ("accepted < 2 && entropy > 3", 15, "write and"),
        ("acepted < 2", 1, r"no step has the name acepted: did you mean accepted\b"),
        ("accepted < 2 and entropie > 3", 18, "did you mean entropy"),
        ("nodebudget > 2", 1, "did you mean node_budget"),
        ("colour == 1", 1, "no step has the name colour"),
        ("  acepted < 2", 3, "acepted"),
        ('"é" in text and acepted < 2', 17, "acepted"),
        ("accepted", 1, "accepted is a number: compare it"),
        ("not accepted", 5, "accepted is a number"),
        ("verdicts", 1, "verdicts is a list of texts"),
        ("3", 1, "3 is a number"),
        ('accepted < "2"', 12, 'the number accepted and the text "2" cannot be compared'),
        ("text < text", 8, "cannot be compared"),
        ('"x" in accepted', 8, "to the right of in"),
        ("text in tokens", 9, "to the right of in"),
        ("adapted == 1", 12, "cannot be compared"),
        ("bonus is None", 10, "write == for is"),
        ("accepted in (1, 'a')", 13, "numbers alone"),
        ("accepted in ()", 13, "numbers alone"),
        ("accepted in (depth, 2)", 13, "numbers alone"),
        ("text + 1 > 2", 1, "text is a text: only numbers"),
        ("2 ** 9 ** 9 ** 9 > 1", 1, "only comparisons"),
        ("accepted * 2 > 2", 1, "only comparisons"),
        ("~accepted > 2", 1, "only comparisons"),
        ("len(tokens) > 2", 1, "only comparisons"),
        ("__import__('os').system('x') == 0", 1, "only comparisons"),
        ("text.__class__ == 1", 1, "no step has the name text.__class__"),
        ("().__class__ == 1", 1, "no step has the name"),
        ("tokens[0] == 3", 1, "only comparisons"),
        ("(lambda: 1) == 1", 2, "only comparisons"),
        ("[x for x in tokens] == 1", 1, "only comparisons"),
        ("(x := 1) == 1", 2, "only comparisons"),
        ("f'{text}' == text", 1, "only comparisons"),
        ("accepted < 1j", 12, "neither a number"),
        ("accepted < ...", 12, "neither a number"),
        ("accepted < " + "9" * 400, 12, "neither a number up to"),
        ("seconds.sleep > 1", 1, "no step has the name seconds.sleep"),
        ("previous > 1", 1, "no step has the name previous"),
        ("accepted\0 < 2", None, "cannot be read"),
        ("(" * 300, None, "cannot be read"),
        ("-" * 400 + "1 < 2", None, "at most 100 levels"),
        ("1" + "+1" * 200 + " < 2", None, "at most 100 levels"),
        ("not " * 100 + "adapted" + " " * LONGEST, LONGEST, "at most"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence_with_its_place(text, column, says):
    with pytest.raises(ExpressionError, match=says) as caught:
        parse(text, NAMES)
    assert column is None or caught.value.column == column
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


@settings(max_examples=40)
@given(st.text("accepted<=>ndor() \"'.,0189_[]{}:+-*/%é\n\\", max_size=60))
def test_no_text_does_more_than_read_or_be_refused(text):
    with suppress(ExpressionError):
        assert parse(text, NAMES)(STEP) in {True, False}


def test_every_field_is_read_from_a_step_as_the_kind_it_names():
    kinds = {"number": (int, float), "text": str, "truth value": bool, "list of numbers": tuple, "list of texts": tuple}
    for name, field in STEP_FIELDS.items():
        assert isinstance(field.of(replace(STEP, bonus=1)), kinds[field.kind]), name
        assert field.meaning


def test_an_expression_sees_the_iteration_before():
    condition = parse(
        "committed > previous.committed and not previous.adapted and previous.settings.base_depth == 5", NAMES
    )
    assert stateful(condition, FORMER)(STEP) is True
    assert stateful(condition, STEP)(STEP) is False


def test_a_changed_route_is_found_wherever_a_run_goes_on():
    routes = ["copy", "copy", "plain", "plain", None, "plain", "copy"]
    steps = [
        replace(STEP, index=i, events=(Event("route", None, name),) if name else ()) for i, name in enumerate(routes)
    ]
    condition = parse("route != previous.route")
    for begin in range(len(steps)):
        holds = stateful(condition, steps[begin - 1] if begin else None)
        assert [i for i in range(begin, len(steps)) if holds(steps[i])] == [i for i in (2, 6) if i >= begin]
    assert not condition(steps[2]), "alone, a step has nothing to differ from"


def test_a_condition_is_a_function_an_expression_or_nothing():
    assert compiled("accepted < 2")(STEP)
    assert stateful(compiled(lambda step: step is STEP), None)(STEP)
    assert not compiled(None)(STEP)
    with pytest.raises(SettingsError, match="no condition: give an expression"):
        compiled(3)


EXPECTED = {
    "a token is rejected": (None, True), "fewer accepted than": (2, True), "the text appears": (" the\n", True),
    "the token id appears": (4, False), "target entropy above (nats)": (1.5, False),
    "the tree has more nodes than": (3, True), "settings change": (None, True), "the route changes": (None, False),
    "the expression holds": ('root == "verified"', True),
}  # fmt: skip


@pytest.mark.parametrize("point", BREAKPOINTS, ids=lambda point: point.label)
def test_a_breakpoint_holds_where_it_should(point):
    argument, holds = EXPECTED[point.label]
    assert point.parse(argument, NAMES)(STEP) is holds
    assert isinstance(point.parse(point.default, NAMES)(STEP), bool)
    if isinstance(point.default, str):
        with pytest.raises(SettingsError, match="enter"):
            point.parse("", NAMES)
