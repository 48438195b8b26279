"""The lab on what a training-free drafter knew: the panel, the table looked at, the strategy of the docs."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from lab_tools import ask, decoded, html, settle, show

import speclab
from speclab.drafters.base import DEFINED

STRATEGY = "Strategy"
GOOSE = speclab.Goose(node_budget=12, bypass="off")


def opened(make, tab, strategy=GOOSE, **settings):
    return decoded(make, tab, strategy, max_new_tokens=120, **settings)


def write(lab, text: str) -> str:
    """Types into the field; what the panel then says."""
    lab.panels.tabs.lookup.written.value = text
    assert settle(lab)
    return table(lab)


def table(lab) -> str:
    return re.sub(r'<td style="[^"]*">', "<td>", html(lab.panels.tabs.lookup.view))


def panel(lab) -> str:
    return html(lab.panels.tabs.views["strategy"])


def best(lab, *key: int, at: int | None = None) -> str:
    """The best successor as the table shows it."""
    found = lab.session.lookup(key[-1], key[-2] if len(key) > 1 else None, at)
    token, score = found.used.successors[0]
    return f"<td>1</td><td>&#x27;#{token}&#x27;</td><td>{token}</td><td>{score:.3f}</td>"


def test_the_panel_shows_the_records_of_the_iteration_and_the_table_of_its_moment(make):
    lab = opened(make, STRATEGY)
    for index in (1, 4):
        step = lab.goto(index)
        values = next(event.values for event in step.events if event.kind == "route")
        assert values["route"] in panel(lab)
        assert f"{values['table_rows']:,}</td>" in panel(lab)
    show(lab, STRATEGY)
    calls = lab.session.pair.target.calls
    lab.goto(3)
    assert "as iteration 3 left the table" in table(lab)
    lab.phase("draft")
    assert "as iteration 2 left the table" in table(lab)
    lab.goto(0)
    assert "as the prompt left the table" in table(lab)
    assert best(lab, 11, at=0) in write(lab, "11")
    assert lab.session.pair.target.calls == calls, "looking costs no model call"
    for written, said in (("#99999", "outside the vocabulary"), ("the", "no tokenizer")):
        assert said in write(lab, written)
    assert lab.state.error == ""
    assert "Successors." in write(lab, "")


@pytest.mark.parametrize(
    "strategy", [speclab.DynaTree(), speclab.Autoregressive(), speclab.PromptLookup()]
)
def test_the_panel_shows_any_strategy(make, strategy):
    lab = opened(make, STRATEGY, strategy)
    decides = strategy != speclab.Autoregressive()
    assert ("Accepted path." in panel(lab)) == decides
    assert bool(lab.panels.tabs.views["course"].drawing) == decides
    show(lab, STRATEGY)
    assert "keeps no table" in table(lab)
    assert lab.state.error == ""


def test_the_selected_node_and_the_token_written_are_looked_up(make):
    lab = opened(make, STRATEGY, GOOSE.changed(score_threshold=0))
    tree = lab.run(until=lambda step: len(step.tree) > 2).tree
    root, child = int(tree.token[0]), int(tree.token[1])
    assert f"&#x27;#{root}&#x27; (" in table(lab)
    lab.select(1)
    assert best(lab, root, child) in table(lab)
    assert best(lab, 7, 17) in write(lab, "#7 #17")
    assert "Bigram" not in write(lab, "17")
    lab.select(0)
    assert lab.panels.tabs.lookup.written.value == ""
    assert f"&#x27;#{root}&#x27; (" in table(lab)


def test_opening_the_table_or_writing_does_not_stop_a_run(make):
    lab = make(max_new_tokens=60, strategy=GOOSE)
    lab.step()

    def person(index):
        lab.panels.tabs.show_tab(STRATEGY)
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


def define(length: int) -> type[speclab.Strategy]:
    """The strategy that docs/architecture.md writes in a cell, as it stands there, with another default."""
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class Echo(" in block)
    cell: dict[str, object] = {}
    exec(code.replace("Field(3,", f"Field({length},"), cell)
    return cell["Echo"]


def test_the_strategy_of_the_docs_works_in_every_control_and_can_be_defined_anew(make, pair, tmp_path, monkeypatch):
    monkeypatch.setattr("speclab.drafters.DEFINED", dict(DEFINED))
    monkeypatch.setattr("speclab.drafters.base.DEFINED", speclab.drafters.DEFINED)
    echo = define(3)
    session = speclab.Session(pair, echo(), [5, 17, 3], max_new_tokens=20)
    session.step()
    session.fork(length=2).run()
    lab = make(strategy=echo(), max_new_tokens=30)
    assert lab.step().settings["length"] == 3
    for tab in lab.panels.tabs.titles:
        show(lab, tab)
    lab.config.strategy.form.controls["length"].value = 2
    assert lab.step().settings["length"] == 2
    lab.config.strategy.form.controls["length"].value = 5
    assert ask(lab, "redo").settings["length"] == 5
    lab.switch(0)
    assert lab.config.read().strategy == echo()
    table = lab.compare(["current settings", "Echo", echo, echo(length=4)], max_new_tokens=8)
    assert [entry.complete for entry in table.runs] == [True] * 4
    again = define(7)
    lab.fork(again())
    assert lab.step().settings["length"] == 7
    assert lab.config.read().strategy == again()
    lab.fork(speclab.Autoregressive())
    lab.config.strategy.choice.value = "Echo"
    assert lab.step().settings["strategy"] == "Echo"
    lab.open_trace(lab.save_trace(tmp_path / "echo.json.gz"))
    assert lab.step() is not None
    assert lab.state.error == ""
    other = make(strategy=again(length=1))
    assert other.step().settings["length"] == 1
    assert other.state.error == ""
