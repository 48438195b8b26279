"""Settings, their preview and curve; Apply, which decodes the iteration again; and a tree built by hand."""

from __future__ import annotations

import pytest

from speclab.drafters import strategies


def test_the_catalog_describes_every_setting_of_every_strategy(small_page):
    page = small_page
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


def test_apply_decodes_the_iteration_again_in_a_fork_and_shows_both_trees(small_page):
    page = small_page
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


def test_settings_that_contradict_each_other_are_refused_until_mended(small_page):
    page = small_page
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
def test_bad_input_is_refused_in_a_sentence_and_gone_when_it_is_reset(small_page, where, wrong):
    page = small_page
    before = page.status["wanted"]
    page.want(**{where: wrong})
    assert page.error["where"] == where
    assert 10 < len(page.error["sentence"]) < 500
    assert page.status["wanted"] == before
    page.do("reset")
    assert page.error is None
    page.do("step")
    assert page.error is None


# By hand.
