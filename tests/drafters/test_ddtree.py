"""DDTree and chains from a block head: the best paths, records, and which head drafts."""

from __future__ import annotations

from math import log

import pytest
from support.heads import random_block, random_head
from support.pairs import BLOCKS, PROMPT, block_pair, library_text, target_of
from support.records import paths_of, ran
from support.refusals import refused
from support.tiny import tiny

import speclab
from speclab.drafters.ddtree import best_paths, successors

VOCAB = 8
every_shape = pytest.mark.parametrize("shape", BLOCKS.values(), ids=BLOCKS)


def test_the_heap_finds_the_most_probable_paths_of_all():
    """Best first: of a node, its next sibling and its first child are looked at, by rank."""
    first = ((0, log(0.6)), (1, log(0.25)))
    second = ((2, log(0.5)), (3, log(0.4)))
    after = successors([first, second], None)
    # 0: .6; 0 2: .3; 1: .25; 0 3: .24; 1 2: .125; 1 3: .1
    tree, pops = best_paths(after, 9, 4, "block")
    draft = tree.draft(pops)
    assert [*paths_of(draft.tree)] == [(), (0,), (1,), (0, 2), (0, 3)]
    assert [event.node for event in draft.events] == [1, 3, 2, 4]
    scores = [event.values["path_prob"] for event in draft.events]
    assert scores == pytest.approx([0.6, 0.3, 0.25, 0.24])
    # what follows 1 is surer than what follows 0
    tables = {0: second, 1: ((3, log(0.99)),)}
    after = successors([first, second], lambda depths, tokens: [tables[each] for each in tokens])
    tree, _ = best_paths(after, 9, 4, "block", 2)
    assert {*paths_of(tree.draft([]).tree)} == {(), (0,), (1,), (0, 2), (1, 3)}


def prompt_of() -> list[int]:
    return [token % VOCAB for token in PROMPT]


@pytest.mark.model
def test_a_tree_is_made_of_one_pass_and_the_record_holds_the_block_and_the_heaps_order():
    session = ran(
        block_pair("llama"), speclab.DDTree(node_budget=10), prompt_of(), max_new_tokens=12
    )
    for step in session.steps:
        assert step.counts.draft_calls == 1
        blocks = [event for event in step.events if event.kind == "marginal"]
        assert [event.values["level"] for event in blocks] == [1, 2, 3, 4, 5, 6]
        pops = [event for event in step.events if event.kind == "pop"]
        assert [event.values["order"] for event in pops] == [*range(1, len(step.tree))]
        scores = [event.values["score"] for event in pops]
        assert scores == sorted(scores, reverse=True)
        for event in pops:
            node = step.nodes[event.node]
            assert event.values["score"] == pytest.approx(step.tree.path_log_prob[event.node])
            above = step.nodes[int(step.tree.parent[event.node])]
            assert above.draft_top[event.values["rank"] - 1][0] == node.token
            best = blocks[int(step.tree.depth[event.node]) - 1].values
            assert (best["token"], best["token_prob"]) == pytest.approx(above.draft_top[0])


@pytest.mark.model
@every_shape
def test_a_tree_of_another_budget_follows_from_the_record_as_far_as_it_goes(shape):
    strategy = speclab.DDTree(node_budget=10)
    run = ran(block_pair("llama", **shape), strategy, prompt_of(), max_new_tokens=20)
    whole = 0
    for step in run.steps:
        for budget in (1, 4, 10, 14):
            other = strategy.changed(node_budget=budget)
            found = speclab.what_if(step, other)
            forked = run.fork(at=step.index, strategy=other).step()
            if found.unknown:
                assert budget == 14
                continue
            whole += 1
            for name in ("token", "parent"):
                assert getattr(found.tree, name).tolist() == getattr(forked.tree, name).tolist()
            assert found.accepted == forked.accepted
            assert found.bonus in (None, forked.bonus)
    assert whole >= 3 * len(run.steps)


@pytest.mark.model
def test_the_next_tokens_depend_on_the_parent_only_with_a_bias():
    pair = block_pair("llama", **BLOCKS["bias"])
    runs = {}
    for condition in ("auto", "none"):
        strategy = speclab.DDTree(node_budget=12, condition=condition)
        session = ran(pair, strategy, prompt_of(), max_new_tokens=12)
        runs[condition] = session.trace
    assert runs["auto"].token_ids == runs["none"].token_ids
    for condition, shared in (("auto", False), ("none", True)):
        nodes = runs[condition].steps[0].nodes
        depth = runs[condition].steps[0].tree.depth.tolist()
        tops = {node.draft_top for node in nodes if depth[node.index] == 1}
        assert (len(tops) == 1) == shared


@pytest.mark.model
def test_a_tree_ends_where_the_context_does():
    model = tiny("gpt2", n_positions=16, vocab=VOCAB)
    pair = speclab.load_pair(target=model, heads=random_block(model, 1, block_size=7))
    session = ran(pair, speclab.DDTree(node_budget=20), prompt_of()[:8], max_new_tokens=8)
    assert session.token_ids == library_text(model, prompt_of()[:8], 8)
    assert all(step.prefix_length + int(step.tree.depth[-1]) < 16 for step in session.steps)


@pytest.mark.model
def test_which_head_drafts():
    model = target_of("llama", VOCAB)
    heads = [random_head(model, 1, "prose"), random_head(model, 2, "code"), random_block(model, 3)]
    pair = speclab.load_pair(target=model, heads=heads)
    assert pair.block_heads == (2,)
    for strategy, used in (
        (speclab.DDTree(node_budget=8), {"block"}),
        (speclab.DDTree(node_budget=8, head=2), {"block"}),
        (speclab.LinearSpeculation(head=2), {"block"}),
        (speclab.DraftHead(node_budget=8), {"prose"}),
        (speclab.DualDraft(node_budget=8, mode="merge"), {"prose", "code", "both"}),
    ):
        session = ran(pair, strategy, prompt_of(), max_new_tokens=12)
        assert {name for step in session.steps for name in step.tree.source[1:]} <= used
    for wrong, named in ((0, "head 0"), (3, "head 3")):
        with refused(speclab.NoDraftError, "DDTree", named):
            speclab.generate(pair, speclab.DDTree(head=wrong), prompt_of(), max_new_tokens=4)
    with refused(speclab.NoDraftError, "DDTree", "heads="):
        alone = speclab.load_pair(target=model, heads=heads[0])
        speclab.generate(alone, speclab.DDTree(), prompt_of(), max_new_tokens=4)
