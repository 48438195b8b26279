"""What an action sends to the browser, counted: bounded, and nothing where nothing changed."""

from __future__ import annotations

import pytest
from lab_tools import Messages, settle

from speclab.lab.pointer import Pointer

STEP_MESSAGES, STEP_BYTES = 12, 60_000


def draws(lab) -> None:
    """A browser draws the figure, and says so."""
    lab.panels.tree.figure._js2py_traceDeltas = {"trace_deltas": [], "trace_edit_id": -1}


def click(lab, node) -> None:
    """What the browser says of a click on a node."""
    tree = lab.panels.tree
    pointer = next(child for child in tree.children if isinstance(child, Pointer))
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


@pytest.fixture
def zoomed(shown, messages: Messages):
    """The same with its figure, drawn by a browser."""
    shown.panels.tree.want_figure()
    assert settle(shown)
    draws(shown)
    shown.step()
    messages.clear()
    return shown


def test_a_step_sends_little(shown, messages):
    shown.step()
    assert 0 < len(messages) <= STEP_MESSAGES
    assert messages.size <= STEP_BYTES


def test_a_phase_sends_the_tree_and_its_sentence_and_nothing_else(shown, messages):
    shown.phase("accept")
    messages.clear()
    shown.phase("accept", 1)
    assert [message["id"] for message in messages] == [shown.panels.tree.still.model_id, shown.status.line.model_id]


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
    pictures = [shown.panels.tree.still, shown.panels.mask.widget, shown.panels.tabs.pictures[0].widget]
    before = [widget.value for widget in pictures]
    for view in ("tree_panel.tree_svg", "panels.mask.mask_svg", "panels.cache.cache_svg"):
        monkeypatch.setattr(f"speclab.lab.{view}", None)
    shown.step()
    assert [widget.value for widget in pictures] != before
    shown.back()
    assert [widget.value for widget in pictures] == before


def test_a_click_on_a_node_selects_it_in_every_view(shown, messages):
    click(shown, 1)
    assert shown.state.selected == 1
    assert messages.of(shown.panels.tree.still)
    assert messages.of(shown.panels.mask.widget)


def test_without_a_request_there_is_no_figure(shown, messages):
    assert shown.panels.tree.figure is None
    shown.step()
    assert not [message for message in messages if "_py2js" in str(message)]


def test_a_step_late_in_a_run_sends_as_little_as_an_early_one(shown, messages):
    shown.run()
    shown.goto(len(shown.session.steps) - 1)
    messages.clear()
    shown.step()
    assert len(messages) <= STEP_MESSAGES
    assert messages.size <= STEP_BYTES


def test_the_figure_is_made_once_and_changed_in_place(zoomed, messages):
    figure = zoomed.panels.tree.figure
    assert "speclab-tree" in figure._dom_classes
    zoomed.step()
    zoomed.select(0)
    zoomed.phase("draft")
    assert zoomed.panels.tree.figure is figure
    assert len(messages.of(figure)) <= 12
    assert not [
        message for message in messages if message["type"] == "comm_open" and message["data"]["state"].get("_esm")
    ]


def test_till_a_browser_has_drawn_the_figure_its_svg_is_shown(make, monkeypatch):
    lab = make()
    tree = lab.panels.tree
    lab.step()
    tree.want_figure()
    assert settle(lab)
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
    second, svg = tree.figure, tree.still.value
    lab.step()
    assert tree.figure is second
    assert tree.still.value == svg, "what is hidden is not drawn"
    tree.zoom.value = False
    assert settle(lab)
    assert tree.still.layout.display is None
    assert tree.still.value != svg
    sent = second._last_layout_edit_id
    lab.back()
    assert second._last_layout_edit_id == sent, "a hidden figure is sent nothing"
    tree.zoom.value = True
    assert settle(lab)
    assert tree.figure is second
    assert second._last_layout_edit_id > sent


def test_a_page_built_from_the_state_of_the_widgets_gets_the_figure_as_it_is(zoomed):
    """Voilà's page is, and JupyterLab's once it is loaded again."""
    figure = zoomed.panels.tree.figure
    state = figure.get_state()
    now = figure.to_plotly_json()
    assert state["_widget_data"] == now["data"] != []
    assert state["_widget_layout"] == now["layout"]
    zoomed.step()
    assert figure.get_state()["_widget_data"] == figure.to_plotly_json()["data"] != now["data"]


def test_where_no_figure_can_be_made_the_svg_stays(make, monkeypatch):
    lab = make()
    lab.step()

    def missing():
        raise ImportError("Please install anywidget")

    monkeypatch.setattr("speclab.lab.figure_widget.LateFigure", missing)
    lab.panels.tree.want_figure()
    assert settle(lab)
    lab.step()
    assert "<svg" in lab.panels.tree.still.value
    assert lab.state.error == ""


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
    pictures = [shown.panels.tree.still, shown.panels.mask.widget, shown.panels.text.body, shown.panels.node]
    pictures += [picture.widget for picture in shown.panels.tabs.pictures] + list(shown.panels.text.body.children)
    assert [widget for widget in pictures if messages.of(widget)] == []


def test_selecting_redraws_neither_text_nor_metrics(shown, messages):
    shown.panels.tabs.selected_index = 1
    messages.clear()
    shown.select(0)
    assert messages.of(shown.panels.mask.widget)
    assert not messages.of(shown.panels.tabs.pictures[1].widget)
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
    hidden = shown.panels.tabs.pictures[1:]
    assert not any(messages.of(picture.widget) for picture in hidden)
    shown.panels.tabs.selected_index = 1
    assert messages.of(hidden[0].widget)


def test_a_run_draws_at_its_pace_not_at_every_iteration(shown, messages, monkeypatch):
    monkeypatch.setattr("speclab.lab.player.REDRAW_SECONDS", 1e9)
    shown.run()
    iterations = len(shown.session.steps) - 4
    assert iterations > 10
    assert len(messages.of(shown.panels.mask.widget)) == 1
    assert len(messages) <= 3 * STEP_MESSAGES  # new chunks of text among them
