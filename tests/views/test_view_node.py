"""The node's tab: both distributions after it, the draws where sampling stopped, and what is not recorded."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from draft_samples import drew_once, stopped, typical
from drawn import figures, html
from hypothesis import given, settings
from view_samples import drafted_root, ended_inside, five_nodes, odd_tokens, one_node, sixty_nodes, steps, trace, words

from speclab.engine.acceptance import residual, without
from speclab.trace.records import Residual, TokenProb, Trial
from speclab.views import explain, node_chart

LEAF = replace(stopped(), residual=Residual(1, (TokenProb(3, 0.5, 0.5, None),)))


def shares(step, draw=None) -> dict[str, list[float | None]]:
    """The name of each row of what was left to draw from, and its values."""
    (drawn,) = figures(node_chart.residual_parts(step, draw))
    names = [name.split("\u00a0")[0].replace("<b>", "").replace("</b>", "") for name in ticks(drawn)]
    return {name: [one["x"][row] for one in drawn["data"]] for row, name in enumerate(names)}


def ticks(drawn) -> list[str]:
    return drawn["layout"]["yaxis"]["ticktext"]


@settings(max_examples=15)
@given(steps())
def test_every_node_of_any_step_has_valid_figures_whose_rows_add_up_to_one(step):
    for node in range(len(step.nodes)):
        drawn = node_chart.node_parts(step, node)
        words(html(drawn))
        target = sum([share for share in figures(drawn)[0]["data"][0]["x"] if share is not None])
        assert target == pytest.approx(1, abs=0.01) or target > 1, "made-up samples may hold more than all"


@pytest.mark.parametrize("sample", [five_nodes, one_node, drafted_root, ended_inside, odd_tokens, sixty_nodes, stopped])
def test_the_same_tokens_stand_in_one_row_and_children_are_marked_and_clicked(sample):
    step = sample()
    for node, children in enumerate(step.tree.children):
        drawn = node_chart.node_spec(step, node)
        assert "<script" not in json.dumps([drawn["data"], {**drawn["layout"], "meta": None}])
        assert len(json.dumps(drawn)) < 12_000
        clicks = {one for one in drawn["data"][0]["customdata"] if one is not None}
        tokens = {int(step.tree.token[child]) for child in children}
        assert clicks <= set(children)
        assert len(clicks) == len(tokens)
        marked = " ".join(ticks(drawn))
        assert all(f"node {child}" in marked for child in clicks)
        assert "★" in marked


def test_what_is_not_recorded_is_said():
    assert "not expanded" in node_chart.node_spec(five_nodes(), 4)["layout"]["annotations"][1]["text"]
    assert "random numbers are not recorded" in words(html(node_chart.residual_parts(stopped())))
    said = html(node_chart.node_parts(replace(five_nodes(), rule="draws without replacement"), 1))
    assert "between its draws are not recorded" in said
    assert "equals the target" in said, "each child's outcome with its reason"
    assert "Click a node" in node_chart.node_parts(five_nodes(), None)[0]


@pytest.mark.parametrize(
    ("step", "facts"),
    [
        (stopped(), ("'␣the' would be accepted with probability 0.31 / 0.80 = 0.39: rejected", "0.10 / 0.50 = 0.20",
                     "sampled '␣said' from the residual, where it has 0.75")),
        (drew_once(), ("sampled '␣said' (p = 0.50)", "'␣the' or '␣old'", "0.41", "0.75")),
        (typical(), ("'␣the' has 0.31, not above the threshold 0.80: rejected",)),
        (LEAF, ("no candidate after node 1 '␣the'", "from its own distribution (p = 0.50)")),
    ],
    ids=["trials", "drew once", "typical", "leaf"],
)  # fmt: skip
def test_each_candidate_is_told_with_its_numbers_and_what_was_drawn_instead(step, facts):
    assert [fact for fact in facts if fact not in node_chart.residual_sentence(step)] == []
    assert all(fact in words(html(node_chart.residual_parts(step))) for fact in facts)


def test_the_bars_are_of_the_record_and_the_draft_stands_there_only_where_it_was_drawn_from():
    rows = shares(stopped())
    assert rows["␣said"] == [0.5, 0.05, 0.75]
    assert rows["␣the"] == [0.31, 0.8, 0.0]
    assert [len(row) for row in shares(drew_once()).values()] == [2] * 5


@pytest.mark.parametrize("rule", ["independent draws", "draws without replacement"])
def test_draws_are_replayed_as_acceptance_made_them(rule):
    """Against the engine's own arithmetic, from a record that holds eight tokens of twelve."""
    rng = np.random.default_rng(3)
    p, q = (rng.dirichlet(np.full(12, 0.6)) for _ in range(2))
    first, second = np.argsort(p - q)[:2].tolist()
    p2 = residual(p, q)
    q2 = without(q, first) if rule.endswith("replacement") else q
    kept = [first, second, *[token for token in np.argsort(-p).tolist() if token not in {first, second}][:6]]
    anchor = kept[2]  # a child with something left of it, so that the record tells the scale
    p3 = residual(p2, q2)
    tokens = tuple([TokenProb(token, p3[token], p[token], q[token]) for token in kept])
    sample = stopped(rule)
    known = sample.tree.parent.tolist(), sample.tree.log_prob.tolist(), "draft"
    tree = type(sample.tree).of([sample.tree.token[0], first, anchor], *known)
    trials = (Trial(1, p[first], q[first]), Trial(2, p2[anchor], q2[anchor]))
    step = replace(sample, tree=tree, bonus=kept[3], residual=Residual(0, tokens, trials))
    before, between, last = node_chart.draws(step)
    assert not between.scaled
    for found, made in ((before.p, p), (between.p, p2), (between.q, q2), (last.p, p3)):
        assert [found[token] for token in kept] == pytest.approx([made[token] for token in kept])


