"""The lab on what a training-free drafter knew: the panel, the table looked at, the baselines measured."""

from __future__ import annotations

import re
import threading

import pytest
from lab_tools import Messages, decoded, settle, show

import speclab

STRATEGY, SUCCESSORS = "Strategy", "Successors"
STEP_MESSAGES, PANEL_BYTES = 24, 40_000
GOOSE = speclab.Goose(node_budget=12, bypass="off")


def opened(make, tab, strategy=GOOSE, **settings):
    return decoded(make, tab, strategy, max_new_tokens=120, **settings)


def write(lab, text: str) -> str:
    """Types into the field; what the panel then says."""
    lab.panels.tabs.lookup.written.value = text
    assert settle(lab)
    return table(lab)


def table(lab) -> str:
    return lab.panels.tabs.lookup.view.widget.value


def panel(lab) -> str:
    return lab.panels.tabs.views["strategy"].widget.value


def learned(lab, *key: int, at: int | None = None):
    return lab.session.lookup(key[-1], key[-2] if len(key) > 1 else None, at)


def best(found) -> str:
    """The best successor as the table shows it."""
    token, score = found.used.successors[0]
    return f"<td>1</td><td>&#x27;#{token}&#x27;</td><td>{token}</td><td>{score:.3f}</td>"


def cells(page: str) -> str:
    return re.sub(r'<td style="[^"]*">', "<td>", page)


def test_the_panel_shows_the_records_of_the_iteration(make):
    lab = opened(make, STRATEGY)
    for index in (1, 4):
        step = lab.goto(index)
        values = next(event.values for event in step.events if event.kind == "route")
        assert f"</b>{values['route']}" in panel(lab)
        assert f"What iteration {index} went by" in panel(lab)
        assert f"{values['table_rows']:,}</td>" in panel(lab)


@pytest.mark.parametrize("strategy", [speclab.DynaTree(), speclab.Autoregressive(), speclab.PromptLookup()])
def test_the_panel_shows_any_strategy(make, strategy):
    lab = opened(make, STRATEGY, strategy)
    assert "Accepted path." in panel(lab)
    show(lab, SUCCESSORS)
    assert "keeps no table" in table(lab)
    assert lab.state.error == ""


def test_a_step_with_the_panel_open_sends_it_once(make, messages: Messages):
    for tab, view in ((STRATEGY, panel), (SUCCESSORS, table)):
        lab = opened(make, tab)
        before = view(lab)
        messages.clear()
        lab.step()
        assert view(lab) != before
        picture = lab.panels.tabs.views["strategy"] if tab == STRATEGY else lab.panels.tabs.lookup.view
        sent = Messages(messages.of(picture.widget))
        assert len(sent) == 1
        assert sent.size <= PANEL_BYTES
        assert len(messages) <= STEP_MESSAGES


def test_a_step_late_in_a_run_sends_no_more(make, messages: Messages):
    lab = opened(make, STRATEGY)
    lab.run()
    assert len(lab.session.steps) > 30
    messages.clear()
    lab.goto(len(lab.session.steps) - 1)
    assert Messages(messages.of(lab.panels.tabs.views["strategy"].widget)).size <= PANEL_BYTES


def test_what_is_not_seen_is_neither_drawn_nor_looked_up(make, messages, monkeypatch):
    lab = opened(make, "Caches")
    asked = []
    monkeypatch.setattr(type(lab.session), "lookup", lambda *arguments: asked.append(arguments))
    messages.clear()
    lab.step()
    lab.select(0)
    assert asked == []
    for picture in (lab.panels.tabs.views["strategy"], lab.panels.tabs.lookup.view):
        assert messages.of(picture.widget) == []


def test_where_nothing_changed_nothing_is_sent(make, messages):
    lab = opened(make, SUCCESSORS)
    messages.clear()
    lab.panels.update()
    lab.goto(lab.state.cursor)
    lab.panels.tabs.lookup.set_visible(True)
    assert settle(lab)
    assert messages.of(lab.panels.tabs.lookup.view.widget) == []


