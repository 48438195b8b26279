"""The lab on several trees for one iteration, on routing, on sampled walks, and on a rule that changes the output."""

from __future__ import annotations

import pytest
from lab_tools import Messages, decoded, settle, show

import speclab
from speclab.analysis.routing import regret
from speclab.views import proposals
from speclab.views.explain import CHANGES

CACHES, DRAFTS, DECISIONS = "Caches", "Drafts", "Decisions"
STEP_MESSAGES, PANEL_BYTES = 26, 60_000
BOTH = speclab.DualDraft(
    first=speclab.DynaTree(base_depth=3, max_branches=2, prune_probability=0.01), second=speclab.PromptLookup()
)
DRAWN = speclab.FixedTree(depth=2, branching=3, candidates="without_replacement")


def opened(make, tab=DRAFTS, strategy=BOTH, **settings):
    return decoded(make, tab, strategy, **settings)


def panel(lab) -> str:
    return lab.panels.tabs.views["drafts"].drawing


def with_two_trees(lab):
    """Goes to an iteration in which both drafted something."""
    return lab.run(until=lambda step: bool(step.proposals) and min(len(one.tree) for one in step.proposals) > 1)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_is_said_of_the_other_tree_is_what_verifying_it_shows(make, temperature):
    """Node by node: whatever is not called unknown comes out so when the tree is verified."""
    lab = make(strategy=BOTH, max_new_tokens=30, temperature=temperature)
    lab.run()
    told = 0
    for index, step in enumerate(lab.session.steps):
        if index + 1 == len(lab.session.steps):
            break  # the text ends inside it: what would have come after is not in the record
        found = regret(lab.session, index)
        for place in range(2):
            read, true = proposals.reading(step, place), proposals.reading(step, place, found)
            for mine, theirs in zip(read.looks, true.looks, strict=True):
                assert mine in {theirs, "drafted"}
            assert true.path[: len(read.path)] == read.path
            assert read.own in {None, true.own}
            told += not step.proposals[place].chosen and "accepted" in read.looks
    assert told


def test_a_merged_tree_is_shown_as_one(make):
    lab = opened(make, strategy=BOTH.changed(mode="merge"))
    with_two_trees(lab)
    assert "They were verified as one" in panel(lab)
    assert "proposed by DynaTree" in panel(lab)


def test_verifying_the_other_answers_in_words_and_changes_nothing(make):
    lab = opened(make)
    step = with_two_trees(lab)
    chosen = next(one.name for one in step.proposals if one.chosen)
    assert f"{chosen}: verified" in panel(lab)
    assert panel(lab).count("not verified</b>") == 1
    assert "Routing over" in panel(lab)
    button, text, cursor = lab.panels.tabs.verify, lab.session.token_ids, lab.session.cursor
    trace, lengths = lab.session.trace, [runner.length for runner in lab.session.pair.runners.values()]
    assert button.layout.display is None
    button.click()
    assert settle(lab)
    found = regret(lab.session, step.index)
    assert lab.state.regret.accepted == found.accepted
    assert lab.state.status == proposals.regret_words(step, found)
    assert "On request." in panel(lab)
    assert "verified on request" in panel(lab)
    assert (lab.session.token_ids, lab.session.cursor, lab.session.trace) == (text, cursor, trace)
    assert [runner.length for runner in lab.session.pair.runners.values()] == lengths
    lab.step()
    assert "On request." not in panel(lab)
    lab.back()
    assert "On request." in panel(lab)
    lab.fork(temperature=0.5)
    assert lab.state.regret is None


def test_one_tree_alone_has_no_button_and_says_so(make):
    lab = opened(make, strategy=speclab.DynaTree())
    assert lab.panels.tabs.verify.layout.display == "none"
    assert "One tree was drafted here." in panel(lab)
    lab._actions.ask(lab._controller.verify_all)
    assert settle(lab)
    assert "had no second tree" in lab.state.error


def test_a_step_with_the_trees_open_sends_each_picture_once(make, messages: Messages):
    lab = opened(make)
    before = panel(lab)
    messages.clear()
    lab.step()
    assert panel(lab) != before
    sent = Messages(messages.of(lab.panels.tabs.views["drafts"]))
    assert len(sent) == 1
    assert sent.size <= PANEL_BYTES
    assert len(messages) <= STEP_MESSAGES
    messages.clear()
    lab.select(0)
    lab.phase("draft")
    lab.goto(lab.state.cursor)
    show(lab, CACHES)
    lab.step()
    assert not messages.of(lab.panels.tabs.views["drafts"]), "unchanged, and then unseen"


def test_the_bars_stand_with_the_node_where_a_sampled_walk_stopped(make):
    lab = opened(make, DECISIONS, strategy=DRAWN, temperature=1.0)
    step = lab.state.step
    stop = step.residual.node
    why, decisions = lab.panels.views["why"], lab.panels.tabs.views["decisions"]
    assert "draws without replacement" in decisions.value
    lab.select(stop)
    assert "Where sampling stopped." in why.value
    lab.select((stop + 1) % len(step.tree))
    assert "Where sampling stopped." not in why.value
    assert "Where sampling stopped." in lab.snapshot()
    lab.fork(temperature=0.0)
    lab.step()
    assert "Where sampling stopped." not in decisions.value


def test_tries_are_recorded_with_the_numbers_that_decided(make):
    lab = make(strategy=DRAWN, temperature=1.0, max_new_tokens=30)
    lab.run()
    tries = 0
    for step in lab.session.steps:
        if step.residual is None:
            continue
        children = step.tree.children[step.residual.node]
        assert [one.node for one in step.residual.trials] == list(children)
        for at, one in enumerate(step.residual.trials):
            assert f"its probability was {one.target:.2f} / {one.against:.2f}" in step.nodes[one.node].reason
            share = next(share for share in step.residual.tokens if share.token == step.tree.token[one.node])
            if not at:
                assert (one.target, one.against) == pytest.approx((share.target, share.draft))
            tries += 1
    assert tries


def test_a_rule_that_changes_the_output_says_so_in_red_words(make):
    """Where settings are picked, in the status line, in the metrics, and in what is saved."""
    lab = make(strategy=DRAWN.changed(candidates="top"), temperature=1.0)
    lab.step()
    says = lab.config.lossy, lab.status.line
    threshold = lab.config.session.controls["typical_epsilon"].layout
    assert says[0].layout.display == threshold.display == "none"
    assert CHANGES not in says[1].value
    lab.config.session.controls["acceptance"].value = "typical"
    assert says[0].layout.display is threshold.display is None
    assert CHANGES in says[0].value
    assert "color:" in says[0].value
    lab.fork(acceptance="typical")
    lab.step()
    assert CHANGES in lab.status.line.value
    show(lab, "Metrics")
    assert CHANGES in lab.panels.tabs.views["metrics"].drawing
    assert "1 of 2 iterations" in lab.snapshot()
    lab.back()
    assert CHANGES not in lab.status.line.value
    lab.config.session.controls["temperature"].value = 0.0
    assert says[0].layout.display == "none"
