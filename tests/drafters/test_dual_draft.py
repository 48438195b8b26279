"""Two drafters: exact whichever tree is verified, the routing rule, the union of both trees, strategies inside one."""

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
from speclab.drafters.dual_draft import confidence, merge, route
from speclab.tree import DraftTree

FAMILIES = ("gpt_neox", "gemma3_text")
PROMPT = [5, 9, 2, 11, 3, 7, 7, 1]
SMALL = {"node_budget": 12, "depth": 3, "children": 4}
MODES = ("route", "merge", "first", "second")


@pytest.mark.model
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pair_for", [headed_pair, models_pair], ids=["heads", "models"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_is_the_targets_own_and_both_parts_stand_on_it(family, pair_for, mode):
    """After every step each part's cache is a fresh pass over the committed text, whichever was chosen."""
    session = speclab.Session(pair_for(family), speclab.DualDraft(mode=mode, **SMALL), PROMPT, max_new_tokens=24)
    target = session.pair.target.model
    while not session.done:
        step = session.step()
        assert_consistent(step)
        text = session.prompt_ids + session.token_ids
        for place, runner in enumerate(session.pair.heads):
            if mode == ("first", "second")[1 - place]:
                assert runner.length == runner.calls == 0, "the other part is not run"
                continue
            assert runner.length >= step.prefix_length
            assert_cache_is_fresh(runner, text, target)
    assert session.token_ids == library_text(target_of(family, VOCAB), PROMPT, 24)
    assert session.metrics.counts.accepted > 0


@pytest.mark.model
@pytest.mark.parametrize("pair_for", [headed_pair, models_pair], ids=["heads", "models"])
def test_a_part_that_did_not_run_for_long_proposes_as_if_it_had(pair_for):
    first = speclab.Session(pair_for("llama"), speclab.DualDraft(mode="first", **SMALL), PROMPT, max_new_tokens=24)
    for _ in range(5):
        first.step()
    late = first.fork(mode="second").step()
    text = first.prompt_ids + first.token_ids
    second = speclab.DualDraft(mode="second", **SMALL)
    fresh = speclab.Session(pair_for("llama"), second, text[:-1], max_new_tokens=9).step()
    assert late.prefix_length == fresh.prefix_length > len(PROMPT)
    assert_same(late.tree.token, fresh.tree.token)
    assert late.tree.log_prob == pytest.approx(fresh.tree.log_prob, abs=1e-3)


