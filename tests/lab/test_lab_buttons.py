"""Clicks return at once and end in changed state; every control has a name to a screen reader."""

from __future__ import annotations

import threading

from ipywidgets import Button, Checkbox, Dropdown, Text, Textarea, ToggleButton
from lab_tools import PATIENCE, click, every, settle

from speclab.lab.actions import action
from speclab.trace.conditions import ANY_EXPRESSION, BREAKPOINTS

NAMES = [
    "lab", "change", "prompt", "apply", "step", "back", "next", "first", "last", "play", "live", "run", "until",
    "run-until", "back-until", "stop", "present", "more", "phase-next", "phase-back", "status", "error", "tree", "mask",
    "text", "cache", "metrics", "settings",
]  # fmt: skip
LABELS = [point.label for point in BREAKPOINTS]


def test_each_selector_names_one_widget_and_each_control_says_what_it_is(lab):
    lab.config.unfold()
    lab.transport.more.value = True
    classes = [name for widget in every(lab) for name in getattr(widget, "_dom_classes", ())]
    assert [name for name in NAMES if classes.count(f"speclab-{name}") != 1] == []
    controls = [w for w in every(lab) if isinstance(w, (Button, Checkbox, Dropdown, Text, Textarea, ToggleButton))]
    assert len(controls) > 25
    assert [w for w in controls if not (w.description or w.tooltip)] == []
    assert [w for w in controls if isinstance(w, Button) and not w.tooltip] == []


def test_buttons_and_keys_move_through_a_run_and_its_phases(lab):
    row, phases = lab.transport, lab.transport.phases
    moves = (row.step, 1), (row.step, 2), (row.back, 1), (row.next, 2), (row.next, 2), (row.first, 0), (row.last, 2)
    for button, cursor in moves:
        click(lab, button)
        assert lab.state.cursor == lab.session.cursor == cursor
    for key, cursor in (("ArrowLeft", 1), ("ArrowRight", 2), ("ArrowRight", 2), (" ", 3), ("?", 3)):
        row.key(key)
        assert settle(lab)
        assert lab.state.cursor == cursor
    click(lab, phases.back)
    assert lab.state.phase == phases.names.value == "commit"
    phases.names.value = "verify"
    assert settle(lab)
    click(lab, phases.next)
    assert lab.state.phase == phases.names.value == "accept"
    row.key("[")
    assert settle(lab)
    assert lab.state.phase == "verify"
    phases.names.value = "draft"
    assert settle(lab)
    assert lab.state.position.level == 1, "drafting is entered at its first level"
    click(lab, row.last)
    for _ in range(4):
        click(lab, row.step)
    assert lab.state.cursor == 7, "clicks on Step add up"
    click(lab, row.run)
    assert lab.session.done


def test_the_race_ticks_to_its_end_or_to_a_stop_and_presenting_enlarges_until_escape(lab, monkeypatch):
    monkeypatch.setattr("speclab.lab.transport.BEAT", 0)
    lab.run()
    lab.transport.more.value = True
    lab._actions.ask(lab.transport._run_race)
    assert settle(lab)
    assert "plain decoding" in lab.transport.race.drawing
    assert f"{len(lab.session.token_ids)} tokens" in lab.transport.race.drawing
    monkeypatch.setattr("speclab.lab.transport.BEAT", 60)
    lab._actions.ask(lab.transport._run_race)
    lab.stop()
    assert settle(lab)
    row = lab.transport
    row.present.value = True
    assert settle(lab)
    assert lab.state.frame.room.scale > 1.5
    assert "speclab-presenting" in lab._dom_classes
    lab.step()
    row.key("Escape")
    assert settle(lab)
    assert lab.state.frame.room.scale == 1
    assert "speclab-presenting" not in lab._dom_classes


def test_a_click_returns_while_the_models_work_and_stop_is_heard(lab):
    started, go_on = threading.Event(), threading.Event()
    lab._actions.ask(action("loading")(lambda: (started.set(), go_on.wait(PATIENCE))))
    assert started.wait(PATIENCE)
    lab.transport.step.click()
    assert lab.state.busy == "loading"
    lab.transport.stop.click()
    assert lab._worker.cancelled.is_set()
    go_on.set()
    assert settle(lab)
    assert (lab.state.cursor, lab.state.busy) == (0, "")
    click(lab, lab.transport.step)
    assert lab.state.cursor == 1


def test_breakpoints_are_a_list_with_counts_and_the_reason_of_each_stop(lab):
    until = lab.transport.until
    until.condition.value = LABELS.index("fewer accepted than")
    until.argument.value = "3"
    click(lab, until.add)
    until.condition.value = BREAKPOINTS.index(ANY_EXPRESSION)
    until.argument.value = "iteration == 4"
    until.argument.comm.handle_msg(
        {"content": {"data": {"method": "custom", "content": {"event": "submit"}}}, "buffers": []}
    )
    assert settle(lab)
    assert [point.label for point in lab.state.breakpoints] == ["fewer accepted than 3", "iteration == 4"]
    while lab.state.cursor < 4:
        assert "Stopped: fewer accepted than 3" in lab.state.status
        click(lab, until.forward)
    assert "iteration == 4 (1st hit)" in lab.state.status
    few = len([step for step in lab.session.steps if len(step.accepted) < 3])
    assert [chip.description.split(" · ")[1] for chip in until.chips.children] == [
        f"{few} hit{'s' * (few != 1)} ✕", "1 hit ✕",
    ]  # fmt: skip
    assert until.toggle.description.endswith("+1")
    click(lab, until.backward)
    assert lab.state.status.startswith("Back at")
    click(lab, until.chips.children[0])
    assert [point.label for point in lab.state.breakpoints] == ["iteration == 4"]


def test_what_is_wrong_with_a_condition_is_said_at_once_and_errors_stay_until_dismissed(lab):
    row = lab.transport.until
    assert not row.hint.value
    row.condition.value = LABELS.index("fewer accepted than")
    row.argument.value = "many"
    assert "write a whole number, not" in row.hint.value
    assert row.add.disabled
    click(lab, row.forward)
    assert (lab.state.cursor, lab.state.error, row.layout.display) == (0, "", None)
    row.condition.value = BREAKPOINTS.index(ANY_EXPRESSION)
    assert row.argument.value == ANY_EXPRESSION.default
    assert "<summary>names</summary>" in row.hint.value
    for typed, said in (
        ('text contains "a"', "Column 6"),
        ("acepted < 2", "did you mean accepted"),
        ("index ==", "cannot be read"),
    ):
        row.argument.value = typed
        alert = row.hint.value.partition("</div>")[0]
        assert said in alert
        assert len(alert) < 250
    row.argument.value = "iteration == 2"
    assert "sl-bad" not in row.hint.value
    click(lab, row.forward)
    assert lab.state.cursor == 2
    lab.state.fail("<b>bold</b>", "<script>")
    assert lab.status.error.layout.display is None
    assert "<b>bold" not in lab.status.message.value
    assert "<script>" not in lab.status.message.value
    lab.step()
    assert lab.state.error
    lab.status.dismiss()
    assert lab.status.error.layout.display == "none"
