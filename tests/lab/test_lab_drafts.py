"""The lab on several trees for one iteration, on routing, on sampled walks, and on a rule that changes the output."""

from __future__ import annotations

import pytest
from lab_tools import ask, click, decoded, show

import speclab
from speclab.analysis.routing import regret
from speclab.views import proposals
from speclab.views.explain import CHANGES

STRATEGY, NODE = "Strategy", "Node"
BOTH = speclab.DualDraft(
    first=speclab.DynaTree(base_depth=3, max_branches=2, prune_probability=0.01),
    second=speclab.PromptLookup(),
)
DRAWN = speclab.FixedTree(depth=2, branching=3, candidates="without_replacement")


def opened(make, tab=STRATEGY, strategy=BOTH, **settings):
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
    assert panel(lab).count(": not verified, ") == 1
    assert "Routing over" in lab.panels.tabs.views["routing"].drawing
    button, text, cursor = lab.panels.tabs.verify, lab.session.token_ids, lab.session.cursor
    trace, lengths = lab.session.trace, [runner.length for runner in lab.session.pair.runners.values()]
    assert button.layout.display is None
    click(lab, button)
    found = regret(lab.session, step.index)
    assert lab.state.frame.regret.accepted == found.accepted
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
    assert lab.state.frame.regret is None


def test_one_tree_alone_has_no_button_and_no_panel(make):
    lab = opened(make, strategy=speclab.DynaTree())
    assert lab.panels.tabs.verify.layout.display == "none"
    assert not panel(lab)
    ask(lab, "verify_all")
    assert "had no second tree" in lab.state.error


def test_the_draws_stand_once_with_the_node_where_sampling_stopped_if_that_is_selected(make):
    lab = opened(make, NODE, strategy=DRAWN, temperature=1.0)
    step = lab.state.step
    stop, views = step.residual.node, lab.panels.tabs.views
    says = lambda name: "Where sampling stopped." in views[name].drawing  # noqa: E731
    assert "draws without replacement" in views["decisions"].drawing
    assert (says("node"), says("decisions")) == (False, True)
    lab.select(stop)
    assert (says("node"), says("decisions")) == (True, False)
    lab.select((stop + 1) % len(step.tree))
    assert (says("node"), says("decisions")) == (False, True)
    assert "Where sampling stopped." in lab.snapshot()
    lab.fork(temperature=0.0)
    lab.step()
    assert not says("node")
    assert not says("decisions")


def test_a_rule_that_changes_the_output_says_so_in_words(make):
    """In the line that says what runs, in the status line, in the metrics, and in what is saved."""
    lab = make(strategy=DRAWN.changed(candidates="top"), temperature=1.0)
    lab.config.unfold()
    lab.config.pickers.children[-1].toggle.value = True  # Advanced
    lab.step()
    line, status, epsilon = lab.config.sampling_line, lab.status.line, lab.config.session.controls["typical_epsilon"]
    assert CHANGES not in line.value + status.drawing
    assert epsilon.disabled
    lab.config.session.controls["acceptance"].value = "typical"
    assert CHANGES in line.value
    assert "color:" in line.value
    assert not epsilon.disabled
    lab.step()
    assert CHANGES in status.drawing
    show(lab, "Metrics")
    assert CHANGES in lab.panels.tabs.views["metrics"].drawing
    assert "1 of 2 iterations" in lab.snapshot()
    lab.back()
    assert CHANGES not in status.drawing
    lab.config.session.controls["temperature"].value = 0.0
    assert CHANGES not in line.value
    assert lab.config.session.controls["acceptance"].disabled
    assert "greedy" in lab.config.session.controls["acceptance"].tooltip