def test_draws_come_one_by_one():
    step = stopped()
    for draw, rejected in ((0, 0), (1, 1), (2, 2), (3, 2), (None, 2)):
        parts = node_chart.residual_parts(step, draw)
        assert " ".join(ticks(figures(parts)[0])).count("rejected") == rejected
        assert html(parts).count("<tr>") == 1 + (3 if draw is None else draw)
        assert ("drawn by the target" in html(parts)) == (draw in {3, None})


def test_the_rule_is_named_and_a_lossy_one_in_red_words():
    page = node_chart.residual_parts(stopped())[0]
    assert "draws without replacement." in page
    assert explain.CHANGES not in page
    assert explain.CHANGES in node_chart.residual_parts(typical())[0]
    run = trace(3)
    assert explain.run_words(run) == explain.step_words(None) == ""
    run = replace(run, steps=(*run.steps[:2], typical()))
    assert "1 of 3 iterations" in explain.run_words(run)
    assert explain.run_words(run, 2) == ""
    assert "color:" in explain.warning("x")


def test_many_tokens_are_cut_to_the_candidates_and_the_most_probable():
    step = replace(stopped(), residual=Residual(0, tuple(TokenProb(token, 0.01, 0.02, 0.01) for token in range(20))))
    rows = shares(step)
    assert len(rows) == node_chart.MOST + 1
    assert {"␣the", "␣old", "␣said", "the rest"} <= set(rows) | {"the rest"}


def test_nothing_drawn_nothing_shown_and_before_a_drafted_root_the_place_is_said():
    assert node_chart.residual_parts(five_nodes()) == []
    step = replace(stopped("sample and match"), residual=Residual(None, stopped().residual.tokens))
    drawn = node_chart.node_parts(step, 0)
    assert "Where sampling stopped" in html(drawn)
    assert "before the root" in figures(drawn)[1]["layout"]["meta"]["label"]
