"""Forks that stay, moving between them, a run kept beside, and what that costs."""

from __future__ import annotations

import pytest
from lab_tools import Messages, settle

import speclab

CACHES, RUNS = "Caches", "Runs"


def forked(make, tab=RUNS, **settings):
    """Run 0 with four iterations, fork 1 of it at two with a small tree."""
    lab = make(strategy=speclab.DynaTree(base_depth=4, prune_probability=0.0, stop_probability=0.0), **settings)
    for _ in range(4):
        lab.step()
    lab.goto(2)
    lab.fork(node_budget=3)
    lab.step()
    lab.panels.tabs.show_tab(tab)
    assert settle(lab)
    return lab


def test_every_fork_stays_and_says_where_it_comes_from(make):
    lab = forked(make)
    first, fork = lab.forks
    assert (first.number, first.parent, first.name, first.iterations, first.present) == (0, None, "DynaTree", 4, False)
    assert (fork.number, fork.parent, fork.at, fork.iterations, fork.present) == (1, 0, 2, 3, True)
    assert "node budget" in fork.name
    assert fork.tokens == len(lab.session.token_ids)
    assert fork.tokens_per_iteration == pytest.approx(lab.session.metrics.tokens_per_iteration)


def test_the_memory_said_is_what_the_caches_hold(make):
    lab = forked(make)
    layers = [layer for runner in lab.session.pair.runners.values() for layer in runner.cache.layers]
    buffers = [buffer for layer in layers for buffer in (layer.key_buffer, layer.value_buffer)]
    assert lab.forks[1].cache_bytes == sum(buffer.numel() * buffer.element_size() for buffer in buffers) > 0
    assert "KV caches" in lab.panels.tabs.runs.picture.widget.value


def test_switching_back_and_forth_goes_on_where_each_was_left(make):
    lab = forked(make)
    fork, calls = lab.session, [runner.calls for runner in lab.session.pair.runners.values()]
    first = lab.switch(0)
    assert lab.session is first is not fork
    assert (lab.state.cursor, len(first.steps)) == (2, 4)
    assert lab.config.strategy.read() == first.strategy
    assert "Switched to run 0" in lab.state.status
    assert lab.config.pending.layout.display == "none"  # nothing differs from the run shown
    assert [runner.calls for runner in fork.pair.runners.values()] == calls
    lab.run()
    whole = first.token_ids
    lab.switch(1)
    assert lab.session is fork
    assert lab.state.cursor == 3
    lab.run()
    assert fork.token_ids == whole  # greedy: the same text
    assert [run.present for run in lab.forks] == [False, True]


def test_a_run_and_its_forks_are_compared_by_their_figures(make):
    lab = forked(make)
    found = lab.panels.tabs.runs.picture.widget
    assert "texts are the same as far as each came, as they must be" in found.value
    for caption in ("Runs on this prompt", "Milliseconds by phase", "Acceptance by depth", "The text they all share"):
        assert caption in found.value
    table = lab._controller.runs.comparison()
    assert [entry.name for entry in table.runs] == [run.label for run in lab.forks]
    figures = [lab.session.metrics.target_calls, 1 + sum(step.counts.target_calls for step in lab.session.steps)]
    assert table.rows()[1]["target_calls"] == figures[0] == figures[1]
    before = found.value
    lab.step()
    assert found.value != before
    lab.config.prompt.text.value = "9 8 7 6"
    lab.config.apply.click()
    assert settle(lab)
    assert "Runs on this prompt" not in found.value, "another prompt: nothing to compare with"


def test_a_run_that_is_not_there_or_shown_is_refused_in_one_sentence(make):
    lab = forked(make)
    lab.switch(7)
    assert "There is no run 7" in lab.state.error
    lab.drop(1)
    assert "Run 1 is shown" in lab.state.error
    assert len(lab.forks) == 2


def test_dropping_a_run_hangs_its_forks_on_its_parent(make):
    lab = forked(make)
    lab.fork(node_budget=4)
    assert [run.parent for run in lab.forks] == [None, 0, 1]
    lab.drop(1)
    assert [(run.number, run.parent, run.at) for run in lab.forks] == [(0, None, 0), (2, 0, 2)]
    lab.drop(0)
    assert [(run.number, run.parent, run.at) for run in lab.forks] == [(2, None, 0)]
    lab.step()
    assert lab.state.error == ""


