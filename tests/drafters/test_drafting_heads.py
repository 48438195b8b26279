"""Strategies of a draft model, drafting from a draft head: the same trees by the plain reference, and the same text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import SMALL as VOCAB
from pairs import assert_cache_is_fresh, headed_pair, library_text, pair_of, target_of
from records import assert_consistent, assert_same
from reference import dynatree as reference
from reference.eagle2 import head_probs
from refusals import refused
from variants import DRAWN, VARIANTS, dynatrees

import speclab
from speclab.analysis.whatif import in_force, what_if

pytestmark = pytest.mark.model

PROMPT = [5, 9, 2, 11, 3, 7, 7, 1]
SHAPES = {name: strategy for name, strategy in VARIANTS.items() if strategy.needs_draft} | {
    "sequoia": speclab.SequoiaTree(source="draft", node_budget=10, depth=3),
    "sampled": DRAWN["independent dynatree"],
    "two trees": speclab.DualDraft(node_budget=12, depth=3, children=4),
    "two trees as one": speclab.DualDraft(mode="merge", node_budget=12, depth=3, children=4),
}
every_shape = pytest.mark.parametrize("strategy", SHAPES.values(), ids=SHAPES)


@every_shape
@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_the_text_is_the_targets_own_and_every_cache_stands_on_it(family, strategy):
    session = speclab.Session(headed_pair(family), strategy, PROMPT, max_new_tokens=24)
    target, sources = session.pair.target.model, set[str]()
    while not session.done:
        step = session.step()
        assert_consistent(step)
        sources |= set(step.tree.source[1:])
        for runner in (session.pair.target, *session.pair.heads):
            assert_cache_is_fresh(runner, session.prompt_ids + session.token_ids, target)
    assert session.token_ids == library_text(target_of(family, VOCAB), PROMPT, 24)
    assert session.metrics.counts.accepted > 0
    if not isinstance(strategy, speclab.DualDraft):
        assert sources == {"prose"}


@given(dynatrees(), st.integers(0, 1))
@settings(max_examples=15)
def test_dynatree_of_a_head_is_algorithm_1_on_its_probabilities(strategy, head):
    strategy = strategy.changed(head=head, history="off", node_budget=16)
    pair = headed_pair("llama")
    session = speclab.Session(pair, strategy, PROMPT, max_new_tokens=12)
    text, drafted = session.prompt_ids + session.token_ids, strategy.root == "drafted"
    step = session.step()
    expected = reference.draft_tree(
        lambda path: head_probs(pair.heads[head].model, pair.target.model, text, path),
        strategy.model_dump() | {"mid_branches": strategy.mid_branches},
        None if drafted else text[-1],
    )
    assert step.tree.token.tolist() == expected.token
    assert step.tree.log_prob.tolist() == pytest.approx(expected.log_prob, abs=5e-3)
    known = pair.heads[head].model.token_ids.tolist()
    assert set(step.tree.token.tolist()[0 if drafted else 1 :]) <= set(known)


def test_a_setting_says_which_head_drafts_where_there_is_a_draft_model_too():
    pair, of = pair_of("llama"), {}
    for head in (None, 0, 1):
        session = speclab.Session(pair, speclab.FixedTree(head=head), PROMPT, max_new_tokens=12)
        session.run()
        of[head] = set(session.steps[0].tree.source[1:])
        used = [runner.calls > 0 for runner in (session.pair.draft, *session.pair.heads)]
        assert used == [head is None, head == 0, head == 1]
    assert of == {None: {"draft"}, 0: {"prose"}, 1: {"code"}}


def test_a_head_by_default_is_the_first_one():
    pair = headed_pair("llama")
    steps = [speclab.Session(pair, speclab.DynaTree(head=head), PROMPT, max_new_tokens=9).step() for head in (None, 0)]
    assert_same(steps[0].tree, steps[1].tree)


@pytest.mark.parametrize("name", ["wide dynatree", "dynatree as in the paper", "chain"])
def test_what_another_setting_would_have_drafted(name):
    strategy = SHAPES[name]
    session = speclab.Session(headed_pair("llama"), strategy, PROMPT, max_new_tokens=12)
    session.run()
    for step in session.steps:
        again = what_if(step, in_force(step))
        assert_same(again.tree, step.tree)
        with pytest.raises(speclab.SpeclabError):
            what_if(step, in_force(step).changed(head=1))


def test_what_the_pair_lacks():
    pair = headed_pair("llama")
    for strategy in (speclab.DynaTree(head=2), speclab.SequoiaTree(source="draft", head=2)):
        with refused(speclab.NoDraftError, "head 2", "0 to 1"):
            speclab.generate(pair, strategy, PROMPT, max_new_tokens=4)
    alone = speclab.load_pair(target=target_of("llama", VOCAB), draft=target_of("llama", VOCAB))
    with refused(speclab.NoDraftError, "head 0", "heads="):
        speclab.generate(alone, speclab.DynaTree(head=0), PROMPT, max_new_tokens=4)
