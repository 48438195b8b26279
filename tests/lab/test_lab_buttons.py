"""Clicks return at once and end in changed state; every control has a name to a screen reader."""

from __future__ import annotations

import threading

from ipywidgets import Button, Checkbox, Dropdown, Text, Textarea, ToggleButton
from lab_tools import every, settle

from speclab.lab.actions import action
from speclab.trace.conditions import ANY_EXPRESSION, BREAKPOINTS

NAMES = [
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
    "caches",
    "metrics",
    "settings",
    "apply",
    "phase-next",
    "phase-back",
]
LABELS = [point.label for point in BREAKPOINTS]


def click(lab, button):
    button.click()
    assert settle(lab)


def test_each_selector_names_one_widget_and_each_control_says_what_it_is(lab):
    classes = [name for widget in every(lab) for name in getattr(widget, "_dom_classes", ())]
    assert [name for name in NAMES if classes.count(f"speclab-{name}") != 1] == []
    controls = [w for w in every(lab) if isinstance(w, (Button, Checkbox, Dropdown, Text, Textarea, ToggleButton))]
    assert len(controls) > 25
    assert [w for w in controls if not (w.description or w.tooltip)] == []
    assert [w for w in controls if isinstance(w, Button) and not w.tooltip] == []


def test_buttons_move_through_a_run_its_phases_and_nodes(lab, monkeypatch):
    row, phases = lab.transport, lab.panels.phases
    for button, cursor in ((row.step, 1), (row.step, 2), (row.back, 1), (row.first, 0), (row.last, 2)):
        click(lab, button)
        assert lab.state.cursor == lab.session.cursor == row.cursor.value == cursor
    click(lab, phases.back)
    assert lab.state.phase == phases.names.value == "commit"
    phases.names.value = "verify"
    assert settle(lab)
    click(lab, phases.next)
    assert lab.state.phase == phases.names.value == "accept"
    lab.panels.node.value = 0
    assert settle(lab)
    assert lab.state.selected == 0
    for _ in range(4):
        row.step.click()
    assert settle(lab)
    assert lab.state.cursor == 6, "clicks on Step add up"
    gone, goto, busy = [], lab.session.goto, threading.Event()
    monkeypatch.setattr(lab.session, "goto", lambda index: (gone.append(index), goto(index))[1])
    lab._actions.ask(lambda: busy.wait(30))
    for index in (1, 2, 3):
        row.cursor.value = index
    busy.set()
    assert settle(lab)
    assert gone == [3], "of several places to go the newest counts"
    click(lab, row.run)
    assert lab.session.done


def test_a_click_returns_while_the_models_work_and_stop_is_heard(lab):
    started, go_on = threading.Event(), threading.Event()
    lab._actions.ask(action("loading")(lambda: (started.set(), go_on.wait(30))))
    assert started.wait(30)
    lab.transport.step.click()
    assert lab.state.busy == "loading"
    lab.transport.stop.click()
    assert lab._worker.cancelled.is_set()
    go_on.set()
    assert settle(lab)
    assert (lab.state.cursor, lab.state.busy) == (0, "")
    click(lab, lab.transport.step)
    assert lab.state.cursor == 1


def test_run_until_offers_every_condition_forwards_and_backwards(lab):
    until = lab.transport.until
    for index, point in enumerate(BREAKPOINTS):
        lab.goto(0)
        until.condition.value = index
        assert (until.argument.layout.display != "none") == (point.default is not None)
        click(lab, until.forward)
        assert lab.state.error == ""
        assert lab.state.cursor >= 1
        held = [i + 1 for i, step in enumerate(lab.session.steps[: lab.state.cursor - 1]) if until.read()(step)]
        click(lab, until.backward)
        assert held == [] or lab.state.cursor == held[-1]


def test_the_row_says_at_once_what_is_wrong_and_offers_the_names(lab):
    row = lab.transport.until
    assert row.hint.layout.display == "none"
    row.condition.value = LABELS.index("fewer accepted than")
    row.argument.value = "many"
    assert "write a whole number" in row.hint.value
    click(lab, row.forward)
    assert "write a whole number, not 'many'" in lab.state.error
    assert lab.state.cursor == 0
    lab.status.dismiss()
    row.condition.value = BREAKPOINTS.index(ANY_EXPRESSION)
    assert row.argument.value == ANY_EXPRESSION.default
    assert "names of an expression" in row.hint.value
    row.argument.value = 'text contains "a"'
    assert "Column 6" in row.hint.value
    assert not lab.state.error
    for text, button, cursor in (("iteration == 2", row.forward, 2), ("index == 0", row.backward, 1)):
        row.argument.value = text
        assert "sl-bad" not in row.hint.value
        click(lab, button)
        assert lab.state.cursor == cursor
    row.argument.value = "index =="
    click(lab, row.forward)
    assert "cannot be read" in lab.state.error
    assert lab.state.cursor == 1


def test_errors_stay_until_dismissed_and_are_escaped(lab):
    lab.state.fail("<b>bold</b>", "<script>")
    assert lab.status.error.layout.display is None
    assert "<b>bold" not in lab.status.message.value
    assert "<script>" not in lab.status.message.value
    lab.step()
    assert lab.state.error
    lab.status.dismiss()
    assert lab.status.error.layout.display == "none"