def test_a_new_prompt_is_a_run_beside_the_old(make):
    lab = forked(make)
    lab.config.prompt.text.value = "9 8 7 6"
    lab.config.apply.click()
    assert settle(lab)
    assert [(run.number, run.parent) for run in lab.forks] == [(0, None), (1, 0), (2, None)]
    lab.switch(1)
    assert lab.config.prompt.text.value == "5 17 3 40 11"
    assert lab.config.read().prompt == lab.session.prompt_ids
    assert lab.config.pending.layout.display == "none"


def test_the_list_and_its_buttons_do_what_the_methods_do(make):
    lab = forked(make)
    panel = lab.panels.tabs.runs
    assert [label.endswith("shown") for label, _ in panel.choice.options] == [False, True]
    panel.drop.click()
    assert settle(lab)
    assert "Run 1 is shown" in lab.state.error
    panel.choice.value = 0
    panel.switch.click()
    assert settle(lab)
    assert lab.state.cursor == 2
    assert [label.endswith("shown") for label, _ in panel.choice.options] == [True, False]
    panel.choice.value = 1
    panel.beside.click()
    assert settle(lab)
    assert lab.state.frame.beside.number == 1
    assert panel.beside.description == "Close comparison"
    panel.drop.click()
    assert settle(lab)
    assert lab.state.frame.beside is None
    assert [run.number for run in lab.forks] == [0]
    assert "of KV caches" in lab.state.status


def test_a_run_beside_follows_the_cursor_and_what_is_decoded_there(make):
    lab = forked(make)
    pinned = lab.panels.views["beside"].widget
    lab.pin(0)
    assert pinned.layout.display is None
    assert "Nodes drafted" in pinned.value
    assert pinned.value.count("<svg") == 2
    third = pinned.value
    lab.back()
    assert "Both drafted the same tree" in pinned.value
    assert "Same text so far" in pinned.value
    lab.step()
    assert pinned.value == third
    lab.step()
    lab.step()
    assert "The other run has 4 iterations" in pinned.value
    lab.switch(0)
    lab.run()
    assert len(lab.state.frame.beside.trace.steps) == len(lab.session.steps)
    lab.pin(0)
    assert lab.state.frame.beside is None
    assert pinned.layout.display == "none"


def test_what_is_kept_beside_stands_in_the_snapshot_and_in_the_saved_page(make, tmp_path):
    lab = forked(make)
    plain = lab.snapshot()
    assert "Route." in plain
    lab.pin(0)
    beside = lab.snapshot()
    assert "Beside run 0: DynaTree." in beside
    lab.pin()
    lab.back()
    assert "Beside the pinned iteration." in lab.snapshot()
    assert beside.count("<svg") == plain.count("<svg") + 2
    page = lab.export(tmp_path / "run.html").read_text(encoding="utf-8")
    assert "Beside run 0: DynaTree." in page.split("<script")[0]


def test_a_step_sends_the_tree_of_forks_and_the_run_beside_once(make, messages: Messages):
    lab = forked(make)
    lab.pin(0)
    runs, beside = lab.panels.tabs.runs.picture.widget, lab.panels.views["beside"].widget
    messages.clear()
    lab.step()
    assert len(messages.of(runs)) == len(messages.of(beside)) == 1
    assert not messages.of(lab.panels.tabs.runs.choice)
    assert len(messages) <= 28
    messages.clear()
    lab.select(0)
    lab.phase("draft")
    assert not messages.of(runs)
    assert not messages.of(beside)


def test_what_is_not_seen_is_not_drawn(make, messages: Messages):
    lab = forked(make, CACHES)
    messages.clear()
    lab.step()
    lab.fork(node_budget=5)
    assert not messages.of(lab.panels.tabs.runs.picture.widget)
    assert not messages.of(lab.panels.views["beside"].widget)
    lab.panels.tabs.show_tab(RUNS)
    assert lab.panels.tabs.runs.picture.widget.value.count("<circle") == 3
