"""Run until an expression: by method and by its row, forwards and backwards, and what is said when it does not read."""

from __future__ import annotations

from lab_tools import settle

from speclab.drafters.prompt_lookup import PromptLookup
from speclab.trace.conditions import ANY_EXPRESSION, BREAKPOINTS, parse

EXPRESSION = BREAKPOINTS.index(ANY_EXPRESSION)
CHANGED = parse("route != previous.route")


def test_an_expression_runs_to_it_and_back_to_it(lab):
    assert lab.run(until="iteration == 2 or nodes > 99").index == 1
    lab.run()
    assert lab.back(until="accepted >= 0 and index < 1").index == 0
    assert lab.back(until="nodes > 99") is None
    assert "No earlier iteration" in lab.state.status


def test_a_condition_on_the_step_before_is_found_forwards_and_backwards(make, pair):
    lab = make(pair, PromptLookup(), prompt=[5, 17, 3, 5, 17, 3, 5])
    lab.run()
    changed = [
        i for i, (old, new) in enumerate(zip(lab.session.steps, lab.session.steps[1:], strict=False), start=1)
        if CHANGED.holds(new, old)
    ]  # fmt: skip
    assert changed, "else this test shows nothing"
    assert lab.back(until=CHANGED).index == [i for i in changed if i < lab.state.cursor][-1]
    lab.goto(0)
    assert [step.index for step in iter(lambda: lab.run(until=CHANGED), lab.session.steps[-1])][:3] == changed[:3]


def test_an_expression_that_does_not_read_is_said_and_decodes_nothing(lab):
    for command in (lab.run, lab.back):
        lab.state.error = ""
        assert command(until="acepted < 2") is None
        assert "did you mean accepted" in lab.state.error
    assert not lab.session.steps
    lab.run(until=3)
    assert "no condition" in lab.state.error


def test_the_row_says_at_once_what_is_wrong_and_offers_the_names(lab):
    row = lab.transport.until
    assert row.hint.layout.display == "none"
    row.condition.value = EXPRESSION
    assert row.argument.value == BREAKPOINTS[EXPRESSION].default
    assert "sl-bad" not in row.hint.value
    assert "names of an expression" in row.hint.value
    row.argument.value = 'text contains "a"'
    assert "Column 6" in row.hint.value
    assert not lab.state.error
    row.argument.value = "iteration == 2"
    assert "sl-bad" not in row.hint.value
    row.forward.click()
    assert settle(lab)
    assert lab.state.cursor == 2
    row.argument.value = "index == 0"
    row.backward.click()
    assert settle(lab)
    assert lab.state.cursor == 1
    row.argument.value = "index =="
    row.forward.click()
    assert settle(lab)
    assert "cannot be read" in lab.state.error
    assert lab.state.cursor == 1


def test_a_number_that_is_none_is_said_beside_its_field_too(lab):
    row = lab.transport.until
    row.condition.value = [point.label for point in BREAKPOINTS].index("fewer accepted than")
    row.argument.value = "two"
    assert "write a whole number" in row.hint.value
    row.argument.value = "2"
    assert row.hint.layout.display == "none"
