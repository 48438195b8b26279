"""Strategies side by side on the prompt of the lab: the table, progress, Stop, the panel and what it sends."""

from __future__ import annotations

from lab_tools import PROMPT, Messages, click, settle

import speclab
from speclab.engine.session import Session
from speclab.lab.runs import CURRENT, named_strategies
from speclab.models.pair import ModelPair

COMPARE = "Compare"
THREE = ["Autoregressive", speclab.LinearSpeculation(draft_tokens=3), speclab.DynaTree]


def test_the_table_holds_what_each_strategy_does_alone(lab, pair):
    lab.step()
    session, text = lab.session, lab.session.token_ids
    table = lab.compare(THREE, max_new_tokens=24)
    strategies = [speclab.Autoregressive(), speclab.LinearSpeculation(draft_tokens=3), speclab.DynaTree()]
    for entry, strategy in zip(table.runs, strategies, strict=True):
        alone = Session(pair, strategy, PROMPT, max_new_tokens=24)
        alone.run()
        assert list(entry.token_ids) == alone.token_ids
        for name in ("tokens_per_iteration", "target_calls", "draft_calls"):
            assert getattr(entry.trace.metrics, name) == getattr(alone.metrics, name)
        assert sum(entry.seconds(phase) for phase in ("draft", "verify", "accept", "commit", "learn")) > 0
        assert table.differs_at(entry) is None
    assert [entry.name for entry in table.runs] == ["Autoregressive", "LinearSpeculation, draft tokens 3", "DynaTree"]
    assert "all 3 texts are the same, 24 tokens" in lab.state.status
    assert lab.session is session
    assert lab.session.token_ids == text
    assert lab.state.compared is table
    lines = str(table).splitlines()
    assert lines[0].split() == ["strategy", "tokens", "tokens_per_iteration", "target_calls", "draft_calls"]
    assert all(line.startswith(run.name) for line, run in zip(lines[1:], table.runs, strict=True))


def test_one_that_cannot_run_says_why_and_the_others_go_on(make, pair):
    lab = make(ModelPair(pair.target))
    table = lab.compare(["LinearSpeculation", "Autoregressive"], max_new_tokens=8)
    assert table.runs[0].trace is None
    assert "draft model" in table.runs[0].problem
    assert table.runs[1].complete
    assert table.differs_at(table.runs[0]) is None
    assert lab.state.error == ""


def test_what_cannot_be_compared_is_refused_in_a_sentence(lab):
    for wrong, said in ((["Nonsense"], "'Nonsense' is no"), ([], "No strategy is chosen"), ([3], "no strategy")):
        assert lab.compare(wrong) is None
        assert said in lab.state.error
    assert lab.compare(["Autoregressive"], max_new_tokens=0) is None
    assert "max_new_tokens" in lab.state.error
    lab.config.prompt.text.value = ""
    assert lab.compare(["Autoregressive"]) is None
    assert "prompt is empty" in lab.state.error


def test_without_names_the_strategy_of_the_pickers_runs_and_draws_are_not_held_to_be_equal(lab):
    lab.config.strategy.form.controls["node_budget"].value = 7
    (entry,) = lab.compare().runs
    assert (entry.trace.settings["node_budget"], entry.trace.settings["max_new_tokens"]) == (7, 40)
    assert entry.depths
    for depth, (drafted, accepted) in enumerate(entry.depths, 1):
        assert drafted == sum(step.tree.depth.max() >= depth for step in entry.steps)
        assert accepted == sum(len(step.accepted) >= depth for step in entry.steps)
    table = lab.compare(THREE, temperature=1.0, max_new_tokens=16)
    assert not table.greedy
    assert "every text is a draw of its own" in lab.state.status


def test_names_tell_settings_apart():
    assert list(named_strategies(["Goose", speclab.Goose(), speclab.DynaTree(node_budget=24)])) == [
        "Goose", "Goose, paper, but for the bypass", "DynaTree, node budget 24",
    ]  # fmt: skip


def test_stop_ends_the_strategy_at_work_and_keeps_what_had_run(make):
    lab = make(max_new_tokens=150)

    def stop(change) -> None:
        if change["new"] is not None and change["new"].at_work == "LinearSpeculation":
            lab.stop()

    lab.state.observe(stop, names="progress")
    table = lab.compare(["Autoregressive", "LinearSpeculation", "DynaTree"])
    first, second = table.runs
    assert table.stopped
    assert first.complete
    assert not second.complete
    assert second.problem == "stopped before its end"
    assert table.differs_at(second) is None
    assert "then stopped" in lab.state.status
    assert lab.state.progress is None
    assert lab.step() is not None


def test_progress_is_said_for_each_strategy_and_stop_reaches_the_pass_under_way(lab, monkeypatch):
    monkeypatch.setattr("speclab.lab.controller.REDRAW_SECONDS", 600)  # however slow the machine: once a strategy
    seen = []
    lab.state.observe(lambda change: seen.append(change["new"]), names="progress")
    lab.compare(THREE, max_new_tokens=12)
    assert [progress.at_work for progress in seen[:-1]] == list(dict.fromkeys(p.at_work for p in seen[:-1]))
    assert list(seen[0].tokens) == [entry.name for entry in lab.state.compared.runs]
    assert seen[2].tokens["Autoregressive"] == seen[2].most == 12
    assert seen[-1] is None
    # The session at work is told, not only the one shown: a long iteration ends inside it.
    told = []
    monkeypatch.setattr(Session, "cancel", lambda session, to=told: to.append(session))
    lab._controller.other = other = lab.session.fork()
    lab._interrupt()
    assert told == [lab.session, other]


def test_the_panel_is_made_when_seen_and_draws_once(make, messages: Messages):
    lab = make(max_new_tokens=40)
    panel = lab.panels.tabs.compare
    assert not panel.marks
    lab.panels.tabs.show_tab(COMPARE)
    assert settle(lab)
    assert panel.chosen == [CURRENT, "Autoregressive", "LinearSpeculation", "PromptLookup"]
    assert set(panel.marks) == {CURRENT, *speclab.strategies(by_hand=False)}
    panel.tokens.value = 10
    messages.clear()
    click(lab, panel.go)
    assert len(messages.of(panel.picture)) == 1
    assert len(messages) <= 40
    assert "all 4 texts are the same, 10 tokens" in panel.picture.drawing
    messages.clear()
    lab.step()
    lab.select(0)
    assert not messages.of(panel.picture)
    assert panel.end.layout.display == "none"
