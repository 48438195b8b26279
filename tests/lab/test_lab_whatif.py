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


def drag(lab: Lab, name: str, value: float) -> str:
    """What is said then of the tree."""
    lab.config.strategy.form.controls[name].value = value
    return lab.panels.preview.sentence()


def previewed(lab: Lab) -> bool:
    """Whether the preview stands in the place of the tree."""
    shown = [widget.layout.display != "none" for widget in (lab.panels.preview, lab.panels.views["tree"])]
    return shown == [True, False]


def test_the_tree_follows_a_threshold_without_a_model_call_and_goes_back_with_it(lab, messages):
    calls = lab.session.pair.target.calls
    assert not previewed(lab)
    for budget in (6, 5, 4):
        messages.clear()
        said = drag(lab, "node_budget", budget)
        assert f"{budget} nodes instead of {len(lab.state.step.tree)}" in said
        assert previewed(lab)
        control = lab.config.strategy.form.controls["node_budget"]
        assert len(messages.of(lab.panels.preview)) == 1
        if budget < 6:  # the first brings Apply in sight too
            assert len([message for message in messages if message not in messages.of(control)]) <= EVENT_MESSAGES
        assert messages.size < 60_000
    lab.select(1)
    assert lab.panels.preview.sentence() != said
    drag(lab, "node_budget", 256)
    assert not previewed(lab)
    drag(lab, "low_confidence", 0.99)
    assert lab.config.apply.disabled, "settings that contradict each other draw nothing"
    assert not previewed(lab)
    assert lab.session.pair.target.calls == calls


def test_apply_decodes_the_next_trees_as_the_preview_said(lab):
    said = drag(lab, "max_branches", 2)
    lab.goto(0)
    assert not previewed(lab)
    lab.config.apply.click()
    assert settle(lab)
    step = lab.step()
    assert f"would have been: {len(step.tree)} nodes instead of" in said
    assert not previewed(lab)


def test_where_the_record_does_not_suffice_it_says_so_and_the_tree_stays(lab):
    drag(lab, "max_depth", 6)
    assert "the record does not hold what the draft says behind them" in drag(lab, "base_depth", 6)
    lab.config.strategy.write(speclab.PromptLookup())
    assert "is not in its record: PromptLookup drafts in another way" in lab.panels.preview.sentence()
    assert lab.panels.views["tree"].layout.display != "none"
    lab.config.strategy.write(WIDE.changed(node_budget=4))
    assert previewed(lab)
    lab.config.session.controls["temperature"].value = 1.0
    assert "more than the strategy has changed" in lab.panels.preview.sentence()
    assert lab.panels.views["tree"].layout.display != "none"


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
    assert says in drag(lab, name, value)
    assert previewed(lab) == ("is not in its record" not in says)
    assert lab.session.pair.target.calls == calls


def test_a_preview_that_fails_says_so_and_takes_nothing_along(lab, monkeypatch):
    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr("speclab.lab.panels.what_if", broken)
    assert "could not be drawn: broken" in drag(lab, "node_budget", 6)
    assert "node budget 256 → 6" in lab.config.note.value


@pytest.mark.parametrize(
    ("strategy", "name", "said"),
    [(None, "node_budget", "3 nodes instead of"), (speclab.FixedTree(), "depth", "")],
    ids=["the recorded strategy", "another"],
)
def test_the_recorded_run_answers_before_any_model_is_loaded(strategy, name, said):
    lab = Lab(strategy=strategy)
    assert said in drag(lab, name, 3 if said else 2)
    assert previewed(lab) == bool(said)
    lab.close()


def test_a_strip_of_dots_shows_where_the_values_lie_against_each_threshold(lab, messages):
    form = lab.config.strategy.form
    assert not any("sl-strip" in said.value for said in form.captions.values())
    lab.config.toggle.value = True
    dotted = {name for name, said in form.captions.items() if "sl-strip" in said.value}
    assert {"high_confidence", "low_confidence", "prune_probability", "node_budget"} < dotted
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
