"""What an action sends to the browser, counted: bounded, and nothing where nothing changed."""

from __future__ import annotations

import pytest
from lab_tools import Messages, every, settle

from speclab.lab.widgets import Pointer

STEP_MESSAGES, STEP_BYTES = 12, 60_000


def click(lab, node) -> None:
    """What the browser says of a click on a node."""
    pointer = next(widget for widget in every(lab.panels) if isinstance(widget, Pointer))
    pointer.comm.handle_msg({"content": {"data": {"method": "custom", "content": {"node": node}}}, "buffers": []})
    assert settle(lab)


@pytest.fixture
def shown(make, messages: Messages):
    """A lab as it is first shown, some iterations in."""
    lab = make(max_new_tokens=200)
    for _ in range(4):
        lab.step()
    messages.clear()
    return lab


def test_a_step_sends_little(shown, messages):
    shown.step()
    assert 0 < len(messages) <= STEP_MESSAGES
    assert messages.size <= STEP_BYTES


def test_a_phase_sends_the_tree_and_its_sentence_and_nothing_else(shown, messages):
    shown.phase("accept")
    messages.clear()
    shown.phase("accept", 1)
    assert [message["id"] for message in messages] == [
        shown.panels.views["tree"].widget.model_id,
        shown.status.line.model_id,
    ]


def test_the_sentence_comes_after_what_it_speaks_of(shown, messages):
    shown.back()
    assert messages[-1]["id"] == shown.status.line.model_id
    assert len({message["id"] for message in messages}) == len(messages)


def test_the_slider_hears_of_its_range_before_a_value_beyond_the_old_one(shown, messages):
    shown.step()
    sent = [message["data"]["state"] for message in messages.of(shown.transport.cursor)]
    assert [sorted(state) for state in sent] == [["max"], ["description", "value"]]


def test_a_view_that_was_shown_before_is_not_drawn_again(shown, monkeypatch):
    shown.back()
    pictures = [
        shown.panels.views["tree"].widget,
        shown.panels.views["mask"].widget,
        shown.panels.tabs.views["caches"].widget,
    ]
    before = [widget.value for widget in pictures]
    monkeypatch.setattr("speclab.views.registry.View.render", None)
    shown.step()
    assert [widget.value for widget in pictures] != before
    shown.back()
    assert [widget.value for widget in pictures] == before


def test_a_click_on_a_node_selects_it_in_every_view(shown, messages):
    click(shown, 1)
    assert shown.state.selected == 1
    assert messages.of(shown.panels.views["tree"].widget)
    assert messages.of(shown.panels.views["mask"].widget)


def test_a_step_late_in_a_run_sends_as_little_as_an_early_one(shown, messages):
    shown.run()
    shown.goto(len(shown.session.steps) - 1)
    messages.clear()
    shown.step()
    assert len(messages) <= STEP_MESSAGES
    assert messages.size <= STEP_BYTES


def test_back_and_goto_send_as_little_as_a_step(shown, messages):
    shown.back()
    assert len(messages) <= STEP_MESSAGES
    messages.clear()
    shown.goto(1)
    assert len(messages) <= STEP_MESSAGES


def test_where_nothing_changed_nothing_is_drawn(shown, messages):
    shown.state.frame = shown.state.frame
    shown.panels.update()
    shown.goto(shown.state.cursor)
    pictures = [
        shown.panels.views["tree"].widget,
        shown.panels.views["mask"].widget,
        shown.panels.text.body,
        shown.panels.node,
    ]
    pictures += [picture.widget for picture in shown.panels.tabs.views.values()] + list(shown.panels.text.body.children)
    assert [widget for widget in pictures if messages.of(widget)] == []


def test_selecting_redraws_neither_text_nor_metrics(shown, messages):
    shown.panels.tabs.show_tab("Metrics")
    messages.clear()
    shown.select(0)
    assert messages.of(shown.panels.views["mask"].widget)
    assert not messages.of(shown.panels.tabs.views["metrics"].widget)
    assert not any(messages.of(chunk) for chunk in shown.panels.text.body.children)


def test_only_the_last_chunk_of_the_text_is_sent_again(shown, messages):
    shown.run(until=lambda step: sum(len(s.committed) for s in shown.session.steps) > 70)
    chunks = list(shown.panels.text.body.children)
    assert len(chunks) >= 3
    messages.clear()
    shown.step()
    assert [bool(messages.of(chunk)) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_a_hidden_tab_is_not_drawn_until_it_is_looked_at(shown, messages):
    shown.step()
    hidden = list(shown.panels.tabs.views.values())[1:]
    assert not any(messages.of(picture.widget) for picture in hidden)
    shown.panels.tabs.show_tab("Metrics")
    assert messages.of(hidden[0].widget)


def test_a_run_draws_at_its_pace_not_at_every_iteration(shown, messages, monkeypatch):
    monkeypatch.setattr("speclab.lab.controller.REDRAW_SECONDS", 1e9)
    shown.run()
    iterations = len(shown.session.steps) - 4
    assert iterations > 10
    assert len(messages.of(shown.panels.views["mask"].widget)) == 1
    assert len(messages) <= 3 * STEP_MESSAGES  # new chunks of text among them
