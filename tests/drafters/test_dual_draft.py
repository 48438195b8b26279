"""Two drafts: exact whichever tree is verified, the routing rule, and the union of both trees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import SMALL as VOCAB
from pairs import assert_cache_is_fresh, headed_pair, library_text, models_pair, target_of
from records import assert_consistent, assert_same
from reference.eagle2 import best_paths, mean_confidence
from refusals import refused
from strategies import draft_trees
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.analysis.routing import followed
from speclab.drafters.base import Draft
from speclab.drafters.dual_draft import merge, route
from speclab.models.pair import ModelPair
from speclab.tree import DraftTree

PROMPT = [5, 9, 2, 11, 3, 7, 7, 1]
SMALL = {"node_budget": 12, "depth": 3, "children": 4}
MODES = ("route", "merge")
PAIRS = {"heads": headed_pair, "models": models_pair}
each_pair = pytest.mark.parametrize("pair_for", PAIRS.values(), ids=PAIRS)


@pytest.mark.model
@pytest.mark.parametrize("mode", MODES)
@each_pair
@pytest.mark.parametrize("family", ["gpt_neox", "gemma3_text"])
def test_the_text_is_the_targets_own_and_both_parts_follow_it(family, pair_for, mode):
    """After every step each part's cache is a fresh pass over the committed text, whichever was chosen (section 7)."""
    session = speclab.Session(pair_for(family), speclab.DualDraft(mode=mode, **SMALL), PROMPT, max_new_tokens=24)
    while not session.done:
        step = session.step()
        assert_consistent(step)
        text = session.prompt_ids + session.token_ids
        for runner in session.pair.heads:
            assert runner.length >= step.prefix_length
            assert_cache_is_fresh(runner, text, session.pair.target.model)
    assert session.token_ids == library_text(target_of(family, VOCAB), PROMPT, 24)
    assert session.metrics.counts.accepted > 0


@pytest.mark.model
@each_pair
def test_a_part_drafts_as_it_would_alone(pair_for):
    """Each proposal is the tree that the head alone drafts on the same text."""
    session = speclab.Session(pair_for("llama"), speclab.DualDraft(**SMALL), PROMPT, max_new_tokens=24)
    for _ in range(5):
        step = session.step()
    for head, proposal in enumerate(step.proposals):
        alone = session.fork(at=4, strategy=speclab.DraftHead(head=head, **SMALL)).step()
        assert_same(alone.tree.token, proposal.tree.token)
        assert alone.tree.log_prob == pytest.approx(proposal.tree.log_prob, abs=1e-3)


def tables(seed: int, *, draft: bool = False) -> tuple[ModelPair, list]:
    """A target and two drafts that know it more or less, as tables: two heads; or the draft model and a head."""
    target = random_probs(8, seed)
    probs = [mixed_probs(target, random_probs(8, seed + place), 0.4) for place in (1, 2)]
    runners = [table_pair(each, None, 8).target for each in probs]
    first, second = runners
    pair = ModelPair(
        table_pair(target, None, 8).target,
        draft=first if draft else None,
        heads=(second,) if draft else (first, second),
        name="tables",
    )
    return pair, probs


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9}])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("draft", [False, True])
def test_the_text_is_that_of_plain_decoding_and_forks_go_on_alike(draft, mode, sampling):
    pair, _ = tables(3, draft=draft)
    parts = {"first": None, "second": 0} if draft else {}
    session = speclab.Session(
        pair, speclab.DualDraft(mode=mode, **parts, **SMALL), [1, 2, 3], max_new_tokens=30, **sampling
    )
    session.run()
    plain = speclab.generate(pair.fresh(), speclab.Autoregressive(), [1, 2, 3], max_new_tokens=30, **sampling)
    assert session.token_ids == plain.token_ids
    fork = session.fork(at=2)
    fork.run()
    assert fork.token_ids == session.token_ids
    for one, other in zip(session.steps, fork.steps, strict=True):
        assert_same(one.tree, other.tree)
        assert one.counts.target_calls == 1
    assert session.metrics.counts.accepted > 0


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_the_tree_of_the_larger_mean_confidence_is_verified(seed):
    """Both trees, their means and the choice, worked out from the distributions alone."""
    pair, probs = tables(seed)
    session = speclab.Session(pair, speclab.DualDraft(**SMALL), [1, 2, 3], max_new_tokens=24)
    for _ in range(4):
        text = tuple(session.prompt_ids + session.token_ids)
        step = session.step()
        trees = [best_paths(lambda path, part=part, text=text: part((*text, *path)), *SMALL.values()) for part in probs]
        means = [mean_confidence(tree) for tree in trees]
        chosen = means.index(max(means))
        values = step.events[0].values
        assert [one.confidence for one in step.proposals] == pytest.approx(means, rel=1e-4)
        assert (values["mean_first"], values["mean_second"]) == tuple(one.score for one in step.proposals)
        assert values["margin"] == pytest.approx(abs(means[0] - means[1]), abs=1e-5)
        assert [one.chosen for one in step.proposals] == [place == chosen for place in (0, 1)]
        assert values["chosen"] == ("first", "second")[chosen]
        assert_same(step.proposals[chosen].tree, step.tree)


