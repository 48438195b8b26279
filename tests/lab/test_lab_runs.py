"""Forks that stay, moving between them, a run kept beside, and what that costs."""

from __future__ import annotations

import pytest
from lab_tools import click, show

import speclab

RUNS = "Compare"


@pytest.fixture
def forked(make):
    """Run 0 with four iterations, fork 1 of it at two with a small tree."""
    lab = make(strategy=speclab.DynaTree(base_depth=4, prune_probability=0.0, stop_probability=0.0))
    for _ in range(4):
        lab.step()
    lab.goto(2)
    lab.fork(node_budget=3)
    lab.step()
    show(lab, RUNS)
    return lab


def family(lab) -> list[tuple[int, int | None, int]]:
    return [(run.number, run.parent, run.at) for run in lab.forks]


def other_prompt(lab) -> None:
    lab.config.prompt.text.value = "9 8 7 6"
    click(lab, lab.config.apply)


def test_every_fork_stays_says_where_it_comes_from_and_is_compared_by_its_figures(forked):
    first, fork = forked.forks
    assert (first.number, first.parent, first.name, first.iterations, first.present) == (0, None, "DynaTree", 4, False)
    assert (fork.number, fork.parent, fork.at, fork.iterations, fork.present) == (1, 0, 2, 3, True)
    assert "node budget" in fork.name
    assert fork.tokens == len(forked.session.token_ids)
    assert fork.tokens_per_iteration == pytest.approx(forked.session.metrics.tokens_per_iteration)
    layers = [layer for runner in forked.session.pair.runners.values() for layer in runner.cache.layers]
    buffers = [buffer for layer in layers for buffer in (layer.key_buffer, layer.value_buffer)]
    assert fork.cache_bytes == sum(buffer.numel() * buffer.element_size() for buffer in buffers) > 0
    found = forked.panels.tabs.runs.picture
    for caption in ("texts are the same", "Runs on this prompt", "Seconds by phase", "Acceptance by depth"):
        assert caption in found.drawing
    table = forked._controller.runs.comparison()
    assert [entry.name for entry in table.runs] == [run.label for run in forked.forks]
    figures = [forked.session.metrics.target_calls, 1 + sum(s.counts.target_calls for s in forked.session.steps)]
    assert table.runs[1].trace.metrics.target_calls == figures[0] == figures[1]
    before = found.drawing
    forked.step()
    assert found.drawing != before
    other_prompt(forked)
    assert "Runs on this prompt" not in found.drawing, "another prompt: nothing to compare with"


def test_switching_back_and_forth_goes_on_where_each_was_left(forked):
    lab, fork = forked, forked.session
    calls = [runner.calls for runner in fork.pair.runners.values()]
    first = lab.switch(0)
    assert lab.session is first is not fork
    assert (lab.state.cursor, len(first.steps)) == (2, 4)
    assert lab.config.strategy.read() == first.strategy
    assert lab.state.pending == "", "nothing differs from the run shown"
    assert [runner.calls for runner in fork.pair.runners.values()] == calls
    lab.run()
    lab.switch(1)
    assert lab.session is fork
    assert lab.state.cursor == 3
    lab.run()
    assert fork.token_ids == first.token_ids, "greedy: the same text"
    other_prompt(lab)
    assert [(run.number, run.parent) for run in lab.forks] == [(0, None), (1, 0), (2, None)]
    lab.switch(1)
    assert lab.config.prompt.text.value == "5 17 3 40 11"
    assert lab.config.read().prompt == lab.session.prompt_ids


def test_dropping_a_run_hangs_its_forks_on_its_parent_and_what_cannot_be_is_refused(forked):
    forked.switch(7)
    assert "There is no run 7" in forked.state.error
    forked.drop(1)
    assert "Run 1 is shown" in forked.state.error
    forked.status.dismiss()
    forked.fork(node_budget=4)
    assert [run.parent for run in forked.forks] == [None, 0, 1]
    forked.drop(1)
    assert family(forked) == [(0, None, 0), (2, 0, 2)]
    forked.drop(0)
    assert family(forked) == [(2, None, 0)]
    assert forked.step() is not None
    assert forked.state.error == ""


def test_the_list_and_its_buttons_do_what_the_methods_do(forked):
    panel = forked.panels.tabs.runs

    def press(button, run):
        panel.choice.value = run
        click(forked, button)

    assert [label.endswith("shown") for label, _ in panel.choice.options] == [False, True]
    press(panel.drop, 1)
    assert "Run 1 is shown" in forked.state.error
    press(panel.switch, 0)
    assert forked.state.cursor == 2
    assert [label.endswith("shown") for label, _ in panel.choice.options] == [True, False]
    press(panel.beside, 1)
    assert forked.state.frame.beside.number == 1
    press(panel.drop, 1)
    assert forked.state.frame.beside is None
    assert [run.number for run in forked.forks] == [0]


def test_a_run_beside_follows_the_cursor_and_stands_in_snapshots(forked):
    lab, pinned = forked, forked.panels.views["beside"]
    lab.pin(0)
    assert "Nodes drafted" in pinned.drawing
    beside = lab.snapshot()
    assert "Beside run 0: DynaTree." in beside
    third = pinned.drawing
    lab.back()
    assert "Both drafted the same tree" in pinned.drawing
    assert "Same text so far" in pinned.drawing
    lab.step()
    assert pinned.drawing == third
    lab.step()
    lab.step()
    assert "The other run has 4 iterations" in pinned.drawing
    lab.switch(0)
    lab.run()
    assert len(lab.state.frame.beside.trace.steps) == len(lab.session.steps)
    lab.pin(0)
    assert lab.state.frame.beside is None
    assert pinned.drawing == ""