def test_the_selected_node_and_the_token_written_are_looked_up(make):
    lab = opened(make, SUCCESSORS, GOOSE.changed(score_threshold=0))
    tree = lab.run(until=lambda step: len(step.tree) > 2).tree
    root, child = int(tree.token[0]), int(tree.token[1])
    assert f"&#x27;#{root}&#x27; (" in table(lab)
    lab.select(1)
    assert best(learned(lab, root, child)) in cells(table(lab))
    assert best(learned(lab, 7, 17)) in cells(write(lab, "#7 #17"))
    assert "Bigram" not in write(lab, "17")
    lab.select(0)
    assert lab.panels.tabs.lookup.written.value == ""
    assert f"&#x27;#{root}&#x27; (" in table(lab)


def test_the_moment_shown_says_which_table_is_looked_at(make):
    lab = opened(make, SUCCESSORS)
    lab.goto(3)
    assert "as iteration 3 left the table" in table(lab)
    lab.phase("draft")
    assert "as iteration 2 left the table" in table(lab)
    lab.goto(0)
    assert "as the prompt left the table" in table(lab)
    assert best(learned(lab, 11, at=0)) in cells(write(lab, "11"))


def test_looking_costs_no_model_call(make):
    lab = opened(make, SUCCESSORS)
    calls = lab.session.pair.target.calls
    for index in (1, 2, 4, 0):
        lab.goto(index)
        write(lab, f"#{index}")
    assert lab.session.pair.target.calls == calls


@pytest.mark.parametrize(("written", "said"), [("#99999", "outside the vocabulary"), ("the", "no tokenizer")])
def test_what_cannot_be_looked_up_is_said_in_its_place(make, written, said):
    lab = opened(make, SUCCESSORS)
    assert said in write(lab, written)
    assert lab.state.error == ""
    assert "Successors." in write(lab, "")


def test_a_recorded_run_holds_no_table(make, monkeypatch, pair):
    monkeypatch.setattr("speclab.models.pair.load_pair", lambda **_: pair)
    lab = make(None)
    show(lab, SUCCESSORS)
    assert "A recorded run holds no table" in table(lab)
    show(lab, STRATEGY)
    assert "Accepted path." in panel(lab)


def test_opening_the_table_or_writing_does_not_stop_a_run(make):
    lab = make(max_new_tokens=120, strategy=GOOSE)
    lab.step()

    def person(index):
        lab.panels.tabs.show_tab(SUCCESSORS)
        lab.panels.tabs.lookup.written.value = f"#{index}"

    def meanwhile(step):
        thread = threading.Thread(target=person, args=(step.index,))
        thread.start()
        thread.join()
        return False

    lab.run(until=meanwhile)
    assert lab.session.done
    assert settle(lab)
    assert f"#{len(lab.session.steps) - 1}&#x27;" in table(lab)


def test_baselines_are_measured_on_the_text_shown(make, pair):
    lab = opened(make, STRATEGY)
    button = lab.panels.tabs.measure
    assert button.layout.display is None
    text, trace = lab.session.token_ids, lab.session.trace
    button.click()
    assert settle(lab)
    measured = {}
    for baseline in GOOSE.baselines():
        own = speclab.generate(pair, baseline, lab.session.prompt_ids, max_new_tokens=len(text))
        assert own.token_ids == text
        measured[type(baseline).__name__] = own.metrics.tokens_per_iteration
    comparison = lab.state.comparison
    assert {run.name: run.tokens_per_iteration for run in comparison.runs[1:]} == measured
    assert comparison.runs[0].tokens_per_iteration == lab.session.metrics.tokens_per_iteration
    assert f"{comparison.synergy:.2f}: " in panel(lab)
    assert lab.session.trace == trace
    lab.fork(node_budget=10)
    assert lab.state.comparison is None
    assert "Synergy" not in panel(lab)


def test_without_baselines_there_is_no_button(make):
    assert opened(make, STRATEGY, speclab.PromptLookup()).panels.tabs.measure.layout.display == "none"
    lab = make(strategy=GOOSE)
    lab.panels.tabs.measure.click()
    assert settle(lab)
    assert "No iteration is decoded yet" in lab.state.error


def test_stop_ends_the_measuring(make, monkeypatch):
    lab = opened(make, STRATEGY)
    run = speclab.Session.run
    monkeypatch.setattr(speclab.Session, "run", lambda *args, **more: (lab.stop(), run(*args, **more)))
    lab.panels.tabs.measure.click()
    assert settle(lab)
    assert lab.state.comparison is None
    assert lab.state.status.startswith("Stopped")
