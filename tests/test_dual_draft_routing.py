"""The routing rule: the tree of the larger mean confidence is verified, and the record says by how much."""

from __future__ import annotations

import pytest
from dual_pairs import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st
from records import assert_same
from reference.eagle2 import best_paths, mean_confidence
from strategies import draft_trees
from table_runner import mixed_law, random_law, table_pair

import speclab
from speclab.drafters.dual_draft import confidence


@given(draft_trees())
def test_confidence_is_the_mean_of_path_probabilities_without_the_root(tree):
    paths = {tree.path(node)[1:]: float(tree.path_log_prob[node]) for node in range(len(tree))}
    assert confidence(tree) == pytest.approx(mean_confidence(paths))


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_the_tree_of_the_larger_mean_is_verified_and_the_record_says_so(seed):
    laws = [random_law(8, seed + place) for place in (1, 2)]
    pair = table_pair(random_law(8, seed), None, 8)
    heads = tuple(table_pair(law, None, 8).target for law in laws)
    pair = type(pair)(pair.target, heads=heads, name="tables")
    session = speclab.Session(pair, speclab.DualDraft(**SMALL), [1, 2, 3], max_new_tokens=9)
    while not session.done:
        text = (*session.prompt_ids, *session.token_ids)
        step = session.step()
        trees = [best_paths(lambda path, law=law: law((*text, *path)), *SMALL.values()) for law in laws]  # noqa: B023
        means = [mean_confidence(tree) for tree in trees]
        chosen = means.index(max(means))
        route = step.events[0]
        assert route.kind == "route"
        assert [one.confidence for one in step.proposals] == pytest.approx(means, rel=1e-4)
        assert (route.values["mean_first"], route.values["mean_second"]) == tuple(one.score for one in step.proposals)
        assert route.values["margin"] == pytest.approx(abs(means[0] - means[1]), abs=1e-5)
        assert [one.chosen for one in step.proposals] == [place == chosen for place in (0, 1)]
        assert route.values["chosen"] == ("first", "second")[chosen]
        assert_same(step.proposals[chosen].tree, step.tree)


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_routing_that_remembers_weighs_each_mean_by_what_was_right_lately(seed):
    """The rule worked out again from the records and the text alone."""
    law = random_law(8, seed)
    pair = table_pair(law, None, 8)
    heads = tuple(table_pair(mixed_law(law, random_law(8, seed + place), 0.4), None, 8).target for place in (1, 2))
    pair = type(pair)(pair.target, heads=heads, name="tables")
    session = speclab.Session(pair, speclab.DualDraft(confidence="recent", **SMALL), [1, 2, 3], max_new_tokens=24)
    recent = [1.0, 1.0]
    for _ in range(5):
        step = session.step()
        scores = [one.confidence * (right + 0.25) ** 2 for one, right in zip(step.proposals, recent, strict=True)]
        assert [one.score for one in step.proposals] == pytest.approx(scores)
        assert [one.chosen for one in step.proposals] == [scores[1] <= scores[0], scores[1] > scores[0]]
        followed = [len(one.tree.follow(step.committed)) for one in step.proposals]
        assert max(followed) >= len(step.accepted)
        recent = [0.8 * right + 0.2 * new for right, new in zip(recent, followed, strict=True)]
        assert [step.adaptation.after[f"recent_{name}"] for name in ("first", "second")] == pytest.approx(recent)
    fork = session.fork(at=3)
    fork.step()
    assert_same(fork.steps[3].proposals, session.steps[3].proposals)


def test_a_tie_goes_to_the_first():
    strategy = speclab.DualDraft(first=speclab.PromptLookup(), second=speclab.PromptLookup(longest_ngram=2))
    session = speclab.Session(table_pair(random_law(8, 1), None, 8), strategy, [1, 2, 3, 1], max_new_tokens=8)
    session.run()
    for step in session.steps:
        if step.proposals[0].confidence == step.proposals[1].confidence:
            assert step.proposals[0].chosen
    assert [one.name for one in session.steps[0].proposals] == ["first", "second"], "one name twice says nothing"
