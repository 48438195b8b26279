"""Two drafts: both follow the text, the routing rule, and the union of both trees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.eagle2 import best_paths, mean_confidence
from support.pairs import models_pair
from support.records import paths_of, ran
from support.strategies import draft_trees
from support.table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.base import Draft
from speclab.drafters.dual_draft import merge, route
from speclab.features.routes.routing import followed
from speclab.pair import ModelPair
from speclab.tree import DraftTree

PROMPT = [5, 9, 2, 11, 3, 7, 7, 1]
SMALL = {"node_budget": 12, "depth": 3, "children": 4}


@pytest.mark.model
@pytest.mark.parametrize("mode", ["route", "merge"])
def test_both_parts_keep_the_rows_of_the_path_whichever_was_chosen(mode):
    strategy = speclab.DualDraft(mode=mode, **SMALL)
    session = ran(models_pair("gpt_neox"), strategy, PROMPT, max_new_tokens=24)
    for step in session.steps:
        held = [cache.after for cache in step.caches[1:]]
        assert min(held) >= step.prefix_length
        if mode == "route":
            chosen = [one.chosen for one in step.proposals].index(True)
            assert held[chosen] >= step.prefix_length + len(step.accepted)
        elif step.bonus is not None:  # what the better one would have got
            assert len(step.accepted) == max(followed(session.trace, step.index))


def tables(seed: int) -> tuple[ModelPair, list]:
    """A target and two heads that know it more or less, as tables."""
    target = random_probs(8, seed)
    probs = [mixed_probs(target, random_probs(8, seed + place), 0.4) for place in (1, 2)]
    heads = tuple(table_pair(each, None, 8).target for each in probs)
    return ModelPair(table_pair(target, None, 8).target, heads=heads, name="tables"), probs


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_the_tree_of_the_larger_mean_confidence_is_verified(seed):
    """Both trees, their means and the choice, worked out from the distributions alone."""
    pair, probs = tables(seed)
    session = speclab.Session(pair, speclab.DualDraft(**SMALL), [1, 2, 3], max_new_tokens=24)
    for _ in range(4):
        text = tuple(session.prompt_ids + session.token_ids)
        step = session.step()
        trees = [
            best_paths(lambda path, part=part, text=text: part((*text, *path)), *SMALL.values())
            for part in probs
        ]
        means = [mean_confidence(tree) for tree in trees]
        chosen = means.index(max(means))
        values = step.events[0].values
        assert [one.confidence for one in step.proposals] == pytest.approx(means, rel=1e-4)
        assert (values["mean_first"], values["mean_second"]) == tuple(
            one.score for one in step.proposals
        )
        assert values["margin"] == pytest.approx(abs(means[0] - means[1]), abs=1e-5)
        assert [one.chosen for one in step.proposals] == [place == chosen for place in (0, 1)]
        assert values["chosen"] == ("first", "second")[chosen]
        assert step.proposals[chosen].tree == step.tree


@given(draft_trees(), draft_trees(vocab=6))
def test_the_union_holds_every_path_of_both_and_no_other(one, other):
    other = DraftTree.of(
        [int(one.token[0]), *other.token[1:]], other.parent, other.log_prob, "random"
    )
    draft = merge(["prose", "code"], [Draft(one), Draft(other)])
    paths = [paths_of(tree) for tree in (one, other)]
    union = paths_of(draft.tree)
    assert union.keys() == paths[0].keys() | paths[1].keys()
    for path, node in union.items():
        held = [name for name, own in zip(("prose", "code"), paths, strict=True) if path in own]
        if path:
            assert draft.tree.source[node] == ("both" if len(held) == 2 else held[0])
            best = max(
                tree.log_prob[own[path]]
                for tree, own in zip((one, other), paths, strict=True)
                if path in own
            )
            assert draft.tree.log_prob[node] == pytest.approx(best)
    assert len(draft.tree) == len(union)


def test_of_two_equal_trees_the_first_is_verified():
    drafts = [Draft(DraftTree.root(1)), Draft(DraftTree.root(1))]
    assert [one.chosen for one in route(["one", "other"], drafts).proposals] == [True, False]