@given(draft_trees())
def test_of_two_equal_trees_the_first_is_verified(tree):
    draft = route(["one", "other"], [Draft(tree), Draft(tree)])
    assert [one.chosen for one in draft.proposals] == [True, False]


# Both trees as one


def paths_of(tree: DraftTree) -> dict[tuple[int, ...], int]:
    return {tuple(tree.token[list(tree.path(node)[1:])].tolist()): node for node in range(len(tree))}


@given(draft_trees(), draft_trees(vocab=6))
def test_the_union_holds_every_path_of_both_and_no_other(one, other):
    other = DraftTree.of([int(one.token[0]), *other.token[1:]], other.parent, other.log_prob, "random")
    draft = merge(["prose", "code"], [Draft(one), Draft(other)])
    paths = [paths_of(tree) for tree in (one, other)]
    union = paths_of(draft.tree)
    assert union.keys() == paths[0].keys() | paths[1].keys()
    for path, node in union.items():
        held = [name for name, own in zip(("prose", "code"), paths, strict=True) if path in own]
        if path:
            assert draft.tree.source[node] == ("both" if len(held) == 2 else held[0])
            best = max(tree.log_prob[own[path]] for tree, own in zip((one, other), paths, strict=True) if path in own)
            assert draft.tree.log_prob[node] == pytest.approx(best)
    assert max(len(one), len(other)) <= len(draft.tree) <= len(one) + len(other) - 1


@pytest.mark.model
def test_merging_accepts_what_the_better_of_both_would_have():
    session = speclab.Session(models_pair("llama"), speclab.DualDraft(mode="merge", **SMALL), PROMPT, max_new_tokens=24)
    session.run()
    for step in session.steps:
        if step.bonus is not None:
            assert len(step.accepted) == max(followed(session.trace, step.index))
        for event in step.events:
            if event.kind == "expand":
                assert step.nodes[event.node].draft_top


# Pairs that do not have two parts


@pytest.mark.parametrize("parts", [{}, {"first": None, "second": 0}, {"first": 0, "second": None}], ids=str)
def test_a_pair_without_two_parts(parts):
    for draft in (None, random_probs(8, 2)):
        with refused(speclab.NoDraftError, "two heads", "heads=", "first=None"):
            pair = table_pair(random_probs(8, 1), draft, 8)
            speclab.generate(pair, speclab.DualDraft(**parts), [1], max_new_tokens=4)


def test_two_parts_on_one_head():
    with refused(speclab.SettingsError, "two parts"):
        speclab.generate(tables(1)[0], speclab.DualDraft(first=1, second=1), [1, 2], max_new_tokens=4)
