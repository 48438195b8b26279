"""EAGLE-2's tree against a plain reference, on table drafts and on draft heads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.eagle2 import best_paths, head_probs
from support.heads import random_head
from support.pairs import SMALL as VOCAB
from support.pairs import pair_of
from support.records import paths_of, ran
from support.table_runner import random_probs, table_pair
from support.tiny import tiny

import speclab

PROMPT = [5, 9, 2, 11, 3, 7, 7, 1]
SMALL = {"node_budget": 14, "depth": 3, "children": 4}


def assert_tree(tree, expected) -> None:
    paths = paths_of(tree)
    assert paths.keys() == expected.keys()
    assert tree.path_log_prob[list(paths.values())].tolist() == pytest.approx(
        [expected[p] for p in paths], abs=5e-3
    )


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
        assert_tree(
            step.tree,
            best_paths(lambda path, text=text: probs((*text, *path)), budget, depth, children),
        )
        assert step.counts.draft_calls < budget, "no pass whose children would not fit"


@pytest.mark.model
@pytest.mark.parametrize("layers", [(-1,), (1, 2)], ids=["last layer", "two layers"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3_text"])
def test_a_heads_tree_is_what_plain_passes_over_each_path_give(family, layers):
    target = tiny(family, vocab=VOCAB)
    head = random_head(target, 1, ids=[0, 1, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14], layers=layers)
    session = speclab.Session(
        speclab.load_pair(target=target, heads=head),
        speclab.DraftHead(**SMALL),
        PROMPT,
        max_new_tokens=12,
    )
    for _ in range(3):
        text = session.prompt_ids + session.token_ids
        step = session.step()
        assert_tree(
            step.tree,
            best_paths(
                lambda path, text=text: head_probs(head, target, text, path), *SMALL.values()
            ),
        )
        assert set(step.tree.source[1:]) == {"head"}


def test_why_each_node_was_expanded_or_not_and_what_was_not_kept():
    gates = set()
    pair = table_pair(random_probs(8, 4), random_probs(8, 3), 8)
    for budget in (4, 12):
        strategy = speclab.DraftHead(node_budget=budget, depth=3, children=3)
        session = ran(pair, strategy, [1, 2, 3], max_new_tokens=30)
        for step in session.steps:
            dropped = {event.node: event.values for event in step.events if event.kind == "prune"}
            decided = [event for event in step.events if event.kind != "prune"]
            assert [event.node for event in decided] == [*range(len(step.tree))]
            for event in decided:
                if event.kind == "expand":
                    lost = dropped.pop(event.node, {"dropped": 0})["dropped"]
                    assert event.values["branches"] - lost == len(step.tree.children[event.node])
                else:
                    gates.add(event.values["gate"])
            assert not dropped, "nothing is dropped of a node that was not expanded"
            least = min(node.path_prob for node in step.nodes)
            for event in step.events:
                assert event.kind != "prune" or event.values["path_prob"] <= least * (1 + 1e-6)
    assert gates == {"max_depth", "best", "outranked"}


@pytest.mark.model
def test_a_setting_says_which_head_drafts_where_there_is_a_draft_model_too():
    pair = pair_of("llama")
    for head, name in ((None, "draft"), (0, "prose"), (1, "code")):
        session = ran(pair, speclab.FixedTree(head=head), PROMPT, max_new_tokens=12)
        assert {source for step in session.steps for source in step.tree.source[1:]} == {name}
        used = [runner.calls > 0 for runner in (session.pair.draft, *session.pair.heads)]
        assert used == [head is None, head == 0, head == 1]


@pytest.mark.model
def test_a_fork_from_a_strategy_without_a_head_costs_one_prefill():
    target = tiny("llama", vocab=VOCAB)
    pair = speclab.load_pair(target=target, heads=random_head(target))
    plain = speclab.Session(pair, speclab.Autoregressive(), PROMPT, max_new_tokens=20)
    for _ in range(5):
        plain.step()
    fork = plain.fork(strategy=speclab.DraftHead(**SMALL))
    assert fork.pair.target.calls == 1
    assert fork.pair.target.hidden.length == fork.pair.target.length
    fork.step()
    again = fork.fork(strategy=speclab.DraftHead(**SMALL, head=0).changed(depth=2))
    assert again.pair.target.calls == 0, "the hidden states are there already"
