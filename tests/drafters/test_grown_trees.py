"""Fast drafting against the plain reference, on draft distributions from a table."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dynatree as reference
from table_runner import TableRunner, mixed_probs, random_probs, table_pair
from variants import dynatrees

import speclab
from speclab.drafters.base import Context, Draft, Outcome, Strategy
from speclab.tree import DraftTree

TEXT = [2, 1, 0, 1, 2]


def settings_of(strategy: Strategy) -> dict:
    """By the reference's names."""
    return strategy.model_dump() | {"mid_branches": getattr(strategy, "mid_branches", 0)}


GATES = {"prune_probability": "prune", "max_depth": "max depth", "stop_probability": "stop", "deep_probability": "deep"}


def draft_once(
    strategy: Strategy, probs: reference.DistributionFn, vocab: int, depth: int = 1000
) -> tuple[Draft, TableRunner]:
    pair = table_pair(random_probs(vocab, 99), probs, vocab)
    drafter = strategy.drafter(pair)
    return drafter.draft(Context(TEXT, depth, lambda: None)), pair.draft


def after_text(probs: reference.DistributionFn) -> reference.DistributionFn:
    return lambda path: probs((*TEXT, *path))


def path_of(tree: DraftTree, node: int, drafted_root: bool) -> tuple[int, ...]:
    tokens = tuple(tree.token[list(tree.path(node))].tolist())
    return tokens if drafted_root else tokens[1:]


def assert_same_tree(tree: DraftTree, expected: reference.Drafted) -> None:
    assert tree.token.tolist() == expected.token
    assert tree.parent.tolist() == expected.parent
    assert tree.log_prob.tolist() == pytest.approx(expected.log_prob, abs=1e-4)


def assert_same_decisions(draft: Draft, expected: reference.Drafted, drafted_root: bool) -> None:
    """Every kept node has one decision, the reference's; nodes it never came to were stopped by the budget."""
    tree = draft.tree
    kept = [node.path for node in expected.nodes]
    due = {path: (gate, count) for path, gate, count in expected.decisions if path in kept}
    got = {}
    for event in draft.events:
        path = path_of(tree, event.node, drafted_root)
        if event.kind == "expand":
            assert event.values["confidence"] == pytest.approx(math.exp(draft.topk[event.node][0][1]))
            got[path] = ("expand", event.values["branches"])
        elif event.kind == "stop" and event.values["gate"] != "node_budget":
            got[path] = (GATES[event.values["gate"]], 0)
    assert got == due
    full = {
        path_of(tree, event.node, drafted_root)
        for event in draft.events
        if event.kind == "stop" and event.values["gate"] == "node_budget"
    }
    assert full == set(kept) - set(due)
    pruned = sorted(
        (*path_of(tree, event.node, drafted_root), event.values["token"])
        for event in draft.events
        if event.kind == "prune"
    )
    assert pruned == sorted(expected.pruned)


@settings(max_examples=60)
@given(dynatrees(), st.integers(0, 10_000), st.integers(3, 12))
def test_dynatree_is_algorithm_1(strategy, seed, vocab):
    probs, drafted_root = random_probs(vocab, seed), strategy.root == "drafted"
    draft, runner = draft_once(strategy, probs, vocab)
    expected = reference.draft_tree(after_text(probs), settings_of(strategy), None if drafted_root else TEXT[-1])
    assert_same_tree(draft.tree, expected)
    assert_same_decisions(draft, expected, drafted_root)
    assert runner.calls == len({len(path) for path in expected.expanded}) + drafted_root, "one pass per level"


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(3, 12), st.floats(0.1, 8), st.sampled_from([8, 9]))
def test_the_authors_code_has_these_trees(seed, vocab, sharpness, max_depth):
    """Its D_0 of 5, and its D_max of 8 or 9, which it compares with the depth of a child."""
    probs = random_probs(vocab, seed, low=sharpness / 4, high=sharpness)
    strategy = speclab.DynaTree.authors_code().changed(max_depth=max_depth - 1)
    draft, _ = draft_once(strategy, probs, vocab)
    assert_same_tree(draft.tree, reference.published_tree(after_text(probs), max_depth=max_depth))


@given(st.integers(1, 5), st.integers(1, 4), st.floats(0, 0.3), st.integers(1, 60), st.integers(0, 1000))
def test_the_fixed_tree_is_the_plain_one(depth, branching, tau, budget, seed):
    probs = random_probs(7, seed)
    strategy = speclab.FixedTree(depth=depth, branching=branching, prune_probability=tau, node_budget=budget)
    draft, runner = draft_once(strategy, probs, 7)
    expected = reference.fixed_tree(after_text(probs), settings_of(strategy), TEXT[-1])
    assert_same_tree(draft.tree, expected)
    assert runner.calls == len({len(path) for path in expected.expanded})


