"""The tab of sweeps: drawn while replays run, cancelled, refused in a sentence, and a point used in a fork."""

from __future__ import annotations

import json
from threading import Event

import pytest
from lab_tools import PATIENCE, Messages, click, html, settle, show

import speclab
from speclab.analysis.replay import Replayer
from speclab.models.pair import ModelPair

TREE = speclab.DynaTree(base_depth=3, node_budget=8, history="off")
SWEEP = "Sweep"


@pytest.fixture
def lab(make):
    """A lab whose text is decoded, the tab open."""
    lab = make(strategy=TREE, max_new_tokens=24)
    lab.run()
    show(lab, SWEEP)
    return lab


@pytest.fixture
def held(monkeypatch):
    """Replays wait, from the third on, until they are let go; they go on asking whether they are cancelled."""
    go, reached, count, replay = Event(), Event(), 0, Replayer.replay

    def waiting(self, strategy, check=lambda: None):
        nonlocal count
        count += 1
        if count > 3:
            reached.set()
            while not go.wait(0.01):
                check()
        return replay(self, strategy, check)

    monkeypatch.setattr(Replayer, "replay", waiting)
    return go, reached


def drawn(lab, setting: str = "node_budget", *, wait: bool = True, **ends: object):
    panel = lab.panels.tabs.curves
    panel.first.setting.value = setting
    for name, value in ends.items():
        getattr(panel.first, name).value = value
    panel.go.click()
    assert not wait or panel.worker.wait(PATIENCE)
    return lab.state.curve


def test_a_curve_is_drawn_and_its_point_forks_at_the_beginning_with_that_setting(lab, messages: Messages):
    panel, text = lab.panels.tabs.curves, lab.session.token_ids
    messages.clear()
    found = drawn(lab, low="2", high="16", count=5)
    assert (found.points[0].values, found.points[-1].values) == ((2,), (16,))
    assert found.here.strategy == TREE
    assert found.here.iterations == len(lab.session.steps)
    assert any(isinstance(part, dict) for part in json.loads(panel.picture.drawing))
    assert panel.point.value == found.points.index(found.best)
    lab.screen.comm.handle_msg({"content": {"data": {"method": "custom", "content": {"point": 0}}}, "buffers": []})
    assert panel.point.value == 0
    click(lab, panel.use)
    assert lab.session.strategy == TREE.changed(node_budget=2)
    assert [(run.number, run.parent, run.at) for run in lab.forks] == [(0, None, 0), (1, 0, 0)]
    assert lab.config.read().strategy == lab.session.strategy
    assert lab.state.pending == ""
    lab.run()
    assert lab.session.token_ids == text
    assert len(lab.session.steps) == found.points[0].iterations
    assert lab.state.curve.here.values == (2,), "what is in force is marked anew"
    assert not lab.state.error


def test_replays_block_no_step_and_a_cancelled_sweep_keeps_what_was_drawn(make, held):
    lab, (go, reached) = make(strategy=TREE, max_new_tokens=24), held
    for _ in range(3):
        lab.step()
    show(lab, SWEEP)
    panel = lab.panels.tabs.curves
    drawn(lab, wait=False)
    assert reached.wait(PATIENCE)
    assert "of" in panel.progress.value
    assert lab.step().index == 3, "it decodes while a replay is under way"
    lab.back()
    lab.fork(node_budget=4)
    panel.end.click()
    assert panel.worker.wait(PATIENCE)
    found = lab.state.curve
    assert 0 < len(found.points) < found.total
    assert found.ended in html(panel.picture)
    assert panel.chosen.layout.display != "none"
    go.set()
    assert drawn(lab).ended == ""


def test_escape_and_stop_end_it_too(lab, held):
    for stop in (lab.stop, lambda: lab.transport.key("Escape")):
        held[1].clear()
        drawn(lab, wait=False)
        assert held[1].wait(PATIENCE)
        stop()
        assert lab.panels.tabs.curves.worker.wait(PATIENCE)
        assert "ancelled" in html(lab.panels.tabs.curves.picture)


def test_what_cannot_be_drawn_is_said_in_the_tab(make, pair):
    lab = make(strategy=TREE)
    show(lab, SWEEP)
    assert "Step" in drawn(lab)
    lab.step()
    for ends in ({"low": "8", "high": "8"}, {"low": "x"}, {"low": "0", "high": "4"}):
        panel = lab.panels.tabs.curves
        panel.first.clear()
        sentence = drawn(lab, **ends)
        assert sentence in html(panel.picture).replace("&#x27;", "'")
    lab.open_trace(lambda: lab.session.trace)
    assert "Run live" in drawn(lab)
    assert not lab.state.error
    sampled = make(strategy=TREE.changed(candidates="independent"), temperature=1.0, acceptance="typical")
    sampled.step()
    show(sampled, SWEEP)
    assert drawn(sampled).endswith(".")
    bare = make(ModelPair(pair.target), strategy=speclab.PromptLookup(), max_new_tokens=8)
    bare.run()
    show(bare, SWEEP)
    assert any(point.inexact for point in drawn(bare, "").points)
    bare.panels.tabs.curves.exact.value = True
    assert not any(point.inexact for point in drawn(bare, "").points if point.values != ("Retrieval",))
    reasons = {point.values[0]: point.refused for point in drawn(bare, "").points}
    assert "draft" in reasons["LinearSpeculation"]


def test_an_open_tab_costs_little_and_two_settings_are_varied(make, messages: Messages, monkeypatch):
    lab = make(strategy=TREE, max_new_tokens=40)
    lab.step()
    show(lab, SWEEP)
    drawn(lab)
    messages.clear()
    lab.step()
    assert not messages.of(lab.panels.tabs.curves.picture)
    monkeypatch.setattr("speclab.lab.curves_panel.REDRAW_SECONDS", 1e9)
    messages.clear()
    drawn(lab)
    assert len(messages.of(lab.panels.tabs.curves.picture)) <= 2, "at its pace, and when it is done"
    messages.clear()
    assert drawn(lab, "root").points[1].values == ("drafted",)
    panel = lab.panels.tabs.curves
    panel.second.setting.value = "history"
    drawn(lab, "node_budget", low="4", high="8", count=3)
    assert settle(lab)
    assert {point.values[1] for point in lab.state.curve.points} == {"iteration", "prompt", "off"}
