"""Sequoia's tree: the shape of the theory, filled by rank, from either source."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import assert_consistent
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.base import Context
from speclab.theory import sequoia_shape

VOCAB = 12
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-1:]), 0.8)
DRAFT = mixed_probs(PROBS, random_probs(VOCAB, 5), 0.2)
PROMPT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4, 3]
SOURCES = ["transitions", "draft"]


def pair_of(source):
    return table_pair(PROBS, DRAFT if source == "draft" else None, VOCAB)


@given(st.lists(st.floats(0.05, 1), min_size=1, max_size=4), st.integers(1, 30), st.integers(1, 6), st.integers(0, 8))
def test_a_draft_tree_has_the_shape_of_the_theory(rates, budget, depth, room):
    """Every node that fits the context; the child of rank r is the draft's r-th token after its parent's path."""
    strategy = speclab.SequoiaTree(node_budget=budget, depth=depth, source="draft", successors=4, rank_acceptance=rates)
    tree = strategy.drafter(pair_of("draft")).draft(Context(PROMPT, room, lambda: None)).tree
    expected = sequoia_shape(rates, budget - 1, depth).parents
    levels = [0]
    for parent in expected[1:]:
        levels.append(levels[parent] + 1)
    assert tree.parent.tolist() == [parent for parent, level in zip(expected, levels, strict=True) if level <= room]
    for node, children in enumerate(tree.children):
        probs = DRAFT((*PROMPT, *tree.token[list(tree.path(node))[1:]].tolist()))
        best = sorted(range(VOCAB), key=lambda token: -probs[token])
        assert tree.token[list(children)].tolist() == best[: len(children)]
        assert tree.log_prob[list(children)].tolist() == pytest.approx(
            [math.log(probs[t]) for t in best[: len(children)]], abs=1e-4
        )


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8}])
def test_the_text_is_the_targets_own_at_a_pass_a_level(source, sampling):
    strategy = speclab.SequoiaTree(source=source, node_budget=16, depth=4)
    plain = speclab.generate(pair_of("transitions"), speclab.Autoregressive(), PROMPT, max_new_tokens=40, **sampling)
    session = speclab.Session(pair_of(source), strategy, PROMPT, max_new_tokens=40, **sampling)
    while not session.done:
        step = session.step()
        assert_consistent(step)
        assert step.counts.target_calls == 1
        expanded = {step.tree.depth[node] for node, children in enumerate(step.tree.children) if children}
        assert step.counts.draft_calls == (len(expanded) if source == "draft" else 0)
    assert session.token_ids == plain.token_ids
    assert session.metrics.tokens_per_iteration > 1.1


def test_the_shape_follows_what_is_measured():
    session = speclab.Session(pair_of("transitions"), speclab.SequoiaTree(node_budget=12), PROMPT, max_new_tokens=80)
    session.run()
    first, last = session.steps[0].adaptation.before, session.steps[-1].adaptation.after
    assert first["rank_1"] == pytest.approx(0.4)
    assert last["rank_1"] != first["rank_1"]
    tried = 8 + sum(bool(s.tree.children[node]) for s in session.steps for node in (0, *s.accepted))
    right = 8 * 0.4 + sum(
        s.tree.children[node][0] in s.accepted
        for s in session.steps
        for node in (0, *s.accepted)
        if s.tree.children[node]
    )
    assert last["rank_1"] == pytest.approx(right / tried)


def test_a_draft_source_needs_a_draft():
    with pytest.raises(speclab.NoDraftError, match="choose PromptLookup"):
        speclab.generate(pair_of("transitions"), speclab.SequoiaTree(source="draft"), PROMPT, max_new_tokens=4)


@pytest.mark.parametrize("rates", ["0.5, x", "2", "-0.1", [0.5, 1.5]])
def test_rates_that_are_none(rates):
    with pytest.raises(speclab.SettingsError, match=r"such as 0\.6, 0\.2"):
        speclab.SequoiaTree(rank_acceptance=rates)
