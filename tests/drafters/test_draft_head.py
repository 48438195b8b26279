"""EAGLE-2's tree against a plain reference, on table drafts and on draft heads; what it costs, and what it records."""

from __future__ import annotations

import pytest
from heads import random_head
from hypothesis import given, settings
from hypothesis import strategies as st
from records import assert_consistent
from reference.eagle2 import best_paths, head_probs
from refusals import refused
from table_runner import random_probs, table_pair
from tiny import tiny

import speclab

PROMPT = [5, 9, 2, 11, 3, 7, 7, 1]
VOCAB = 16
FAMILIES = ("llama", "gpt2", "mistral", "gemma3_text")
SMALL = {"node_budget": 14, "depth": 3, "children": 4}


def paths_of(tree) -> dict[tuple[int, ...], float]:
    return {
        tuple(tree.token[list(tree.path(node)[1:])].tolist()): tree.path_log_prob[node] for node in range(len(tree))
    }


def assert_tree(tree, wanted) -> None:
    found = paths_of(tree)
    assert found.keys() == wanted.keys()
    assert list(found.values()) == pytest.approx([wanted[path] for path in found], abs=5e-3)


# The tree


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 5), st.integers(1, 6))
@settings(max_examples=25)
def test_the_tree_is_eagle2s_on_any_draft(seed, budget, depth, children):
    probs = random_probs(8, seed)
    pair = table_pair(random_probs(8, seed + 1), probs, 8)
    strategy = speclab.DraftHead(node_budget=budget, depth=depth, children=children)
    session = speclab.Session(pair, strategy, [1, 2, 3], max_new_tokens=9)
    while not session.done:
        text = (*session.prompt_ids, *session.token_ids)
        step = session.step()
        assert_consistent(step)
        wanted = best_paths(lambda path: probs((*text, *path)), budget, depth, children)  # noqa: B023
        assert_tree(step.tree, wanted)


@pytest.mark.model
@pytest.mark.parametrize("layers", [(-1,), (1, 2)], ids=["last layer", "two layers"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_heads_tree_is_what_plain_passes_over_each_path_give(family, layers):
    target = tiny(family, vocab=VOCAB)
    head = random_head(target, 1, layers=layers)
    session = speclab.Session(
        speclab.load_pair(target=target, heads=head), speclab.DraftHead(**SMALL), PROMPT, max_new_tokens=12
    )
    for _ in range(3):
        text = session.prompt_ids + session.token_ids
        step = session.step()
        assert_consistent(step)
        wanted = best_paths(lambda path: head_probs(head, target, text, path), *SMALL.values())  # noqa: B023
        assert_tree(step.tree, wanted)
        assert set(step.tree.source[1:]) == {"head"}


# What it costs


@given(st.integers(0, 10**6))
@settings(max_examples=10)
def test_a_budget_that_no_child_fits_costs_no_pass(seed):
    pair = table_pair(random_probs(8, seed), random_probs(8, seed + 1), 8)
    for budget, most in ((1, 0), (2, 1), (3, 2)):
        strategy = speclab.DraftHead(node_budget=budget, depth=7, children=5)
        session = speclab.Session(pair, strategy, [1, 2, 3], max_new_tokens=8)
        session.run()
        assert max(step.counts.draft_calls for step in session.steps) <= most


@pytest.mark.model
def test_a_fork_from_a_strategy_that_watches_nothing_costs_one_prefill():
    target = tiny("llama", vocab=VOCAB)
    pair = speclab.load_pair(target=target, heads=random_head(target))
    plain = speclab.Session(pair, speclab.Autoregressive(), PROMPT, max_new_tokens=20)
    for _ in range(5):
        plain.step()
    fork = plain.fork(strategy=speclab.DraftHead(**SMALL))
    assert fork.pair.target.calls == 1
    assert fork.pair.target.hidden.length == fork.pair.target.length
    fork.step()
    assert fork.pair.target.calls == 2
    again = fork.fork(strategy=speclab.DraftHead(**SMALL, head=0).changed(depth=2))
    assert again.pair.target.calls == 0, "the states are there already"


def test_checking_every_commit_leaves_the_module_as_it_was():
    """Else all passes after it would be the library's, and cached entries those of another model."""
    target = tiny("llama", vocab=VOCAB)
    pair = speclab.load_pair(target=target, heads=[random_head(target, 1)])
    session = speclab.Session(pair, speclab.DraftHead(**SMALL), PROMPT, max_new_tokens=6, check=True)
    session.run()
    assert session.fork(at=1).pair.target.version == pair.target.version


# What it records


def test_why_each_node_was_expanded_or_not_and_what_was_not_kept():
    gates, steps = set(), []
    for budget in (4, 12):
        strategy = speclab.DraftHead(node_budget=budget, depth=3, children=3)
        pair = table_pair(random_probs(8, 4), random_probs(8, 3), 8)
        session = speclab.Session(pair, strategy, [1, 2, 3], max_new_tokens=30)
        session.run()
        steps += session.steps
    for step in steps:
        told = {event.node: event for event in step.events if event.kind in {"expand", "stop"}}
        dropped = {event.node: event.values["dropped"] for event in step.events if event.kind == "prune"}
        assert told.keys() == set(range(len(step.tree)))
        for node, event in told.items():
            assert (event.kind == "expand") == bool(step.nodes[node].draft_top)
            if event.kind == "expand":
                assert event.values["branches"] - dropped.pop(node, 0) == len(step.tree.children[node])
            else:
                gates.add(event.values["gate"])
        assert not dropped, "of a node that was not expanded nothing is dropped"
        least = min(node.path_prob for node in step.nodes)
        for event in (event for event in step.events if event.kind == "prune"):
            assert event.values["path_prob"] <= least * (1 + 1e-6)
            path = (*step.tree.token[list(step.tree.path(event.node)[1:])].tolist(), event.values["token"])
            assert path not in paths_of(step.tree)
    assert gates == {"depth", "children", "node_budget"}


# Bad input


def test_neither_head_nor_draft():
    with refused(speclab.NoDraftError, "DraftHead", "heads=", "draft="):
        speclab.generate(table_pair(random_probs(8, 1), None, 8), speclab.DraftHead(), [1, 2], max_new_tokens=4)


@pytest.mark.model
def test_a_head_that_the_pair_lacks():
    target = tiny("llama")
    pair = speclab.load_pair(target=target, heads=[random_head(target)])
    with refused(speclab.NoDraftError, "head 3", "0 to 0"):
        speclab.generate(pair, speclab.DraftHead(head=3), PROMPT, max_new_tokens=4)
