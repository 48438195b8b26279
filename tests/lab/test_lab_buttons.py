"""Clicks return at once and end in changed state; every control has a name to a screen reader."""

from __future__ import annotations

import threading

import pytest
from ipywidgets import Button, Checkbox, Dropdown, Text, Textarea, ToggleButton
from lab_tools import every, settle

from speclab.lab.actions import action
from speclab.trace.conditions import BREAKPOINTS

NAMES = (
    "lab",
    "step",
    "back",
    "first",
    "last",
    "run",
    "run-until",
    "stop",
    "cursor",
    "status",
    "error",
    "mask",
    "text",
)
NAMES += ("caches", "metrics", "settings", "apply", "phase-next", "phase-back")


def click(lab, button):
    button.click()
    assert settle(lab)


def test_each_selector_names_one_widget(lab):
    classes = [name for widget in every(lab) for name in getattr(widget, "_dom_classes", ())]
    assert [name for name in NAMES if classes.count(f"speclab-{name}") != 1] == []


def test_each_control_says_what_it_is(lab):
    controls = [w for w in every(lab) if isinstance(w, (Button, Checkbox, Dropdown, Text, Textarea, ToggleButton))]
    assert len(controls) > 25
    assert [w for w in controls if not (w.description or w.tooltip)] == []
    assert [w for w in controls if isinstance(w, Button) and not w.tooltip] == []


def test_buttons_move_through_a_run(lab):
    row = lab.transport
    for button, cursor in ((row.step, 1), (row.step, 2), (row.back, 1), (row.first, 0), (row.last, 2)):
        click(lab, button)
        assert lab.state.cursor == lab.session.cursor == row.cursor.value == cursor
    row.cursor.value = 1
    assert settle(lab)
    assert lab.session.cursor == 1
    click(lab, row.run)
    assert lab.session.done


def test_clicks_on_step_add_up(lab):
    for _ in range(4):
        lab.transport.step.click()
    assert settle(lab)
    assert lab.state.cursor == 4


def test_of_several_wishes_where_to_go_the_newest_counts(lab, monkeypatch):
    lab.run()
    gone = []
    goto = lab.session.goto
    monkeypatch.setattr(lab.session, "goto", lambda index: (gone.append(index), goto(index))[1])
    busy = threading.Event()
    lab._actions.ask(lambda: busy.wait(30))
    for index in (1, 2, 3):
        lab.transport.cursor.value = index
    busy.set()
    assert settle(lab)
    assert gone == [3]
    assert lab.state.cursor == 3


def test_a_click_returns_while_the_models_work_and_stop_is_heard(lab):
    started, go_on = threading.Event(), threading.Event()
    lab._actions.ask(action("loading")(lambda: (started.set(), go_on.wait(30))))
    assert started.wait(30)
    lab.transport.step.click()
    assert lab.state.busy == "loading"
    assert "sl-spinner" in lab.status.line.value
    lab.transport.stop.click()
    assert lab._worker.cancelled.is_set()
    go_on.set()
    assert settle(lab)
    assert lab.state.cursor == 0
    assert "sl-spinner" not in lab.status.line.value
    click(lab, lab.transport.step)
    assert lab.state.cursor == 1


def test_phase_buttons_and_names(lab):
    lab.step()
    phases = lab.panels.phases
    click(lab, phases.back)
    assert lab.state.phase == phases.names.value == "commit"
    phases.names.value = "verify"
    assert settle(lab)
    assert lab.state.phase == "verify"
    click(lab, phases.next)
    assert lab.state.phase == phases.names.value == "accept"


def test_the_list_of_nodes_selects(lab):
    lab.step()
    lab.panels.node.value = 0
    assert settle(lab)
    assert lab.state.selected == 0


@pytest.mark.parametrize("point", range(len(BREAKPOINTS)), ids=[point.label for point in BREAKPOINTS])
def test_run_until_offers_every_condition(lab, point):
    until = lab.transport.until
    until.condition.value = point
    takes = BREAKPOINTS[point].default is not None
    assert (until.argument.layout.display != "none") == takes
    click(lab, until.forward)
    assert lab.state.error == ""
    assert lab.state.cursor >= 1
    held = [i + 1 for i, step in enumerate(lab.session.steps[: lab.state.cursor - 1]) if until.read()(step)]
    click(lab, until.backward)
    assert held == [] or lab.state.cursor == held[-1]


def test_a_condition_that_is_no_number_is_refused_in_one_sentence(lab):
    until = lab.transport.until
    until.condition.value = [point.label for point in BREAKPOINTS].index("fewer accepted than")
    until.argument.value = "many"
    click(lab, until.forward)
    assert "write a whole number, not 'many'" in lab.state.error
    assert lab.state.cursor == 0


def test_errors_stay_until_dismissed_and_are_escaped(lab):
    lab.state.fail("<b>bold</b>", "<script>")
    assert lab.status.error.layout.display is None
    assert "<b>bold" not in lab.status.message.value
    assert "<script>" not in lab.status.message.value
    lab.step()
    assert lab.state.error
    lab.status.dismiss()
    assert lab.status.error.layout.display == "none"
