"""A tree is built by hand in the lab."""

from __future__ import annotations

from support.lab_fixtures import SMALL
from support.lab_page import PROMPT, Page

import speclab


def test_a_tree_built_by_hand_is_verified_in_a_fork_and_the_strategy_goes_on(small_page):
    page = small_page
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


def test_edits_name_rows_of_the_edited_tree_and_are_taken_back(small_page):
    page = small_page
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
