"""Fast drafting and historical adjustment against the plain reference, on draft distributions from a table."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dynatree as reference
from support.records import ran
from support.table_runner import TableRunner, mixed_probs, random_probs, table_pair
from support.variants import dynatrees

import speclab
from speclab.drafters.base import Context, Draft, Strategy
from speclab.drafters.dynatree import adjustment, remember
from speclab.tree import DraftTree

TEXT = [2, 1, 0, 1, 2]
GATES = {
    "prune_probability": "prune",
    "max_depth": "max depth",
    "stop_probability": "stop",
    "deep_probability": "deep",
}
ADAPTED = ("base_depth", "high_confidence", "deep_probability")


def settings_of(strategy: Strategy) -> dict:
    """By the reference's names."""
    return strategy.model_dump() | {"mid_branches": getattr(strategy, "mid_branches", 0)}


def draft_once(
    strategy: Strategy, probs: reference.DistributionFn, vocab: int
) -> tuple[Draft, TableRunner]:
    pair = table_pair(random_probs(vocab, 99), probs, vocab)
    return strategy.drafter(pair).draft(Context(TEXT, 1000, lambda: None)), pair.draft


def after_text(probs: reference.DistributionFn) -> reference.DistributionFn:
    return lambda path: probs((*TEXT, *path))


def assert_same_tree(tree: DraftTree, expected: reference.Drafted) -> None:
    assert tree.token.tolist() == expected.token
    assert tree.parent.tolist() == expected.parent
    assert tree.log_prob.tolist() == pytest.approx(expected.log_prob, abs=1e-4)


def assert_same_decisions(draft: Draft, expected: reference.Drafted, drafted_root: bool) -> None:
    """Every kept node has one decision, the reference's; nodes it never came to were stopped by the budget."""

    def path_of(node: int) -> tuple[int, ...]:
        tokens = tuple(draft.tree.token[list(draft.tree.path(node))].tolist())
        return tokens if drafted_root else tokens[1:]

    kept = [node.path for node in expected.nodes]
    due = {path: (gate, count) for path, gate, count in expected.decisions if path in kept}
    decided = {}
    full = set()
    pruned = []
    for event in draft.events:
        path = path_of(event.node)
        values = event.values
        if event.kind == "expand":
            assert values["confidence"] == pytest.approx(math.exp(draft.topk[event.node][0][1]))
            decided[path] = ("expand", values["branches"])
        elif event.kind == "prune":
            pruned.append((*path, values["token"]))
        elif values["gate"] == "node_budget":
            full.add(path)
        else:
            decided[path] = (GATES[values["gate"]], 0)
    assert decided == due
    assert full == set(kept) - set(due)
    assert sorted(pruned) == sorted(expected.pruned)


@settings(max_examples=60)
@given(dynatrees(), st.integers(0, 10_000), st.integers(3, 12))
def test_dynatree_is_algorithm_1(strategy, seed, vocab):
    probs = random_probs(vocab, seed)
    drafted_root = strategy.root == "drafted"
    draft, runner = draft_once(strategy, probs, vocab)
    expected = reference.draft_tree(
        after_text(probs), settings_of(strategy), None if drafted_root else TEXT[-1]
    )
    assert_same_tree(draft.tree, expected)
    assert_same_decisions(draft, expected, drafted_root)
    assert runner.calls == len({len(path) for path in expected.expanded}) + drafted_root, (
        "one pass per level"
    )


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(3, 12), st.floats(0.1, 8), st.sampled_from([8, 9]))
def test_the_authors_code_has_these_trees(seed, vocab, sharpness, max_depth):
    """Its D_0 of 5, and its D_max of 8 or 9, which it compares with the depth of a child."""
    probs = random_probs(vocab, seed, low=sharpness / 4, high=sharpness)
    strategy = speclab.DynaTree.authors_code().changed(max_depth=max_depth - 1)
    draft, _ = draft_once(strategy, probs, vocab)
    assert_same_tree(draft.tree, reference.published_tree(after_text(probs), max_depth=max_depth))


