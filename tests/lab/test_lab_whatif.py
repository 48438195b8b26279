"""Dragging a threshold shows at once what the tree would have been; Apply makes it so."""

from __future__ import annotations

import pytest
from lab_tools import settle

import speclab
from speclab.lab import Lab

WIDE = speclab.DynaTree(
    stop_probability=0, deep_probability=0, prune_probability=0, low_confidence=0.9, high_confidence=0.95,
    base_depth=3, max_depth=3, history="off",
)  # fmt: skip
DUAL = speclab.DualDraft(first=speclab.DynaTree(), second=speclab.PromptLookup())
EVENT_MESSAGES = 4
"""For one slider event: what has changed, what would have been, where the values lie."""


@pytest.fixture
def lab(make) -> Lab:
    lab = make(strategy=WIDE, max_new_tokens=200)
    lab.step()
    return lab


def drag(lab: Lab, name: str, value: float) -> None:
    lab.config.strategy.form.controls[name].value = value


def hidden(widget) -> bool:
    return widget.layout.display == "none"


def test_the_tree_follows_a_threshold_without_a_model_call_and_goes_back_with_it(lab):
    tree, calls = lab.panels.views["tree"].widget, lab.session.pair.target.calls
    assert hidden(lab.panels.preview)
    assert not hidden(tree)
    drag(lab, "node_budget", 6)
    assert f"6 nodes instead of {len(lab.state.step.tree)}" in lab.panels.preview.value
    assert "Apply forks here." in lab.panels.preview.value
    assert lab.panels.preview.value.count("instead of") == 2, "once to read, once for the picture's label"
    assert "instead of" not in lab.config.note.value
    assert "sl-struck" in lab.panels.preview.value
    assert hidden(tree)
    assert not hidden(lab.panels.preview)
    drag(lab, "node_budget", 256)
    assert hidden(lab.panels.preview)
    assert not hidden(tree)
    assert lab.session.pair.target.calls == calls


def test_each_event_of_a_slider_redraws_the_tree_once(lab, messages):
    drag(lab, "node_budget", 20)
    for budget in (19, 18, 17):
        messages.clear()
        drag(lab, "node_budget", budget)
        control = lab.config.strategy.form.controls["node_budget"]
        sent = [message for message in messages if message not in messages.of(control)]
        assert len(messages.of(lab.panels.preview)) == 1
        assert len(sent) <= EVENT_MESSAGES
        assert messages.size < 60_000


def test_apply_decodes_the_next_trees_as_the_ghost_said(lab):
    lab.back()
    lab.goto(1)
    drag(lab, "max_branches", 2)
    said = lab.panels.preview.value
    lab.goto(0)
    assert hidden(lab.panels.preview)
    lab.config.apply.click()
    assert settle(lab)
    step = lab.step()
    assert f"would have been: {len(step.tree)} nodes instead of" in said
    assert hidden(lab.panels.preview)


def test_the_ghost_follows_the_iteration_and_the_selection(lab):
    lab.step()
    drag(lab, "node_budget", 6)
    second = lab.panels.preview.value
    lab.back()
    first = lab.panels.preview.value
    assert first != second
    lab.select(1)
    assert lab.panels.preview.value != first


def test_where_the_record_does_not_suffice_it_says_so_and_the_tree_stays(lab):
    tree = lab.panels.views["tree"].widget
    drag(lab, "max_depth", 6)
    drag(lab, "base_depth", 6)
    assert "the record does not hold what the draft says behind them" in lab.panels.preview.value
    lab.config.strategy.write(speclab.PromptLookup())
    assert "is not in its record: PromptLookup drafts in another way. Apply forks here." in lab.panels.preview.value
    assert not hidden(tree)
    lab.config.strategy.write(WIDE.changed(node_budget=4))
    assert hidden(tree)
    lab.config.session.controls["temperature"].value = 1.0
    assert "more than the strategy has changed" in lab.panels.preview.value
    assert not hidden(tree)


@pytest.mark.parametrize(
    ("strategy", "name", "value", "says"),
    [
        (speclab.SequoiaTree(node_budget=12), "node_budget", 1, "1 node instead of"),
        (speclab.SequoiaTree(source="draft", node_budget=12), "depth", 1, "nodes instead of 12"),
        (DUAL, "mode", "merge", "would have been"),
        (DUAL, "confidence", "recent", "is not in its record"),
    ],
    ids=["transitions", "draft", "merged", "remembering"],
)
def test_strategies_that_learn_or_choose_answer_too_and_say_what_they_lack(make, strategy, name, value, says):
    lab = make(strategy=strategy, max_new_tokens=200)
    lab.step()
    lab.step()
    calls = lab.session.pair.target.calls
    drag(lab, name, value)
    assert says in lab.panels.preview.value
    assert hidden(lab.panels.views["tree"].widget) == ("is not in its record" not in says)
    assert lab.session.pair.target.calls == calls


def test_settings_that_contradict_each_other_draw_nothing(lab):
    drag(lab, "low_confidence", 0.99)
    assert lab.config.apply.disabled
    assert hidden(lab.panels.preview)


def test_a_view_that_fails_says_so_and_takes_nothing_along(lab, monkeypatch):
    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr("speclab.lab.panels.what_if", broken)
    drag(lab, "node_budget", 6)
    assert "could not be drawn: broken" in lab.panels.preview.value
    assert "node budget 256 → 6" in lab.config.note.value


def test_the_recorded_run_answers_before_any_model_is_loaded(make):
    lab = Lab()
    try:
        drag(lab, "node_budget", 3)
        assert "3 nodes instead of" in lab.panels.preview.value
        assert "Step decodes with the change." in lab.panels.preview.value
    finally:
        lab.close()


def test_another_strategy_than_the_recorded_one_shows_no_ghost():
    lab = Lab(strategy=speclab.FixedTree())
    try:
        drag(lab, "depth", 2)
        assert hidden(lab.panels.preview)
    finally:
        lab.close()


def test_a_strip_of_dots_shows_where_the_values_lie_against_each_threshold(lab, messages):
    form = lab.config.strategy.form
    assert "sl-strip" not in form.captions["node_budget"].value
    lab.config.toggle.value = True
    dotted = {name for name, said in form.captions.items() if "sl-strip" in said.value}
    assert dotted == {
        "high_confidence", "low_confidence", "base_depth", "max_depth", "stop_probability", "deep_probability",
        "prune_probability", "node_budget",
    }  # fmt: skip
    expanded = sum(bool(node.draft_top) for node in lab.state.step.nodes)
    assert f"of {expanded} expanded nodes reach it" in form.captions["high_confidence"].value
    messages.clear()
    drag(lab, "prune_probability", 0.05)
    assert [name for name, said in form.captions.items() if messages.of(said)] == ["prune_probability"]
    before = form.captions["high_confidence"].value
    lab.step()
    assert form.captions["high_confidence"].value != before
    lab.config.toggle.value = False
    messages.clear()
    lab.step()
    assert not any(messages.of(said) for said in form.captions.values())
