"""A link fits where links go: into a chat, a slide, an issue."""

import pytest
from support.records import ran

import speclab

STRATEGIES = [
    speclab.DynaTree(node_budget=16), speclab.FixedTree(depth=5, branching=2, node_budget=16),
    speclab.DraftHead(node_budget=16), speclab.LinearSpeculation(draft_tokens=15),
    speclab.SequoiaTree(node_budget=16), speclab.Goose(node_budget=16), speclab.DDTree(node_budget=16),
    speclab.TokenRecycling(node_budget=16), speclab.SuffixDecoding(node_budget=16),
    speclab.Graft(node_budget=16),
]  # fmt: skip


@pytest.fixture(scope="module")
def mini():
    return speclab.load_pair()


@pytest.mark.wide
@pytest.mark.model
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: type(one).__name__)
def test_an_iteration_of_16_nodes_has_500_characters_and_60_tokens_have_3500(strategy, mini):
    prompt = "Once upon a time there lived a poor miller who had three daughters."
    session = ran(mini, strategy, prompt, max_new_tokens=60)
    trace = session.trace
    for step in trace.steps:
        if len(step.tree) <= 16:
            assert len(trace.link(step.index, step.index)) <= 500
    assert len(trace.link()) <= 3500
