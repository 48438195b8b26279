"""Settings, their preview and curve; Apply, which decodes the iteration again; and a tree built by hand."""

from __future__ import annotations

import pytest
from lab_tools import PROMPT, Page

import speclab
from speclab.analysis.whatif import what_if
from speclab.drafters import strategies

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
    page.do("step")
    page.go(2, tab="settings")
    return page


def test_the_catalog_describes_every_setting_of_every_strategy(page):
    offered = {one["name"]: one for one in page.panels["catalog"]["strategies"]}
    assert set(offered) == set(strategies(by_hand=False))
    for name, kind in strategies(by_hand=False).items():
        assert offered[name]["group"] in {"papers", "baselines", "training-free", "yours"}
        fields = offered[name]["schema"]["properties"]
        assert set(fields) == set(kind.model_fields)
        for preset in offered[name]["presets"]:
            kind(**preset["settings"])
    assert offered["DynaTree"]["schema"]["properties"]["low_confidence"]["x-symbol"] == "τ_ℓ"
    assert (
        offered["DynaTree"]["schema"]["properties"]["low_confidence"]["x-measure"] == "confidence"
    )


def test_a_setting_previews_at_once_what_would_have_been_drafted(page):
    step = page.lab.state.step
    page.set(node_budget=4)
    assert page.status["pending"] == ["node budget 12 → 4"]
    expected = what_if(step, SMALL.changed(node_budget=4))
    assert page.preview["tree"]["token"] == expected.tree.token.tolist()
    assert page.preview["recorded"] == list(expected.recorded)
    assert page.preview["accepted"] == list(expected.accepted)
    assert len(page.steps) == 2, "nothing was decoded"
    page.do("reset")
    assert page.preview is None
    assert page.status["pending"] == []
    assert page.status["wanted"]["strategy"]["settings"]["node_budget"] == 12


def test_apply_decodes_the_iteration_again_in_a_fork_and_shows_both_trees(page):
    former = page.lab.session
    old = page.lab.state.step
    page.set(node_budget=4)
    page.do("redo")
    assert page.lab.session is not former
    assert former.steps[1] is old
    assert page.lab.state.cursor == 2, "the same iteration"
    assert len(page.lab.state.step.tree) == 4
    pinned = page.panels["pinned"]["step"]
    assert (pinned["index"], pinned["tree"]["token"]) == (1, old.tree.token.tolist())
    assert page.holds_the_run()
    page.do("redo")
    assert page.error is not None
    assert len(page.panels["runs"]["runs"]) == 2, "without a change there is no fork"
    assert page.preview is None
    assert page.status["pending"] == []


def test_settings_that_contradict_each_other_are_refused_until_mended(page):
    page.set(high_confidence=0.2)
    assert page.error["where"] == "strategy"
    assert "above high confidence (0.2)" in page.error["sentence"], "the words of the screen"
    count = len(page.steps)
    page.do("step")
    assert len(page.steps) == count, "nothing pending is ignored"
    assert page.error["where"] in {"strategy", "page"}
    page.set(low_confidence=0.1)
    assert page.error is None
    page.do("step")
    assert page.lab.session.strategy.high_confidence == 0.2
    assert page.lab.session.strategy.low_confidence == 0.1


@pytest.mark.parametrize(
    ("where", "wrong"),
    [
        ("strategy", {"name": "DynaTree", "settings": {"node_budget": "many"}}),
        ("strategy", {"name": "DynaTree", "settings": {"colour": 3}}),
        ("session", {"temperature": -1}),
        ("session", {"top_p": "0.9x"}),
        ("session", {"max_new_tokens": 0}),
        ("models", {"name": "llama-9"}),
        ("models", {"name": "", "target": " "}),
        ("prompt", " "),
    ],
)
def test_bad_input_is_refused_in_a_sentence_and_gone_when_it_is_reset(page, where, wrong):
    before = page.status["wanted"]
    page.want(**{where: wrong})
    assert page.error["where"] == where
    assert 10 < len(page.error["sentence"]) < 500
    assert page.status["wanted"] == before
    page.do("reset")
    assert page.error is None
    page.do("step")
    assert page.error is None


def test_a_curve_replays_the_text_over_the_range_of_a_setting(page):
    page.run_until("iteration >= 8")
    calls = page.lab.session.metrics.target_calls
    page.do("curve", name="node_budget")
    assert page.error is None
    curve = page.panels["curve"]
    assert [point["value"] for point in curve["points"]] == curve["values"]
    assert curve["here"] == 12
    assert curve["plain"]["tokens_per_iteration"] == pytest.approx(1)
    assert page.lab.session.metrics.target_calls == calls, "no target runs"
    page.do("curve", name="colour")
    assert page.error["where"] == "strategy"


# By hand.


def test_a_tree_built_by_hand_is_verified_in_a_fork_and_the_strategy_goes_on(page):
    lab = page.lab
    old = page.lab.state.step
    former = lab.session
    page.do("prune", node=1)
    assert page.preview["by"] == "hand"
    assert page.status["by_hand"]
    choice = old.nodes[0].target_choice
    have = {int(old.tree.token[child]) for child in old.tree.children[0]} - {int(old.tree.token[1])}
    if choice not in have:
        page.do("add", node=0, token=choice, text=None)
    page.do("verify")
    assert page.error is None
    assert page.place == (2, "all", None)
    step = lab.state.step
    assert choice in step.tree.token[[int(child) for child in step.tree.children[0]]]
    assert step.accepted, "the target's own choice was in the tree"
    assert page.panels["pinned"]["step"]["index"] == old.index, "the strategy's tree beside it"
    assert not page.status["by_hand"]
    assert lab.session is not former
    assert lab.session.strategy == SMALL, "the former strategy goes on"
    page.do("step")
    assert lab.state.step.counts.drafted > 0
    assert page.holds_the_run()
    lab.run()
    plain = speclab.generate(lab.session.pair, speclab.Autoregressive(), PROMPT, max_new_tokens=120)
    assert list(lab.session.token_ids) == list(plain.token_ids), (
        "by hand too the text is the target's"
    )


def test_edits_name_rows_of_the_edited_tree_and_are_taken_back(page):
    step = page.lab.state.step
    leaf = len(step.tree) - 1
    page.do("add", node=leaf, token=7, text=None)
    new = page.preview["recorded"].index(None)
    page.do("add", node=new, token=9, text=None)
    tree = page.preview["tree"]
    assert len(tree["token"]) == len(step.tree) + 2
    last = page.preview["recorded"].index(None, new + 1)
    assert [tree["token"][tree["parent"][last]], tree["token"][last]] == [7, 9]
    page.do("undo")
    page.do("undo")
    assert page.preview is None
    assert not page.status["by_hand"]
    page.do("verify")
    assert page.error["where"] == "page", "nothing was edited"
    for node in (0, -1, 99):
        page.do("prune", node=node)
        assert page.error["where"] == "page"
    page.do("prune", node=leaf)
    assert page.error is None
    page.go(1)
    assert page.preview is None, "another iteration is shown"


def test_a_token_is_typed_as_it_is_shown(make, sent):
    page = Page(make("mini", prompt="Once upon a time", max_new_tokens=40), sent)
    page.do("add", node=0, token=None, text="zebra crossing")
    assert page.error["where"] == "page"
    page.do("add", node=0, token=None, text="#500")
    assert page.error is None
    assert 500 in page.preview["tree"]["token"]
    assert page.preview["texts"]["500"]
