"""Trees side by side: what is said of the one that was not verified is known, and the rest is called unknown."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from draft_samples import LONGER, SHORTER, grown, proposal, routed, routed_run, united
from drawn import steps
from hypothesis import given, settings
from hypothesis import strategies as st
from picture import HTML, SVG, check_svg, parse, texts
from strategies import draft_trees
from view_samples import build_step, draft_tree, five_nodes, one_node, random_parents, trace

from speclab.analysis import routing
from speclab.views import proposals

PROSE, CODE = 0, 1


def pictures(page: str) -> list[str]:
    return re.findall(r"<svg.*?</svg>", page, re.DOTALL)


def widths(page: str) -> list[str]:
    return re.findall(r'<svg[^>]* width="([\d.]+)"', page)


def test_the_choice_is_said_with_both_means_and_the_margin():
    step = routed()
    prose, code = (one.confidence for one in step.proposals)
    assert proposals.choice_words(step) == (
        f"Two trees from '␣the': prose with 5 nodes, mean confidence {prose:.3f}; code with 4 nodes, mean confidence "
        f"{code:.3f}. code was verified, by a margin of {proposals.figure(code - prose)}."
    )
    same = replace(step, proposals=tuple(replace(one, score=0.5, chosen=one.name == "prose") for one in step.proposals))
    assert "(compared by 0.500)" in proposals.choice_words(same)
    assert proposals.choice_words(same).endswith("prose was verified, for of two equal trees the first is.")


def test_small_means_keep_a_digit_more():
    assert [proposals.figure(value) for value in (0.41254, 0.01234, 0.0, 1.0)] == ["0.413", "0.0123", "0.0000", "1.000"]


def test_what_the_text_tells_of_the_other_tree_is_known():
    """It holds the accepted tokens and the target's own: three would have been accepted, what follows is open."""
    read = proposals.reading(routed(), PROSE)
    assert read.looks == ("root", "accepted", "rejected", "accepted", "accepted", "drafted")
    assert (read.path, read.own) == ((1, 3, 4), None)
    assert proposals.outcome_words(routed(), PROSE) == (
        "prose would have had at least 3 accepted ('␣old␣woman␣said'): 1 more. What the target makes of the 1 node "
        "beyond is unknown without verifying."
    )


def test_a_tree_that_leaves_the_text_is_known_whole():
    read = proposals.reading(routed(SHORTER), PROSE)
    assert read.looks == ("root", "accepted", "rejected", "not reached")
    assert (read.path, read.own) == ((1,), (2, "corrected"))
    assert proposals.outcome_words(routed(SHORTER), PROSE) == (
        "prose would have had 1 accepted ('␣old'): 1 fewer. Then the target chose '␣woman', which it does not hold."
    )


def test_the_verified_tree_is_read_from_its_record():
    read = proposals.reading(routed(), CODE)
    assert read == proposals.verified(five_nodes())
    assert read.own == (3, "bonus")
    assert (
        proposals.outcome_words(routed(), CODE) == "code had 2 accepted ('␣old␣woman'). Then the target chose '␣said'."
    )


def test_under_a_lossy_rule_the_text_tells_nothing_of_the_other_tree():
    step = replace(routed(), counts=replace(routed().counts, lossy=1))
    assert set(proposals.reading(step, PROSE).looks) == {"root", "drafted"}
    assert "unknown without verifying" in proposals.outcome_words(step, PROSE)
    refused = replace(step, accepted=(), bonus=8)  # too unlikely as a candidate, drawn all the same
    assert proposals.outcome_words(refused, CODE) == "code had 0 accepted. Then the target chose '␣miller'."


def test_verified_on_request_nothing_is_unknown():
    step, other = routed(), build_step(LONGER, (1, 3, 4, 5), bonus=9)
    found = routing.Regret(("prose", "code"), (4, 2), 2, (other, five_nodes()))
    assert proposals.reading(step, PROSE, found) == proposals.verified(other)
    assert proposals.regret_words(step, found) == (
        "Both verified, prose has 4 accepted and code has 2 accepted: the choice lost 2 tokens."
    )
    page = proposals.drafts_html(step, found)
    assert "On request" in page
    assert "unknown" not in page
    assert "prose: verified on request" in page
    assert "the choice lost nothing" in proposals.regret_words(step, replace(found, tokens=0))


