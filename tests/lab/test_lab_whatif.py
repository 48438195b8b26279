"""Dragging a threshold shows at once what the tree would have been; Apply makes it so."""

from __future__ import annotations

import pytest
from lab_tools import ask, click, show

import speclab
from speclab.lab import Lab
from speclab.lab.config import NEXT, REDO
from speclab.lab.screen import packed
from speclab.views.registry import VIEWS

WIDE = speclab.DynaTree(
    stop_probability=0, deep_probability=0, prune_probability=0, low_confidence=0.9, high_confidence=0.95,
    base_depth=3, max_depth=3, history="off",
)  # fmt: skip


@pytest.fixture
def lab(make) -> Lab:
    lab = make(strategy=WIDE, max_new_tokens=200)
    lab.step()
    lab.step()
    return lab


def drag(lab: Lab, name: str, value: float) -> str:
    """What is said then of the tree."""
    lab.config.strategy.form.controls[name].value = value
    return lab.panels.preview.sentence()


def previewed(lab: Lab) -> bool:
    """Whether the tree that would have been stands in the place of the tree."""
    frame = lab.state.frame
    return lab.panels.views["tree"].drawing != packed(VIEWS["tree"].render(frame))


def test_the_tree_follows_a_threshold_without_a_model_call_and_goes_back_with_it(lab, messages):
    calls = lab.session.pair.target.calls
    assert not previewed(lab)
    for budget in (6, 5, 4):
        messages.clear()
        said = drag(lab, "node_budget", budget)
        assert f"{budget} nodes instead of {len(lab.state.step.tree)}" in said
        assert previewed(lab)
        assert len(messages.of(lab.panels.views["tree"])) == 1
        assert messages.size < 60_000
    lab.back()
    assert lab.panels.preview.sentence() not in {"", said}
    drag(lab, "node_budget", 256)
    assert not previewed(lab)
    drag(lab, "low_confidence", 0.99)
    assert lab.config.apply.disabled, "settings that contradict each other draw nothing"
    assert not previewed(lab)
    assert lab.session.pair.target.calls == calls


@pytest.mark.parametrize("live", [True, False], ids=["live", "recorded"])
def test_apply_decodes_the_iteration_anew_as_the_preview_said_and_keeps_the_old_beside(lab, live, tmp_path):
    lab.back()
    if not live:
        lab.open_trace(lab.save_trace(tmp_path / "run.json.gz"))
    old, former, runs = lab.state.step, lab.session, len(lab.forks)
    said = drag(lab, "max_branches", 2)
    assert lab.config.when.value == REDO
    click(lab, lab.config.apply)
    new = lab.state.step
    assert lab.state.frame.redone is old
    assert lab.state.frame.live
    assert (new.index, new.prefix_length, lab.state.cursor) == (old.index, old.prefix_length, 1)
    assert new.settings["max_branches"] == 2
    figures = f"{len(new.tree)} nodes instead of {len(old.tree)}"
    assert figures in said
    assert figures in lab.state.status
    assert "max branches 3 → 2" in lab.state.status
    assert (len(lab.forks), lab.forks[-1].at, len(former.steps)) == (runs + 1, 0, 2)
    assert (lab.state.change, lab.state.pending) == (None, "")
    assert not previewed(lab)
    lab.phase("accept")
    assert lab.state.frame.redone is old, "its phases are looked at with the old beside them"
    lab.step()
    assert lab.state.frame.redone is None


def test_from_the_next_iteration_on_what_is_shown_stays(lab):
    shown = lab.state.step
    drag(lab, "max_branches", 2)
    lab.config.when.value = NEXT
    click(lab, lab.config.apply)
    assert (lab.state.step, lab.state.frame.redone, lab.session.strategy.max_branches) == (shown, None, 2)
    assert lab.step().settings["max_branches"] == 2


def test_a_redo_that_fails_leaves_everything_and_another_prompt_begins_anew(lab, monkeypatch):
    drag(lab, "max_branches", 2)
    session, frame = lab.session, lab.state.frame
    with monkeypatch.context() as broken:
        broken.setattr(type(session), "step", lambda _: {}["missing"])
        ask(lab, "redo")
    assert "KeyError" in lab.state.error
    assert (lab.session, lab.state.frame, len(lab.forks)) == (session, frame, 1)
    lab.config.prompt.text.value = "9 8 7"
    ask(lab, "redo")
    assert (lab.session.prompt_ids, lab.state.cursor, lab.state.frame.redone) == ([9, 8, 7], 1, None)


def test_where_the_record_does_not_suffice_it_says_so_and_the_tree_stays(lab):
    drag(lab, "max_depth", 6)
    assert "the record does not hold what the draft says behind them" in drag(lab, "base_depth", 6)
    lab.config.strategy.write(speclab.PromptLookup())
    assert "is not in its record: PromptLookup drafts in another way" in lab.panels.preview.sentence()
    assert not previewed(lab)
    lab.config.strategy.write(WIDE.changed(node_budget=4))
    assert previewed(lab)
    lab.config.session.controls["temperature"].value = 1.0
    assert "more than the strategy has changed" in lab.panels.preview.sentence()
    assert not previewed(lab)


def test_the_recorded_run_answers_before_any_model_is_loaded_and_a_preview_that_fails_says_so(monkeypatch):
    lab = Lab()
    assert "3 nodes instead of" in drag(lab, "node_budget", 3)
    assert previewed(lab)
    assert lab.session is None
    monkeypatch.setattr("speclab.lab.panels.what_if", lambda *_: 1 / 0)
    assert "could not be drawn: division by zero" in drag(lab, "node_budget", 6)
    assert "node budget 24 → 6" in lab.config.note.value
    lab.close()


def test_a_strip_of_dots_shows_where_the_values_lie_against_each_threshold(lab, messages):
    form = lab.config.strategy.form
    assert not form.captions, "controls are made when they are first seen"
    show(lab, "What if")
    dotted = [said for said in form.captions.values() if "sl-strip" in said.value]
    assert len(dotted) >= 2
    expanded = sum(bool(node.draft_top) for node in lab.state.step.nodes)
    assert f"of {expanded} expanded nodes reach it" in form.captions["high_confidence"].value
    messages.clear()
    drag(lab, "high_confidence", 0.93)
    assert [name for name, said in form.captions.items() if messages.of(said)] == ["high_confidence"]
    before = [said.value for said in dotted]
    lab.back()
    assert [said.value for said in dotted] != before
    show(lab, "Caches")
    messages.clear()
    lab.goto(2)
    assert not any(messages.of(said) for said in form.captions.values())