PARTS = {
    "model and copies": {"first": speclab.DynaTree(), "second": speclab.PromptLookup()},
    "tables": {"first": speclab.TokenRecycling(node_budget=13), "second": speclab.Goose(node_budget=20)},
    "with extra rows": {"first": speclab.Lookahead(), "second": speclab.Lookahead(window=4)},
    "best first and fixed": {"first": speclab.DraftHead(**SMALL), "second": speclab.TokenRecycling()},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_any_two_strategies(parts, mode):
    probs = random_probs(8, 1, low=0.5, high=2.0)
    pair = table_pair(probs, mixed_probs(probs, random_probs(8, 2), 0.2), 8)
    plain = speclab.generate(pair, speclab.Autoregressive(), [1, 2, 3], max_new_tokens=40)
    session = speclab.Session(pair, speclab.DualDraft(mode=mode, **parts), [1, 2, 3], max_new_tokens=40)
    while not session.done:
        assert_consistent(session.step())
        for runner in session.pair.runners.values():
            text = session.prompt_ids + session.token_ids
            assert runner.tokens == text[: runner.length]
    assert session.token_ids == plain.token_ids
    assert session.metrics.counts.accepted > 0


# Routing


@given(draft_trees())
def test_confidence_is_the_mean_of_path_probabilities_without_the_root(tree):
    paths = {tree.path(node)[1:]: float(tree.path_log_prob[node]) for node in range(len(tree))}
    assert confidence(tree) == pytest.approx(mean_confidence(paths))


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_the_tree_of_the_larger_mean_is_verified_and_the_record_says_so(seed):
    distributions = [random_probs(8, seed + place) for place in (1, 2)]
    pair = table_pair(random_probs(8, seed), None, 8)
    heads = tuple(table_pair(probs, None, 8).target for probs in distributions)
    pair = type(pair)(pair.target, heads=heads, name="tables")
    session = speclab.Session(pair, speclab.DualDraft(**SMALL), [1, 2, 3], max_new_tokens=9)
    while not session.done:
        text = (*session.prompt_ids, *session.token_ids)
        step = session.step()
        trees = [
            best_paths(lambda path, probs=probs: probs((*text, *path)), *SMALL.values())  # noqa: B023
            for probs in distributions
        ]
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
@settings(max_examples=10)
def test_routing_that_remembers_weighs_each_mean_by_what_was_right_lately(seed):
    """The rule worked out again from the records and the text alone."""
    probs = random_probs(8, seed)
    pair = table_pair(probs, None, 8)
    heads = tuple(
        table_pair(mixed_probs(probs, random_probs(8, seed + place), 0.4), None, 8).target for place in (1, 2)
    )
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


@given(draft_trees())
def test_of_two_equal_trees_the_first_is_verified(tree):
    draft, chosen = route(["one", "other"], [Draft(tree), Draft(tree)], None)
    assert chosen == 0
    assert [one.chosen for one in draft.proposals] == [True, False]


# Both trees as one


@given(draft_trees(), draft_trees(vocab=6))
def test_the_union_holds_every_path_of_both_and_no_other(one, other):
    other = DraftTree.of([int(one.token[0]), *other.token[1:]], other.parent, other.log_prob, "random")
    draft, places = merge(["prose", "code"], [Draft(one), Draft(other)])
    paths = [_paths(tree) for tree in (one, other)]
    union = _paths(draft.tree)
    assert union.keys() == paths[0].keys() | paths[1].keys()
    for path, node in union.items():
        held = [name for name, own in zip(("prose", "code"), paths, strict=True) if path in own]
        if path:
            assert draft.tree.source[node] == ("both" if len(held) == 2 else held[0])
        wanted = max(tree.log_prob[own[path]] for tree, own in zip((one, other), paths, strict=True) if path in own)
        assert draft.tree.log_prob[node] == wanted
    for own, place in zip(paths, places, strict=True):
        assert all(place[node] == union[path] for path, node in own.items())
    assert max(len(one), len(other)) <= len(draft.tree) <= len(one) + len(other) - 1


def _paths(tree: DraftTree) -> dict[tuple[int, ...], int]:
    return {tuple(tree.token[list(tree.path(node)[1:])].tolist()): node for node in range(len(tree))}


@pytest.mark.model
def test_merging_accepts_what_the_better_of_both_would_have():
    session = speclab.Session(models_pair("llama"), speclab.DualDraft(mode="merge", **SMALL), PROMPT, max_new_tokens=24)
    session.run()
    for step in session.steps:
        reached = followed(session.trace, step.index)
        if step.bonus is not None:
            assert len(step.accepted) == max(reached)


# Two strategies inside one


def test_strategies_inside_go_through_text_json_and_changes_unharmed():
    inner = speclab.DynaTree(base_depth=3, prune_probability=0.125)
    strategy = speclab.DualDraft(mode="merge", first=inner, second=speclab.DualDraft(first=speclab.PromptLookup()))
    assert speclab.DualDraft(**strategy.model_dump()) == strategy
    assert speclab.DualDraft.model_validate_json(strategy.model_dump_json()) == strategy
    assert strategy.changed(mode="route").first == inner
    assert speclab.DualDraft(first="PromptLookup").first == speclab.PromptLookup()
    assert strategy.describe()["first"] == "DynaTree(base_depth=3, prune_probability=0.125)"
    assert {type(value) for value in strategy.describe().values()} <= {str, int, float, bool, type(None)}


@pytest.mark.parametrize("mode", MODES)
def test_fewer_than_two_heads(mode):
    for draft in (None, random_probs(8, 2)):
        with refused(speclab.NoDraftError, "two heads", "heads=", "first=DynaTree()"):
            speclab.generate(
                table_pair(random_probs(8, 1), draft, 8), speclab.DualDraft(mode=mode), [1], max_new_tokens=4
            )


@pytest.mark.parametrize("wrong", [{"root": "drafted"}, {"commit": "rebuild"}], ids=str)
def test_a_part_with_a_root_or_a_cache_of_its_own_way(wrong):
    strategy = speclab.DualDraft(first=speclab.PromptLookup(), second=speclab.DynaTree(**wrong))
    with refused(speclab.SettingsError, "DynaTree", "verified", "gather"):
        speclab.generate(table_pair(random_probs(8, 1), random_probs(8, 2), 8), strategy, [1, 2], max_new_tokens=4)


def test_two_parts_on_one_draft_model():
    strategy = speclab.DualDraft(first=speclab.DynaTree(), second=speclab.LinearSpeculation())
    with refused(speclab.SettingsError, "one cache", "heads="):
        speclab.generate(table_pair(random_probs(8, 1), random_probs(8, 2), 8), strategy, [1, 2], max_new_tokens=4)


@pytest.mark.parametrize("mode", ["route", "merge"])
def test_a_choice_between_draws(mode):
    drawing = speclab.LinearSpeculation(candidates="independent")
    strategy = speclab.DualDraft(mode=mode, first=drawing, second=speclab.PromptLookup())
    pair = table_pair(random_probs(8, 1), random_probs(8, 2), 8)
    session = speclab.Session(pair, strategy, [1, 2], max_new_tokens=4, temperature=1.0)
    with refused(speclab.SettingsError, "samples its candidates", "'top'"):
        session.step()
    assert len(session.token_ids) == 1
    assert session.fork(mode="first").step().committed


@pytest.mark.parametrize("text", ["", "DynaTree(", "Nonsense()", "DynaTree(base_depth=one)", "3", "DynaTree(3)"])
def test_text_that_is_no_strategy(text):
    with pytest.raises(speclab.SettingsError, match=r"DynaTree") as caught:
        speclab.DualDraft(first=text)
    assert "\n" not in str(caught.value)