def test_the_chosen_one_is_marked_by_words_and_frame():
    page = proposals.drafts_html(routed())
    parse(page, HTML | SVG)
    assert page.count("code: verified") == page.count("prose: not verified") == 1
    assert page.count("border:3px solid") == page.count("border:1px dashed") == 1
    assert "mean confidence" in page
    assert "margin −" in page
    assert "margin +" in page


def test_a_large_tree_is_folded_and_says_so():
    tree = draft_tree(random_parents(200, seed=4), seed=4)
    step = replace(five_nodes(), proposals=(proposal("big", tree, False), proposal("code", five_nodes().tree, True)))
    assert "more nodes are folded here" in proposals.drafts_html(step)


def test_a_merged_tree_is_one_and_each_node_says_whose_it_is():
    step = united()
    page = proposals.drafts_html(step)
    parse(page, HTML | SVG)
    assert len(pictures(page)) == 2  # the tree and the legend
    assert "They were verified as one, of 6 nodes." in page
    assert proposals.sources_words(step) == (
        "6 nodes: 1 of both, 3 of code alone, 2 of prose alone. The accepted path took 1 token of both, then 1 token "
        "of code alone."
    )
    tree = pictures(page)[0]
    shapes = re.findall(r'<path d="(M[^"]*Z)" transform', tree)
    assert len(set(shapes)) > 2  # three shapes, in the sizes of their probabilities
    for name, count in (("both", 1), ("code", 3), ("prose", 2)):
        assert tree.count(f"from {name}\n") == count
    assert all(f"proposed by {name}" in page for name in ("prose", "code", "both"))


def test_every_node_of_every_tree_stands_in_the_table():
    page = proposals.nodes_table(routed())
    assert page.count("<tr>") == 1 + 6 + 5
    assert "unknown: not verified" in page
    assert proposals.nodes_table(five_nodes()) == ""


def test_without_a_choice_there_is_nothing_to_show():
    assert proposals.drafts_html(one_node()) == ""
    assert proposals.summary(one_node()) == ""
    assert proposals.routing_html(trace(3)) == ""
    assert proposals.routing_sentence(trace(3)) == "Routing: no iteration had two trees."
    check_svg(proposals.margins_svg(trace(3)))


def test_tokens_in_names_and_trees_are_escaped():
    tree = grown([0, 100, 102], [-1, 0, 1], [1, 0.5, 0.5], "x")
    step = replace(five_nodes(), proposals=(proposal("<b>", tree, False), proposal("a & b", five_nodes().tree, True)))
    page = proposals.drafts_html(step) + proposals.nodes_table(step)
    parse(page, HTML | SVG)
    assert "<script" not in page


@settings(max_examples=20)
@given(steps(), draft_trees(max_nodes=30, vocab=64), st.booleans())
def test_any_pair_of_trees_can_be_drawn(step, tree, both):
    tree = replace(tree, token=[int(step.tree.token[0]), *tree.token[1:]])
    step = replace(step, proposals=(proposal("x", tree, both), proposal("y", step.tree, True)) if len(tree) > 1 else ())
    page = proposals.drafts_html(step)
    parse(page, HTML | SVG)
    for svg in pictures(page):
        check_svg(svg)
    if step.proposals:
        assert proposals.summary(step).endswith(".")
        read = proposals.reading(step, 0)
        assert len(read.path) == len(tree.follow(step.committed))
        assert [int(tree.token[node]) for node in read.path] == list(step.committed[: len(read.path)])


def test_routing_over_a_run_counts_and_draws_margins():
    run = routed_run()
    assert proposals.margins(run.steps) == [pytest.approx(-0.125), None, pytest.approx(-0.125), pytest.approx(0.25)]
    assert proposals.routing_sentence(run) == "Routing over 3 iterations: prose 1, code 2; mean margin 0.167."
    root = check_svg(proposals.margins_svg(run))
    assert "margin, ▲ up: prose chosen" in texts(root)
    assert "▼ down: code chosen" in texts(root)
    page = proposals.routing_html(run)
    found = routing.statistics(run)
    for part in found.parts:
        assert f"{part.chosen / found.iterations:.0%}" in page
        assert f"{proposals.figure(part.confidence)}" in page
    assert proposals.routing_html(run, 1) != page
    assert "scores higher" in proposals.margins_svg(replace(trace(1), steps=(united(),)))