@given(dynatrees(history="off", root="verified"), st.integers(0, 1000))
def test_a_fixed_tree_and_a_chain_are_special_cases(dynatree, seed):
    probs = random_probs(7, seed)
    depth, branching = dynatree.max_depth, dynatree.max_branches
    always = {"base_depth": depth, "stop_probability": 0, "deep_probability": 0}
    names = ("prune_probability", "node_budget")
    fixed = speclab.FixedTree(
        depth=depth, branching=branching, **{name: getattr(dynatree, name) for name in names}
    )
    chain = speclab.LinearSpeculation(draft_tokens=depth)
    alike = dynatree.changed(**always, min_branches=branching)
    bare = alike.changed(min_branches=1, max_branches=1, prune_probability=0, node_budget=99)
    for strategy, other in ((fixed, alike), (chain, bare)):
        assert draft_once(strategy, probs, 7)[0].tree == draft_once(other, probs, 7)[0].tree
    stopped = draft_once(chain.changed(confidence_stop=0.4), probs, 7)[0].tree
    unlikely = [math.exp(log_prob) < 0.4 for log_prob in stopped.log_prob[1:]]
    assert not any(unlikely[:-1]), "an unlikely token is the last"
    assert unlikely[-1] or len(unlikely) == depth


@settings(max_examples=25)
@given(dynatrees(node_budget=24, history="iteration"), st.integers(0, 10_000), st.floats(0.02, 0.6))
def test_whole_runs_are_the_papers(strategy, seed, share):
    """Ten rounds: every tree, path and commit, the adapted settings and the caches are those of the plain loop."""
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
    session = speclab.Session(
        table_pair(target, draft, 8), strategy, TEXT, max_new_tokens=len(committed)
    )
    for expected in rounds:
        step = session.step()
        assert_same_tree(step.tree, expected.tree)
        assert list(step.accepted) == expected.accepted
        assert list(step.committed) == expected.committed
        for name in ADAPTED:
            assert step.settings[name] == pytest.approx(expected.settings[name], abs=1e-4)
        text = session.prompt_ids + session.token_ids
        for runner in session.pair.runners.values():
            assert runner.tokens == text[: runner.length]
    assert session.token_ids == committed


# Historical adjustment alone


WITHIN = st.builds(  # the bounds of the published schedule
    lambda base, above, high, deep: speclab.DynaTree(
        base_depth=base, max_depth=base + above, high_confidence=high, deep_probability=deep
    ),
    st.integers(2, 8), st.integers(1, 4), st.floats(0.5, 0.95), st.floats(0.3, 0.8),
)  # fmt: skip


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 12)), max_size=3), dynatrees(), WITHIN)
def test_history_is_the_published_schedule_and_never_leaves_the_bounds(runs, strategy, usual):
    shares = [share for share, count in runs for _ in range(count)]
    window = ()
    for share in shares:
        window = remember(window, share)
    kind, _, changes = adjustment(strategy, window)
    assert strategy.changed(**changes)
    assert bool(changes) == (kind in {"bolder", "more careful"})
    bold = len(window) > 0 and sum(window) / len(window) > 0.7
    for name, sign in zip(ADAPTED, (1, -1, -1), strict=True):
        moved = sign * (changes.get(name, getattr(strategy, name)) - getattr(strategy, name))
        assert moved >= 0 if bold else moved <= 0, name
    _, _, changes = adjustment(usual, window)
    assert usual.model_dump() | changes == pytest.approx(
        reference.adjust(usual.model_dump(), shares), abs=1e-4
    )


def test_history_a_prompt_is_the_published_codes():
    """Never within a prompt; from the sixth on each goes on from what the last used, by the prompts before it."""
    target = random_probs(8, 3, low=0.5, high=2.0)
    pair = table_pair(target, mixed_probs(target, random_probs(8, 4), 0.5), 8)
    strategy = speclab.DynaTree.authors_code()
    shares = []
    depths = []
    expected = strategy.model_dump()
    for _ in range(7):
        expected = reference.adjust(expected, shares)
        session = ran(pair, strategy, TEXT, max_new_tokens=30)
        for step in session.steps:
            assert [step.settings[name] for name in ADAPTED] == pytest.approx(
                [expected[name] for name in ADAPTED], abs=1e-4
            )
        shares.append(
            reference.published_statistic([len(step.committed) for step in session.steps])
        )
        depths.append(expected["base_depth"])
    assert depths == [4] * 5 + [3, 2], "the code's D_0, which counts one more, goes from 5 to 3"