@given(st.integers(1, 9), st.floats(0, 0.99), st.integers(0, 1000))
def test_the_chain_is_the_plain_one(draft_tokens, stop, seed):
    probs = random_probs(7, seed)
    strategy = speclab.LinearSpeculation(draft_tokens=draft_tokens, confidence_stop=stop)
    draft, runner = draft_once(strategy, probs, 7)
    expected = reference.chain(after_text(probs), draft_tokens, stop, TEXT[-1])
    assert_same_tree(draft.tree, expected)
    assert runner.calls == len(draft.tree) - 1


def test_plain_decoding_drafts_nothing():
    draft, runner = draft_once(speclab.Autoregressive(), random_probs(7, 0), 7)
    assert (draft.tree.token.tolist(), runner.calls) == ([TEXT[-1]], 0)


@given(dynatrees(), st.integers(0, 3), st.integers(0, 1000))
def test_no_node_lies_beyond_the_context(strategy, depth, seed):
    probs = random_probs(9, seed)
    draft, _ = draft_once(strategy, probs, 9, depth)
    unbounded, _ = draft_once(strategy.changed(max_depth=7), probs, 9)
    assert draft.tree.depth.max() <= depth
    assert set(draft.tree.token[draft.tree.depth <= 1].tolist()) <= set(unbounded.tree.token.tolist())


def test_the_root_is_never_pruned():
    probs = [0.3, 0.25, 0.25, 0.2]
    strategy = speclab.DynaTree.paper().changed(prune_probability=0.5, stop_probability=0.0)
    draft, _ = draft_once(strategy, lambda path: probs, 4)
    assert draft.tree.token.tolist() == [0]
    assert [event.kind for event in draft.events] == ["stop"]


# The draft cache lives on


@given(dynatrees(root="verified"), st.integers(0, 1000), st.data())
@settings(max_examples=25)
def test_drafting_on_a_settled_cache_gives_the_tree_of_a_fresh_one(strategy, seed, data):
    """Accept any path, settle, draft again: as if the draft had never run before, with no more than one row a token."""
    probs = random_probs(9, seed)
    pair = table_pair(random_probs(9, 99), probs, 9)
    drafter, text = strategy.drafter(pair), list(TEXT)
    for _ in range(3):
        tree = drafter.draft(Context(text, 1000, lambda: None)).tree
        expected = reference.draft_tree(
            lambda path, text=tuple(text): probs((*text, *path)), settings_of(strategy), text[-1]
        )
        assert_same_tree(tree, expected)
        path = tree.path(data.draw(st.integers(0, len(tree) - 1)))[1:]
        committed = (*tree.token[list(path)].tolist(), data.draw(st.integers(0, 8)))
        if path and data.draw(st.booleans()):  # the text ends inside the path: no bonus token
            committed = committed[:-1]
        drafter.commit(Outcome(tree, path, committed, None, None))
        text += committed
        assert pair.draft.tokens == text[: pair.draft.length]
        assert pair.draft.length < len(text)


# Whole runs


@settings(max_examples=25)
@given(dynatrees(node_budget=24, history="iteration"), st.integers(0, 10_000), st.floats(0.02, 0.6))
def test_whole_runs_are_the_papers(strategy, seed, share):
    """Ten rounds: every tree, path and commit, and the adapted settings, are those of the plain loop."""
    strategy = strategy.changed(
        base_depth=3,
        max_depth=max(strategy.max_depth, 5),
        high_confidence=0.8,
        low_confidence=min(strategy.low_confidence, 0.45),
        stop_probability=min(strategy.stop_probability, 0.25),
        deep_probability=0.5,
    )
    target = random_probs(8, seed, low=0.5, high=2.0)
    draft = mixed_probs(target, random_probs(8, seed + 1, low=0.5, high=2.0), share)
    first, rounds = reference.decode(target, draft, tuple(TEXT), settings_of(strategy), 10)
    committed = [first, *(token for r in rounds for token in r.committed)]
    session = speclab.Session(table_pair(target, draft, 8), strategy, TEXT, max_new_tokens=len(committed))
    for expected in rounds:
        step = session.step()
        assert_same_tree(step.tree, expected.tree)
        assert list(step.accepted) == expected.accepted
        assert list(step.committed) == expected.committed
        for name in ("base_depth", "high_confidence", "deep_probability"):
            assert step.settings[name] == pytest.approx(expected.settings[name], abs=1e-4)
        text = session.prompt_ids + session.token_ids
        for runner in session.pair.runners.values():
            assert runner.tokens == text[: runner.length]
    assert session.done
    assert session.token_ids == committed
