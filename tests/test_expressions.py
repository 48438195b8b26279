"""Conditions as expressions: what they mean, and what is refused, where, and in which words."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import TREE, step_of

from speclab.errors import ExpressionError, SettingsError
from speclab.trace.conditions import parse
from speclab.trace.expressions import FACTS, LONGEST
from speclab.trace.records import Adaptation

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
        ('"rejected" in verdicts or nodes >= 24', True),
        ('"accepted" in verdicts', False),
        ('"accepted" not in verdicts', True),
        ('"the" in text', True),
        ('text == " the\\n"', True),
        ('"The" in text', False),
        ("3 in tokens and 4 not in tokens", True),
        ('route == "both"', True),
        ('route in ("both", "copy")', True),
        ('route in ["copy"]', False),
        ("iteration == 3 and index == 2", True),
        ("nodes == 4 and depth == 2 and width == 2", True),
        ("drafted == 3 and rejected == 3 and committed == 2", True),
        ("0.3 < acceptance < 0.4", True),
        ("confidence == 0.5", True),
        ("high_confidence > 0.8", True),
        ("settings.base_depth == 5", True),
        ("history", True),
        ("history and not adapted", False),
        ('root == "verified"', True),
        ('"base_depth" in changed', True),
        ('"draft" in sources', True),
        ("seconds.draft > 0.2 and seconds > seconds.draft", True),
        ("not mask_differs", True),
        ("corrected", False),
        ("bonus == None", True),
        ("bonus != None", False),
        ("node_budget == None", True),
        ("  accepted\n < 2 ", True),
    ],
)
def test_an_expression_holds_where_it_should(text, holds):
    assert parse(text)(STEP) is holds


@pytest.mark.parametrize(
    "text",
    ["node_budget > 1", "node_budget", "node_budget < 1", "node_budget == 1", "node_budget != 1", 'bonus != "x"',
     'bonus in ("x", "y")',
     "seconds.commit < 1", "branching > 0", "high_confidence == 1", 'base_depth == "5"', "previous.accepted < 9",
     "route != previous.route", '"x" in previous.text'],
)  # fmt: skip
def test_what_a_step_lacks_meets_no_comparison(text):
    assert parse(text)(STEP) is False


def test_an_iteration_is_compared_with_the_one_before():
    condition = parse("committed > previous.committed and not previous.adapted and previous.settings.base_depth == 5")
    assert condition.following(FORMER)(STEP) is True
    assert condition.following(STEP)(STEP) is False


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("", 1, "An empty expression"),
        ("   ", 1, "An empty expression"),
        ("accepted <", 11, "does not read as an expression"),
        ('text contains "the"', 6, 'write "the" in text'),
        ("accepted = 2", 10, "compared with =="),
        ("accepted < 2 && entropy > 3", 15, "write and"),
        ("accepted <= ", 12, "does not read"),
        ("acepted < 2", 1, r"no step has the name acepted \(did you mean accepted\?\); names are iteration, index"),
        ("accepted < 2 and entropie > 3", 18, "did you mean entropy"),
        ("  acepted < 2", 3, "acepted"),
        ('"é" in text and acepted < 2', 17, "acepted"),
        ("accepted", 1, "accepted is a number: compare it"),
        ("not accepted", 5, "accepted is a number"),
        ("verdicts", 1, "verdicts is a list of texts"),
        ("3", 1, "3 is a number"),
        ('accepted < "2"', 12, 'a number accepted and a text "2" cannot be compared so'),
        ("text < text", 8, "cannot be compared so"),
        ('"x" in accepted', 8, "to the right of in"),
        ("text in tokens", 9, "to the right of in"),
        ("adapted == 1", 12, "cannot be compared so"),
        ("bonus is None", 10, "write == for is"),
        ("accepted in (1, 'a')", 13, "numbers alone"),
        ("accepted in ()", 13, "numbers alone"),
        ("accepted in (depth, 2)", 13, "numbers alone"),
        ("accepted + 1 > 2", 1, "only comparisons"),
        ("len(tokens) > 2", 1, "only comparisons"),
        ("__import__('os').system('x') == 0", 1, "only comparisons"),
        ("text.__class__ == 1", 1, "no step has the name text.__class__"),
        ("().__class__ == 1", 1, "no step has the name"),
        ("tokens[0] == 3", 1, "only comparisons"),
        ("(lambda: 1) == 1", 2, "only comparisons"),
        ("[x for x in tokens] == 1", 1, "only comparisons"),
        ("(x := 1) == 1", 2, "only comparisons"),
        ("f'{text}' == text", 1, "only comparisons"),
        ("accepted < 1j", 12, "neither a number nor a text"),
        ("accepted < ...", 12, "neither a number nor a text"),
        ("seconds.sleep > 1", 1, "no step has the name seconds.sleep"),
        ("previous > 1", 1, "no step has the name previous"),
        ("accepted\0 < 2", None, "does not read"),
        ("(" * 300, None, "does not read"),
        ("not " * 100 + "adapted" + " " * LONGEST, LONGEST, "at most"),
    ],
)
def test_what_does_not_read_is_refused_in_one_sentence_with_its_place(text, column, says):
    with pytest.raises(ExpressionError, match=says) as caught:
        parse(text)
    assert isinstance(caught.value, SettingsError)
    assert column is None or caught.value.column == column
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_answered_with_every_name():
    with pytest.raises(ExpressionError) as caught:
        parse("colour == 1")
    assert all(name in str(caught.value) for name in FACTS)


@given(st.text("accept<=>ndor() \"'.,0189_[]{}:+-*/%é\n\\", max_size=60))
def test_no_text_does_more_than_read_or_be_refused(text):
    held = None
    with suppress(ExpressionError):
        held = parse(text)(STEP)
    assert held in {None, True, False}


def test_every_fact_is_read_from_a_step_as_the_kind_it_names():
    kinds = {"number": (int, float), "text": str, "truth": bool, "numbers": tuple, "texts": tuple}
    filled = replace(STEP, bonus=1)
    for name, fact in FACTS.items():
        value = fact.of(filled)
        assert isinstance(value, kinds[fact.kind]), name
        assert fact.meaning
