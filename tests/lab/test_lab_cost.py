"""A budget that follows costs: curve and choice stand in the strategy's tab, and a slider previews by them."""

from __future__ import annotations

import pytest
from lab_tools import decoded, show

import speclab
from speclab.costs import measured as cost_curves
from speclab.costs.curve import Curve

STRATEGY, CAPTION, PANEL_BYTES = "Strategy", "expected tokens/s", 40_000
CURVE = Curve(name="expensive rows", rows=(1, 64), seconds=(0.004, 0.1), prefix=0, rounds=1)


@pytest.fixture(autouse=True)
def made_costs(monkeypatch):
    monkeypatch.setattr(cost_curves, "curve_of", lambda *_, **__: CURVE)


def test_the_strategys_tab_shows_the_curve_and_follows_the_iteration(make):
    lab = decoded(make, STRATEGY, speclab.IsotropicTree(budget="auto"))
    widget = lab.panels.tabs.views["strategy"]
    assert f"{lab.state.step.budget.verified} verified" in widget.drawing
    assert CAPTION in widget.drawing
    first = widget.drawing
    lab.back()
    show(lab, STRATEGY)
    assert widget.drawing != first
    assert len(widget.drawing) <= PANEL_BYTES
    lab.fork(budget="fixed")
    lab.step()
    assert CAPTION not in widget.drawing, "a fixed budget shows no curve"


def test_the_budget_is_chosen_in_the_form_and_a_slider_previews_what_costs_would_decide(make):
    lab = make(strategy=speclab.FixedTree(budget="auto"))
    lab.step()
    controls = lab.config.strategy.form.controls
    assert controls["budget"].options == ("fixed", "auto")
    controls["node_budget"].value = 6
    assert "would have been the same" in lab.panels.preview.sentence()
