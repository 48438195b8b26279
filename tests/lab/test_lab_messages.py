"""What an action sends to the browser, counted: bounded, and nothing where nothing changed."""

from __future__ import annotations

import pytest
from lab_tools import Messages

STEP_MESSAGES, STEP_BYTES = 24, 60_000


def draws(lab) -> None:
    """A browser draws the figure, and says so."""
    lab.panels.tree.figure._js2py_traceDeltas = {"trace_deltas": [], "trace_edit_id": -1}


@pytest.fixture
def drawn(make, messages: Messages):
    """A lab with its figure, some iterations in."""
    lab = make(max_new_tokens=200)
    lab.step()
    lab.panels.tree.want_figure()
    draws(lab)
    for _ in range(3):
        lab.step()
    messages.clear()
    return lab


def test_a_step_sends_little(drawn, messages):
    drawn.step()
    assert 0 < len(messages) <= STEP_MESSAGES
    assert messages.size <= STEP_BYTES


def test_a_step_late_in_a_run_sends_as_little_as_an_early_one(drawn, messages):
    drawn.run()
    drawn.goto(len(drawn.session.steps) - 1)
    messages.clear()
    drawn.step()
    assert len(messages) <= STEP_MESSAGES
    assert messages.size <= STEP_BYTES


def test_the_figure_is_made_once_and_changed_in_place(drawn, messages):
    figure = drawn.panels.tree.figure
    assert "speclab-tree" in figure._dom_classes
    drawn.step()
    drawn.select(0)
    drawn.phase("draft")
    assert drawn.panels.tree.figure is figure
    assert len(messages.of(figure)) <= 12
    assert not [
        message for message in messages if message["type"] == "comm_open" and message["data"]["state"].get("_esm")
    ]


def test_till_a_browser_has_drawn_the_figure_its_svg_is_shown(make, monkeypatch):
    lab = make()
    tree = lab.panels.tree
    lab.step()
    tree.want_figure()
    first = tree.figure
    assert "speclab-waiting" in tree.stage._dom_classes
    lab.step()
    assert tree.figure is first
    assert tree.still.layout.display is None
    monkeypatch.setattr("speclab.lab.figure_stage.PATIENCE", 0)
    svg = tree.still.value
    lab.step()
    assert tree.figure is not first
    assert tree.still.value != svg
    draws(lab)
    assert "speclab-waiting" not in tree.stage._dom_classes
    assert tree.still.layout.display == "none"
    second = tree.figure
    lab.step()
    assert tree.figure is second


def test_a_page_built_from_the_state_of_the_widgets_gets_the_figure_as_it_is(drawn):
    """Voilà's page is, and JupyterLab's once it is loaded again."""
    figure = drawn.panels.tree.figure
    state = figure.get_state()
    now = figure.to_plotly_json()
    assert state["_widget_data"] == now["data"] != []
    assert state["_widget_layout"] == now["layout"]
    drawn.step()
    assert figure.get_state()["_widget_data"] == figure.to_plotly_json()["data"] != now["data"]


def test_where_no_figure_can_be_made_the_svg_stays(make, monkeypatch):
    lab = make()
    lab.step()

    def missing():
        raise ImportError("Please install anywidget")

    monkeypatch.setattr("speclab.lab.figure_widget.LateFigure", missing)
    lab.panels.tree.want_figure()
    lab.step()
    assert "<svg" in lab.panels.tree.still.value
    assert lab.state.error == ""


def test_back_and_goto_send_as_little_as_a_step(drawn, messages):
    drawn.back()
    assert len(messages) <= STEP_MESSAGES
    messages.clear()
    drawn.goto(1)
    assert len(messages) <= STEP_MESSAGES


def test_where_nothing_changed_nothing_is_drawn(drawn, messages):
    drawn.state.frame = drawn.state.frame
    drawn.panels.update()
    drawn.goto(drawn.state.cursor)
    pictures = [drawn.panels.tree.figure, drawn.panels.mask.widget, drawn.panels.text.body, drawn.panels.node]
    pictures += [picture.widget for picture in drawn.panels.tabs.pictures] + list(drawn.panels.text.body.children)
    assert [widget for widget in pictures if messages.of(widget)] == []


def test_selecting_redraws_neither_text_nor_metrics(drawn, messages):
    drawn.panels.tabs.selected_index = 1
    messages.clear()
    drawn.select(0)
    assert messages.of(drawn.panels.mask.widget)
    assert not messages.of(drawn.panels.tabs.pictures[1].widget)
    assert not any(messages.of(chunk) for chunk in drawn.panels.text.body.children)


def test_only_the_last_chunk_of_the_text_is_sent_again(drawn, messages):
    drawn.run(until=lambda step: sum(len(s.committed) for s in drawn.session.steps) > 70)
    chunks = list(drawn.panels.text.body.children)
    assert len(chunks) >= 3
    messages.clear()
    drawn.step()
    assert [bool(messages.of(chunk)) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_a_hidden_tab_is_not_drawn_until_it_is_looked_at(drawn, messages):
    drawn.step()
    hidden = drawn.panels.tabs.pictures[1:]
    assert not any(messages.of(picture.widget) for picture in hidden)
    drawn.panels.tabs.selected_index = 1
    assert messages.of(hidden[0].widget)


def test_a_run_draws_at_its_pace_not_at_every_iteration(drawn, messages, monkeypatch):
    monkeypatch.setattr("speclab.lab.player.REDRAW_SECONDS", 1e9)
    drawn.run()
    iterations = len(drawn.session.steps) - 4
    assert iterations > 10
    assert len(messages.of(drawn.panels.mask.widget)) == 1
    assert len(messages) <= 2 * STEP_MESSAGES  # new chunks of text among them
