"""A fault injected in the lab, marked wherever the run is named, and the check that finds it."""

from __future__ import annotations

import pytest
from lab_tools import ask, click

import speclab
from speclab.analysis import clinic


@pytest.fixture
def unfolded(make):
    lab = make(strategy=speclab.FixedTree(depth=3, branching=2), max_new_tokens=12)
    lab.transport.more.value = True
    return lab, lab.transport.clinic


def begin(lab, panel, fault: str) -> None:
    panel.fault.value = fault
    click(lab, panel.start)
    assert lab.state.error == ""


def test_a_fault_is_injected_marked_and_found(unfolded):
    lab, panel = unfolded
    lab.run()
    begin(lab, panel, "sibling visible")
    assert lab.state.cursor == 0
    lab.run()
    for words in (lab.panels.tabs.runs.choice.options[1][0], lab.status.line.drawing, lab.forks[1].name):
        assert "sibling visible" in words
    assert "sibling visible" not in lab.forks[0].name
    click(lab, panel.check)
    assert lab.state.error == ""
    assert "sibling visible" in lab.state.status
    assert panel.found.value.count("✗") == 1
    assert all(name in panel.found.value for name in clinic.FAULTS)
    lab.fork(depth=2)
    assert "sibling visible" in lab.forks[2].name, "a fork has its parent's models"
    assert "sibling visible" in lab.snapshot()


def test_the_switch_follows_the_run_and_healthy_is_healthy_again(unfolded):
    lab, panel = unfolded
    lab.step()
    begin(lab, panel, "padded positions")
    assert panel.about.value
    lab.step()
    lab.switch(0)
    assert panel.fault.value == "healthy"
    lab.switch(1)
    assert panel.fault.value == "padded positions"
    lab.config.prompt.text.value = "9 8 7 6"
    lab.step()
    assert lab.session.trace.models["fault"] == "padded positions", "another prompt, the same fault"
    begin(lab, panel, "healthy")
    lab.run()
    click(lab, panel.check)
    assert "fault" not in lab.session.trace.models
    assert "✗" not in panel.found.value


def test_what_cannot_be_is_said_and_changes_nothing(unfolded):
    lab, panel = unfolded
    click(lab, panel.check)
    assert "No iteration is decoded" in lab.state.error
    lab.status.dismiss()
    lab.step()
    before = lab.session
    panel.fault.value = "window run as full attention"
    click(lab, panel.start)
    assert "sliding window" in lab.state.error
    assert lab.session is before
    ask(lab, "open_trace", lambda: before.trace)
    lab.status.dismiss()
    click(lab, panel.check)
    assert "live" in lab.state.error
