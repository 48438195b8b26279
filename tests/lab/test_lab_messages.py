"""What an action sends to the browser, counted: bounded, and nothing where nothing changed."""

from __future__ import annotations

import pytest
from lab_tools import Messages, every, settle

from speclab.lab.widgets import Pointer

STEP_MESSAGES, STEP_BYTES = 12, 60_000


@pytest.fixture
def shown(make, messages: Messages):
    """A lab as it is first shown, some iterations in."""
    lab = make(max_new_tokens=200)
    for _ in range(4):
        lab.step()
    messages.clear()
    return lab


def views(lab, *names):
    return [{**lab.panels.views, **lab.panels.tabs.views}[name].widget for name in names]


def test_each_move_sends_little_and_early_and_late_alike(shown, messages, monkeypatch):
    row = shown.transport.cursor
    shown.step()
    assert messages
    sent = [message["data"]["state"] for message in messages.of(row)]
    assert [sorted(state) for state in sent] == [["max"], ["description", "value"]], "its range before a value beyond"
    shown.back()
    assert messages[-1]["id"] == shown.status.line.model_id, "the sentence comes after what it speaks of"
    monkeypatch.setattr("speclab.lab.controller.REDRAW_SECONDS", 1e9)
    messages.clear()
    shown.run()
    assert len(shown.session.steps) > 20
    assert len(messages.of(*views(shown, "mask"))) == 1, "a run draws at its pace, not at every iteration"
    assert len(messages) <= 3 * STEP_MESSAGES  # new chunks of text among them
    last = len(shown.session.steps)
    for move in (lambda: shown.goto(last - 1), shown.step, shown.back, lambda: shown.goto(1), shown.step):
        messages.clear()
        move()
        assert len(messages) <= STEP_MESSAGES
        assert messages.size <= STEP_BYTES


def test_a_phase_sends_the_tree_and_its_sentence_and_nothing_else(shown, messages):
    shown.phase("accept")
    messages.clear()
    shown.phase("accept", 1)
    told = [shown.panels.views["tree"].widget.model_id, shown.status.line.model_id]
    assert [message["id"] for message in messages] == told


def test_what_was_shown_before_or_has_not_changed_is_not_drawn_again(shown, messages, monkeypatch):
    shown.back()
    pictures = views(shown, "tree", "mask", "caches")
    before = [widget.value for widget in pictures]
    with monkeypatch.context() as barred:
        barred.setattr("speclab.views.registry.View.render", None)
        shown.step()
        assert [widget.value for widget in pictures] != before
        shown.back()
    assert [widget.value for widget in pictures] == before
    messages.clear()
    shown.state.frame = shown.state.frame
    shown.panels.update()
    shown.goto(shown.state.cursor)
    pictures += [shown.panels.text.body, shown.panels.node, *shown.panels.text.body.children]
    pictures += [picture.widget for picture in shown.panels.tabs.views.values()]
    assert [widget for widget in pictures if messages.of(widget)] == []


def test_a_click_on_a_node_selects_it_in_every_view_and_redraws_neither_text_nor_metrics(shown, messages):
    shown.panels.tabs.show_tab("Metrics")
    messages.clear()
    pointer = next(widget for widget in every(shown.panels) if isinstance(widget, Pointer))
    pointer.comm.handle_msg({"content": {"data": {"method": "custom", "content": {"node": 1}}}, "buffers": []})
    assert settle(shown)
    assert shown.state.selected == 1
    assert all(messages.of(view) for view in views(shown, "tree", "mask"))
    assert not any(messages.of(widget) for widget in (*views(shown, "metrics"), *shown.panels.text.body.children))


def test_only_the_last_chunk_of_the_text_and_the_tab_in_sight_are_sent_again(shown, messages):
    shown.run(until=lambda step: sum(len(s.committed) for s in shown.session.steps) > 70)
    chunks = list(shown.panels.text.body.children)
    assert len(chunks) >= 3
    messages.clear()
    shown.step()
    assert [bool(messages.of(chunk)) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    hidden = list(shown.panels.tabs.views.values())[1:]
    assert not any(messages.of(picture.widget) for picture in hidden)
    shown.panels.tabs.show_tab("Metrics")
    assert messages.of(hidden[0].widget)
