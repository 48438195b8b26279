"""Trees side by side: what is said of the one that was not verified is known, and the rest is called unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from draft_samples import LONGER, SHORTER, proposal, routed, routed_run, united
from drawn import figures, said
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import draft_trees
from view_samples import build_step, draft_tree, five_nodes, one_node, parse, random_parents, steps, trace

from speclab.analysis import routing
from speclab.views import proposals

PROSE, CODE = 0, 1


def holds(said: str, *facts: str) -> None:
    assert [fact for fact in facts if fact not in said] == []


def test_the_choice_is_said_with_both_means_and_the_margin():
    step = routed()
    means = [proposals.figure(one.confidence) for one in step.proposals]
    margin = proposals.figure(step.proposals[CODE].confidence - step.proposals[PROSE].confidence)
    holds(proposals.choice_words(step), "prose with 5 nodes", "code with 4 nodes", *means, f"by a margin of {margin}")
    same = replace(step, proposals=tuple(replace(one, score=0.5, chosen=one.name == "prose") for one in step.proposals))
    holds(proposals.choice_words(same), "compared by 0.500", "prose was verified, as the first of two equal trees")
    assert [proposals.figure(value) for value in (0.41254, 0.01234, 1.0)] == ["0.413", "0.0123", "1.000"]


@pytest.mark.parametrize(
    ("other", "looks", "path", "own", "facts"),
    [
        (LONGER, ("root", "accepted", "rejected", "accepted", "accepted", "drafted"), (1, 3, 4), None,
         ("at least 3 accepted", "1 more", "unknown without verifying")),
        (SHORTER, ("root", "accepted", "rejected", "not reached"), (1,), (2, "corrected"),
         ("1 accepted", "1 fewer", "the target chose '␣woman', which it does not hold")),
    ],
    ids=["holds the text", "leaves it"],
)  # fmt: skip
def test_what_the_text_tells_of_the_other_tree_is_known(other, looks, path, own, facts):
    read = proposals.reading(routed(other), PROSE)
    assert (read.looks, read.path, read.own) == (looks, path, own)
    holds(proposals.outcome_words(routed(other), PROSE), *facts)


def test_the_verified_tree_is_read_from_its_record_and_a_lossy_rule_tells_nothing_of_the_other():
    assert proposals.reading(routed(), CODE) == proposals.verified(five_nodes())
    assert proposals.reading(routed(), CODE).own == (3, "bonus")
    holds(proposals.outcome_words(routed(), CODE), "2 accepted ('␣old␣woman')", "the target chose '␣said'")
    step = replace(routed(), counts=replace(routed().counts, lossy=1))
    assert set(proposals.reading(step, PROSE).looks) == {"root", "drafted"}
    assert "unknown without verifying" in proposals.outcome_words(step, PROSE)
    refused = replace(step, accepted=(), bonus=8)  # too unlikely as a candidate, drawn all the same
    holds(proposals.outcome_words(refused, CODE), "0 accepted", "the target chose '␣miller'")


def test_verified_on_request_nothing_is_unknown():
    step, other = routed(), build_step(LONGER, (1, 3, 4, 5), bonus=9, index=2)
    found = routing.Regret(("prose", "code"), (4, 2), 2, (other, five_nodes()))
    assert proposals.reading(step, PROSE, found) == proposals.verified(other)
    holds(proposals.regret_words(step, found), "prose has 4 accepted", "code has 2 accepted", "lost 2 tokens")
    holds(proposals.regret_words(step, replace(found, tokens=0)), "lost nothing")
    page = said(proposals.drafts_drawing(step, found))
    holds(page, "On request", "prose: verified on request")
    assert "unknown" not in page
    later = replace(found, steps=tuple(replace(each, index=9) for each in found.steps))
    assert proposals.drafts_drawing(step, later) == proposals.drafts_drawing(step)


def clicked(drawing) -> set:
    """Nodes that a click on a figure selects."""
    traces = [trace for one in figures(drawing) for trace in one["data"] if trace.get("meta") == {"click": "node"}]
    return {node for trace in traces for node in trace["customdata"] if node is not None}


def test_both_trees_stand_side_by_side_and_the_nodes_of_the_verified_one_can_be_selected():
    drawing = proposals.drafts_drawing(routed())
    page = said(drawing)
    assert page.count("code: verified") >= 1 <= page.count("prose: not verified")
    holds(page, "mean confidence", "margin −", "margin +", "unknown: not verified")
    assert clicked(drawing) == set(range(5))
    table = proposals.nodes_table(routed())
    assert table.count("<tr>") == 1 + 6 + 5
    assert "unknown: not verified" in table
    tree = draft_tree(random_parents(200, seed=4), seed=4)
    step = replace(five_nodes(), proposals=(proposal("big", tree, False), proposal("code", five_nodes().tree, True)))
    holds(said(proposals.drafts_drawing(step)), "nodes are folded here")


def test_a_merged_tree_is_one_and_each_node_says_whose_it_is():
    drawing = proposals.drafts_drawing(united())
    whose = [f"proposed by {name}" for name in ("prose", "code", "both")]
    holds(said(drawing), "They were verified as one, of 6 nodes.", *whose)
    facts = "1 of both", "3 of code alone", "2 of prose alone", "1 token of both, then 1 token of code alone"
    holds(proposals.sources_words(united()), *facts)
    symbols = [trace.get("marker", {}).get("symbol") for trace in figures(drawing)[0]["data"]]
    several = [symbol for each in symbols if isinstance(each, list) for symbol in each]
    assert [several.count(symbol) for symbol in ("hourglass", "triangle-down", "triangle-up")] == [1, 3, 2]
    assert clicked(drawing) == set(range(7))


def test_without_a_choice_there_is_nothing_to_show():
    for view in (proposals.drafts_drawing, proposals.summary, proposals.nodes_table):
        assert view(one_node()) == ""
    assert proposals.routing_drawing(trace(3)) == ""


@settings(max_examples=20)
@given(steps(), draft_trees(max_nodes=30, vocab=64), st.booleans())
def test_any_pair_of_trees_of_any_name_can_be_drawn(step, tree, both):
    tree = replace(tree, token=[int(step.tree.token[0]), *tree.token[1:]])
    step = replace(step, proposals=(proposal("<b>", tree, both), proposal("a & b", step.tree, True)))
    assert said(proposals.drafts_drawing(step))
    parse(proposals.nodes_table(step))
    assert proposals.summary(step).endswith(".")
    read = proposals.reading(step, 0)
    assert len(read.path) == len(tree.follow(step.committed))
    assert [int(tree.token[node]) for node in read.path] == list(step.committed[: len(read.path)])


def test_routing_over_a_run_counts_and_draws_margins():
    run = routed_run()
    found = routing.statistics(run)
    holds(proposals.routing_sentence(found), "3 iterations", "prose 1, code 2", "mean margin 0.167")
    (drawn,) = figures(proposals.routing_drawing(run))
    bars = dict(sorted(bar for trace in drawn["data"] for bar in zip(trace["customdata"], trace["y"], strict=True)))
    assert bars == {1: -0.125, 3: -0.125, 4: 0.25}
    page = said(proposals.routing_drawing(run))
    holds(page, "prose chosen", "code chosen", *(proposals.figure(part.confidence) for part in found.parts))
    assert proposals.routing_drawing(run, 1) != proposals.routing_drawing(run)
