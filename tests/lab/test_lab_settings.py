"""Sliders, their preview and curve; Apply, which decodes the iteration again; and a tree built by hand."""

from __future__ import annotations

import pytest
from lab_tools import PROMPT, Page, html

import speclab
from speclab.analysis.whatif import what_if
from speclab.drafters import strategies
from speclab.lab.settings_tab import control, share

SMALL = speclab.DynaTree(
    node_budget=12,
    stop_probability=0,
    deep_probability=0,
    prune_probability=0,
    max_branches=3,
    history="off",
)


@pytest.fixture
def page(make, sent):
    page = Page(make(strategy=SMALL, max_new_tokens=120), sent)
    page.say(do="step")
    page.go(2, tab="settings")
    return page


def slide(page, name, value):
    page._sent.clear()
    page.lab._sliders.controls[name].value = value
    return page.hear()


def test_every_strategy_has_controls_that_hold_its_values():
    for kind in strategies(by_hand=False).values():
        for name, field in kind.model_fields.items():
            widget = control(name, field, field.default)
            if widget is not None and not field.is_required():
                assert widget.value == field.default
                assert not hasattr(widget, "max") or 0 <= share(widget, widget.value) <= 1


def test_a_slider_previews_at_once_what_would_have_been_drafted(page):
    step = page.lab.state.step
    told = slide(page, "node_budget", 4)
    assert len(told) == 1, "one message"
    assert "node budget 12 → 4" in page.status["pending"]
    expected = what_if(step, SMALL.changed(node_budget=4))
    assert len(expected.tree) == 4
    assert page.preview is not None
    assert len(page.iterations) == 2, "nothing was decoded"
    page.lab._sliders.reset.click()
    page.hear()
    assert page.preview is None
    assert page.status["pending"] is None
    assert page.lab._sliders.controls["node_budget"].value == 12


def test_apply_decodes_the_iteration_again_in_a_fork_and_shows_both_trees(page):
    former = page.lab.session
    old = page.lab.state.step
    slide(page, "node_budget", 4)
    page.lab._sliders.apply.click()
    page.hear()
    assert page.lab.session is not former
    assert former.steps[1] is old
    assert page.lab.state.cursor == 2, "the same iteration"
    assert len(page.lab.state.step.tree) == 4
    assert len(page.parts["redone"]) == 2
    assert "4 nodes instead of" in html(page.parts["redone"])
    assert page.holds_the_run()
    assert page.status["pending"] is page.preview is None


def test_step_applies_what_is_pending_from_here_on(page):
    before = page.lab.session.steps
    slide(page, "node_budget", 4)
    page.say(do="step")
    assert page.lab.session.steps[:2] == before
    assert len(page.lab.state.step.tree) <= 4
    assert page.status["pending"] is None
    assert page.place == (3, "all", None)
    assert page.holds_the_run()


def test_settings_that_contradict_each_other_are_refused_beside_the_sliders_until_mended(page):
    slide(page, "high_confidence", 0.2)
    assert page.status["error"]["where"] == "settings"
    assert "high_confidence" in page.status["error"]["sentence"]
    assert "high_confidence" in page.lab._sliders.note.value
    count = len(page.iterations)
    page.say(do="step")
    assert len(page.iterations) == count, "nothing pending is ignored"
    slide(page, "low_confidence", 0.1)
    assert page.status["error"] is None
    page.say(do="step")
    assert page.lab.session.strategy.high_confidence == 0.2
    assert page.lab.session.strategy.low_confidence == 0.1


def test_a_curve_replays_the_text_over_the_range_of_a_setting(page):
    page.say(do="run", until={"kind": "expression", "value": "iteration >= 8"})
    calls = page.lab.session.metrics.target_calls
    page._sent.clear()
    cell = page.lab._sliders._cells["node_budget"]
    cell.children[0].children[1].click()
    page.hear()
    assert page.status["error"] is None
    figure, words = page.parts["curve"]
    assert figure
    assert words.startswith("<p>")
    assert page.lab.session.metrics.target_calls == calls, "no target runs"


# By hand.


def test_a_tree_built_by_hand_is_verified_in_a_fork_and_the_strategy_goes_on(page):
    lab = page.lab
    old = page.lab.state.step
    former = lab.session
    page.say(do="prune", node=1)
    assert page.preview is not None
    choice = old.nodes[0].target_choice
    have = {int(old.tree.token[child]) for child in old.tree.children[0]} - {int(old.tree.token[1])}
    if choice not in have:
        page.say(do="add", node=0, token=choice, text=None)
    page.say(do="verify")
    assert page.status["error"] is None
    assert page.place == (2, "all", None)
    step = lab.state.step
    assert choice in step.tree.token[[int(child) for child in step.tree.children[0]]]
    assert step.accepted, "the target's own choice was in the tree"
    assert page.status["sentence"].startswith("By hand ")
    assert f"DynaTree had {len(old.committed)} from {len(old.tree)}" in page.status["sentence"]
    assert html(page.parts["byhand"])
    assert lab.session is not former
    assert lab.session.strategy == SMALL, "the former strategy goes on"
    page.say(do="step")
    assert lab.state.step.counts.drafted > 0
    assert page.holds_the_run()
    lab.run()
    plain = speclab.generate(lab.session.pair, speclab.Autoregressive(), PROMPT, max_new_tokens=120)
    assert list(lab.session.token_ids) == list(plain.token_ids), (
        "by hand too the text is the target's"
    )


def test_edits_name_nodes_as_the_page_sees_them_and_are_taken_back(page):
    step = page.lab.state.step
    edits = page.lab._commands.editor
    leaf = len(step.tree) - 1
    page.say(do="add", node=leaf, token=7, text=None)
    edit = edits._edits[-1]
    new = next(node for node in range(len(edit.tree)) if edit.recorded(node) is None)
    page.say(do="add", node=f"new {new}", token=9, text=None)
    tree = edits._edits[-1].tree
    assert len(tree) == len(step.tree) + 2
    assert tree.token[list(tree.path(len(tree) - 1))].tolist()[-2:] == [7, 9]
    page.say(do="undo")
    page.say(do="undo")
    assert page.preview is None
    page.say(do="prune", node=0)
    assert page.status["error"]["where"] == "hand"
    page.say(do="prune", node=leaf)
    assert page.status["error"] is None
    page.go(1)
    assert page.preview is None, "another iteration is shown"


def test_a_token_is_typed_as_it_is_shown(make, sent):
    page = Page(make("mini", prompt="Once upon a time", max_new_tokens=40), sent)
    page.say(do="add", node=0, token=None, text="zebra crossing")
    assert page.status["error"]["where"] == "hand"
    page.say(do="add", node=0, token=None, text="#500")
    assert page.status["error"] is None
    assert 500 in page.lab._commands.editor._edits[-1].tree.token


def test_a_strategy_that_cannot_be_previewed_is_still_pending(make, sent):
    page = Page(make(strategy=speclab.PromptLookup(), max_new_tokens=40), sent)
    page.go(1, tab="settings")
    slide(page, "draft_tokens", 2)
    assert page.status["error"] is None
    assert page.preview is None
    assert "draft tokens" in page.status["pending"]
