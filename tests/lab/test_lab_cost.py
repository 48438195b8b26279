"""A budget that follows costs: curve and choice stand in the strategy's tab, and a slider says what it cannot know."""

from __future__ import annotations

import pytest
from lab_tools import Messages, decoded, show

import speclab
from speclab.costs import measured as cost_curves
from speclab.costs.curve import Curve

STRATEGY, CAPTION, PANEL_BYTES = "Strategy", "What it would verify on other machines", 40_000
DEAR = Curve(name="dear rows", rows=(1, 64), seconds=(0.004, 0.1), prefix=0, rounds=1)


@pytest.fixture(autouse=True)
def made_costs(monkeypatch):
    monkeypatch.setattr(cost_curves, "curve_of", lambda _: DEAR)


def test_the_strategys_tab_shows_the_curve_and_follows_the_iteration(make, messages):
    lab = decoded(make, STRATEGY, speclab.IsotropicTree(budget="auto"))
    widget = lab.panels.tabs.views["strategy"].widget
    step = lab.state.step
    assert f"{step.budget.verified} verified" in widget.value
    assert CAPTION in widget.value
    first = widget.value
    messages.clear()
    lab.back()
    show(lab, STRATEGY)
    assert widget.value != first
    assert Messages(messages.of(widget)).size <= PANEL_BYTES


def test_a_fixed_budget_shows_no_curve(make):
    lab = decoded(make, STRATEGY, speclab.IsotropicTree())
    assert CAPTION not in lab.panels.tabs.views["strategy"].widget.value


def test_a_slider_says_that_costs_decide(make):
    lab = make(strategy=speclab.FixedTree(budget="auto"))
    lab.step()
    lab.config.strategy.form.controls["node_budget"].value = 6
    assert "earlier outcomes" in lab.panels.preview.value


def test_the_budget_is_chosen_in_the_form(make):
    lab = make(strategy=speclab.FixedTree())
    assert lab.config.strategy.form.controls["budget"].options == ("fixed", "auto")
