"""Sequoia's tree: the shape of the theory, filled by rank, and rates that follow what is measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.every_strategy import DRAFT, PROBS, PROMPT, VOCAB
from support.records import ran
from support.table_runner import table_pair

import speclab
from speclab.drafters.base import Context
from speclab.theory import sequoia_shape


@given(
    st.lists(st.floats(0.05, 1), min_size=1, max_size=4),
    st.integers(1, 30),
    st.integers(1, 6),
    st.integers(0, 8),
)
def test_a_draft_tree_has_the_shape_of_the_theory_at_a_pass_a_level(rates, budget, depth, room):
    """Every node that fits the context; the child of rank r is the draft's r-th token after its parent's path."""
    strategy = speclab.SequoiaTree(
        node_budget=budget, depth=depth, source="draft", successors=4, rank_acceptance=rates
    )
    pair = table_pair(PROBS, DRAFT, VOCAB)
    tree = strategy.drafter(pair).draft(Context(PROMPT, room, lambda: None)).tree
    expected = sequoia_shape(rates, budget - 1, depth).parents
    levels = [0]
    for parent in expected[1:]:
        levels.append(levels[parent] + 1)
    assert tree.parent.tolist() == [
        parent for parent, level in zip(expected, levels, strict=True) if level <= room
    ]
    assert pair.draft.calls == tree.depth.max()
    for node, children in enumerate(tree.children):
        probs = DRAFT((*PROMPT, *tree.token[list(tree.path(node))[1:]].tolist()))
        best = sorted(range(VOCAB), key=lambda token: -probs[token])
        assert tree.token[list(children)].tolist() == best[: len(children)]
        assert tree.log_prob[list(children)].tolist() == pytest.approx(
            [math.log(probs[t]) for t in best[: len(children)]], abs=1e-4
        )


def test_the_shape_follows_what_is_measured():
    """The rate of rank 1 is what was right among what was tried, after eight tries at 0.4."""
    pair = table_pair(PROBS, None, VOCAB)
    session = ran(pair, speclab.SequoiaTree(node_budget=12), PROMPT, max_new_tokens=80)
    firsts = [
        s.tree.children[n][0] in s.accepted
        for s in session.steps
        for n in (0, *s.accepted)
        if s.tree.children[n]
    ]
    assert session.steps[0].adaptation.before["rank_1"] == pytest.approx(0.4)
    assert session.steps[-1].adaptation.after["rank_1"] == pytest.approx(
        (8 * 0.4 + sum(firsts)) / (8 + len(firsts))
    )
    shapes = {tuple(step.tree.parent.tolist()) for step in session.steps if len(step.tree) == 12}
    assert len(shapes) > 1
