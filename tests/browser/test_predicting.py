"""Predict mode in the browser: a node is marked by a click and by keys, and nothing is told before Reveal."""

from __future__ import annotations

import pytest
from opened import CURSOR, STATUS, TREE, quiet
from test_pointing import point

pytestmark = pytest.mark.browser
_quiet = pytest.fixture(autouse=True)(quiet)

SAID = "(document.querySelector('.speclab-predicting [role=status]')?.innerText ?? '')"
TABS = "document.querySelector('.speclab-tabs').offsetParent !== null"


def test_a_student_marks_nodes_and_then_sees_what_was_accepted(lab):
    page, at = lab.page, lab.cursor()
    page.click("button.speclab-predict")
    page.locator(".speclab-predicting").wait_for(state="visible")
    page.click("button.speclab-step")
    lab.wait(f"{STATUS}.includes('not shown yet')")
    lab.rest()
    assert lab.cursor() == at, "the timeline does not tell either"
    assert not lab.read(TABS)
    assert "accepted" not in page.locator(".speclab-legend").inner_text()
    page.mouse.click(*point(lab, "tree", 1))
    lab.wait(f"{TREE}.includes('☑ yours')")
    page.locator(".speclab-tree .js-plotly-plot").focus()
    page.keyboard.press("Home")
    lab.wait(f"!{TREE}.includes('☑ yours')")
    lab.shot("predict_asked")
    page.keyboard.press(" ")
    lab.wait(f"{SAID}.includes('you marked none') || {SAID}.includes('You marked none')")
    lab.wait(f"{CURSOR} === {at + 1}")
    lab.rest()
    assert "the target chose" in lab.read(SAID)
    assert "of 1 prediction was right" in page.locator(".speclab-score").inner_text()
    assert lab.read(TABS)
    lab.shot("predict_revealed")
    page.click("button.speclab-predict")
    page.locator(".speclab-predicting").wait_for(state="hidden")
