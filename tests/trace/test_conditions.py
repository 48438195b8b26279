"""Conditions to run until: what an expression means, and what is refused with which way out."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_runner import table_pair
from support.traces import TREE, step_of

import speclab
from speclab.drafters import setting_names
from speclab.errors import ExpressionError, SettingsError
from speclab.trace.conditions import LONGEST, STEP_FIELDS, compiled, parse
from speclab.trace.records import Event

NAMES = setting_names()
STEP = step_of(TREE, index=2)
STEP = replace(
    STEP,
    settings={**STEP.settings, "node_budget": None},
    nodes=(replace(STEP.nodes[0], verdict="root", target_prob=None), *STEP.nodes[1:]),
    committed=(3, 1),
    counts=replace(STEP.counts, committed=2, drafted=3),
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("accepted < 2", True),
        ("1 <= accepted < 2", True),
        ("accepted + 2 - 1 == committed and -accepted < index - 2", True),
        ("nodes * 2 == 8 and nodes / 2 == 2", True),
        ("settings.base_depth + 1 > 5 and seconds.draft - seconds < 0", True),
        ('"rejected" in verdicts and "accepted" not in verdicts', True),
        ('"the" in text and not "The" in text', True),
        ("3 in tokens and 4 not in tokens", True),
        ('route == "both" and route in ("both", "copy") and route not in ["copy"]', True),
        ("iteration == 3 and index == 2", True),
        ("0.3 < acceptance < 0.4 and confidence == 0.5", True),
        ("high_confidence > 0.8 and history and not adapted", False),
        ('root == "verified" and "base_depth" in changed and "draft" in sources', True),
        ("not mask_differs and adapted", True),
        ("bonus == None and node_budget == None", True),
        ("node_budget > 1", False),
        ("accepted / (nodes - 4) > 0", False),
        ("'a' * 3 == 'aaa'", False),
        ("0 * text == ''", False),
        ("tokens * 2 == tokens + tokens", False),
    ],
)
def test_an_expression_holds_where_it_should(text, holds):
    step = replace(STEP, events=(STEP.events[0], Event("route", None, {"route": "both"})))
    assert parse(text, NAMES)(step) is holds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "enter one such as accepted"),
        ("accepted = 2", "cannot be read"),
        ("acepted < 2", "Unknown name 'acepted'. Did you mean 'accepted'?"),
        ("seconds.sleep > 1", "Unknown name 'seconds.sleep'"),
        ("text.__class__ == 1", "Unknown name 'text.__class__'"),
        ("2 ** 9 ** 9 ** 9 > 1", "cannot be used here"),
        ("accepted ** 9 > 1", "'accepted ** 9' cannot be used here"),
        ("~accepted < 1", "'~accepted' cannot be used here"),
        ("__import__('os').system('x') == 0", "cannot be used here"),
        ("[x for x in tokens] == 1", "cannot be used here"),
        ("accepted\0 < 2", "cannot be read"),
        ("(" * 300, "cannot be read"),
        ("accepted" + " " * LONGEST, "at most 500 characters"),
    ],
)
def test_what_is_not_an_expression_is_refused_in_one_sentence(text, sentence):
    with pytest.raises(ExpressionError) as caught:
        parse(text, NAMES)
    assert sentence in str(caught.value)


@settings(max_examples=60)
@given(st.text("accepted<=>ndor() \"'.,0189_[]{}:+-*/%é\n\\", max_size=60))
def test_no_text_does_more_than_read_or_be_refused(text):
    with suppress(ExpressionError):
        assert parse(text, NAMES)(STEP) in {True, False}


def test_every_field_is_read_from_a_step():
    kinds = (int, float, str, bool, tuple, list)
    assert all(
        isinstance(read(replace(STEP, bonus=1)), kinds)
        for name, read in STEP_FIELDS.items()
        if name != "route"
    )


@pytest.mark.parametrize(
    ("root", "likely", "path", "candidates"),
    [("drafted", 2, (), (0, 1)), ("drafted", 1, (0, 1), (0, 1)), ("verified", 2, (0,), (1, 2))],
)
def test_entropy_is_of_the_path_alone(root, likely, path, candidates):
    """The draft proposes token 1 and nothing else, the target nearly always token `likely`."""
    target = [0.04, 0.04, 0.04]
    target[likely] = 0.92
    pair = table_pair(lambda _: target, lambda _: [0.0, 1.0, 0.0], 3)
    strategy = speclab.DynaTree.paper().changed(root=root, node_budget=2 + (root == "verified"))
    step = speclab.Session(pair, strategy, [0, 2]).step()
    assert step.path == path
    assert tuple(step.drafted)[:2] == candidates
    # a rejected drafted root leaves no row, so there is no entropy to compare
    assert parse("entropy > 0", NAMES)(step) is bool(path)


def test_a_condition_is_a_function_an_expression_or_nothing():
    assert compiled("accepted < 2")(STEP)
    assert compiled(lambda step: step is STEP)(STEP)
    assert not compiled(None)(STEP)
    with pytest.raises(SettingsError, match="Expected an expression"):
        compiled(3)
