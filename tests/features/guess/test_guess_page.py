"""Guessing on a page without a kernel: what was decoded before asks as well."""

from __future__ import annotations

import pytest
from support.every_strategy import DRAFTED, finished

from speclab.views.drawing import call
from speclab.views.run_data import run_header, step_data


def after(state, *events):
    for event in events:
        state, _ = call("reduce", state, event)
    return state


@pytest.fixture
def first():
    """A page that shows the first iteration of a run of several."""
    run = finished(DRAFTED["dynatree"]).trace
    steps = [step_data(step) for step in run.steps]
    assert min(len(step["nodes"]) for step in steps[:3]) > 1
    assert len(steps) > 3
    opened = {"type": "run", "header": run_header(run), "keep": 0, "steps": steps, "cursor": 1}
    return after(call("firstState"), opened, {"type": "guessing", "on": True})


@pytest.mark.parametrize("event", [{"type": "next"}, {"type": "along", "by": 1}])
def test_a_step_to_what_was_decoded_asks_before_it_shows_the_outcome(first, event):
    assert after(first, {"type": "guessing", "on": False}, event)["veiled"] is None
    shown = after(first, event)
    assert (shown["cursor"], shown["veiled"]) == (2, 1)
    assert call("positionShown", shown)["phase"] == "flatten"
    answered = after(shown, {"type": "select", "node": 0})
    assert answered["veiled"] is None
    assert call("positionShown", answered)["phase"] == "accept"


def test_what_was_guessed_and_what_is_jumped_to_is_shown(first):
    guessed = after(first, {"type": "next"}, {"type": "select", "node": 0})
    again = after(guessed, {"type": "go", "cursor": 1}, {"type": "next"})
    assert (again["cursor"], again["veiled"]) == (2, None)
    assert after(first, {"type": "go", "cursor": 3})["veiled"] is None
    assert after(again, {"type": "next"})["veiled"] == 2
