"""The tab of the selected node: what it attends to, and the draws where sampling stopped."""

from __future__ import annotations

import pytest
from lab_tools import ask, settle, show

import speclab


@pytest.fixture
def lab(make):
    lab = make(max_new_tokens=60)
    lab.step()
    lab.step()
    show(lab, "Node")
    return lab


def test_attention_of_the_selected_node_is_read_on_selection_and_back_in_time(lab, tmp_path):
    panel, calls = lab.panels.tabs.attention, []
    read = lab.session.attentions
    lab.session.attentions = lambda node, at: calls.append((node, at)) or read(node, at)
    assert "Select a node" in panel.view.drawing
    lab.select(1)
    assert "Node 1" in panel.view.drawing
    layers, heads = read(1).shape[:2]
    assert (len(panel.layer.options), len(panel.head.options)) == (layers + 1, heads + 1)
    mean = panel.view.drawing
    panel.layer.value, panel.head.value = layers - 1, 0
    assert settle(lab)
    assert f"layer {layers - 1}, head 0" in panel.view.drawing != mean
    lab.phase("accept")
    assert calls == [(1, 2)], "one pass for all layers, heads and phases"
    lab.goto(1)
    lab.select(0)
    assert calls[1:] == [(0, 1)]
    show(lab, "Metrics")
    lab.select(1)
    assert len(calls) == 2, "what is not seen is not read"
    lab.open_trace(lab.save_trace(tmp_path / "run.json.gz"))
    show(lab, "Node")
    lab.select(0)
    assert "A recorded run holds no models" in panel.view.drawing
    assert lab.state.error == ""


def test_a_target_whose_attention_cannot_be_read_says_why(lab, monkeypatch):
    def refused(*_):
        raise speclab.SpeclabError("This target hides its attention.")

    monkeypatch.setattr(lab.session, "attentions", refused)
    lab.select(1)
    assert "This target hides its attention." in lab.panels.tabs.attention.view.drawing
    assert lab.step() is not None


def test_draws_are_stepped_through_where_sampling_stopped(make):
    lab = make(strategy=speclab.FixedTree(candidates="independent"), temperature=1.0, max_new_tokens=60)
    show(lab, "Node")
    step = lab.run(until=lambda step: step.residual is not None and len(step.residual.trials) > 0)
    slot, seen = lab.panels.tabs.views["decisions"], []
    ask(lab, "draw_by", 1)
    assert lab.state.frame.draw is None, "all are shown"
    for expected in (len(step.residual.trials), len(step.residual.trials) - 1):
        seen.append(slot.drawing)
        ask(lab, "draw_by", -1)
        assert lab.state.frame.draw == expected
    assert len({*seen, slot.drawing}) == 3
    lab.back()
    assert lab.state.frame.draw is None
