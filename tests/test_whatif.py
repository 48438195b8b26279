"""Trees grown again from the record, held against trees that were really drafted."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sessions import DRAFT, PROMPT, TARGET, session_of
from table_runner import mixed_law, random_law, table_pair
from tiny import tiny
from variants import VARIANTS, dynatrees

import speclab
from speclab.analysis.whatif import WhatIf, in_force, what_if
from speclab.drafters.base import Strategy
from speclab.engine.session import Session
from speclab.errors import NotRecordedError
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.settings import SessionSettings
from speclab.trace.records import Step
from speclab.tree import DraftTree

EAGLE = speclab.DraftHead(node_budget=12, depth=4, children=3)
OWN = {name: variant for name, variant in VARIANTS.items() if variant.needs_draft} | {"best first": EAGLE}
VOCAB = 24
LAWS = random_law(VOCAB, 3, low=0.5, high=2.5)
NEAR = mixed_law(LAWS, random_law(VOCAB, 4), 0.15)
WIDE = speclab.DynaTree(
    stop_probability=0, deep_probability=0, prune_probability=0, low_confidence=0.9, high_confidence=0.95,
    base_depth=4, max_depth=4, history="off",
)  # fmt: skip


def session(strategy: Strategy, **chosen: object) -> Session:
    return Session(table_pair(LAWS, NEAR, VOCAB), strategy, PROMPT, **({"max_new_tokens": 16} | chosen))


def columns(tree: DraftTree) -> tuple[list[int], list[int], list[float]]:
    return tree.token.tolist(), tree.parent.tolist(), tree.log_prob.tolist()


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(tree.token[list(tree.path(node))].tolist()) for node in range(len(tree))}


def really(run: Session, step: Step, strategy: Strategy) -> Step:
    """What a fork before this step decodes."""
    return run.fork(at=step.index, strategy=strategy).step()


def assert_agrees(found: WhatIf, real: Step) -> None:
    """Wherever the record says that it suffices, it was right."""
    if not found.unknown:
        assert columns(found.tree)[:2] == columns(real.tree)[:2]
        assert found.tree.log_prob.tolist() == pytest.approx(real.tree.log_prob.tolist(), abs=1e-5)
        assert [(e.kind, e.node, e.reason) for e in found.events] == [(e.kind, e.node, e.reason) for e in real.events]
        if found.settled:
            assert found.accepted == real.accepted
            assert found.bonus in {real.bonus, None}
    elif len(real.tree) < int(real.settings["node_budget"]):  # else others may have taken their places
        assert paths(found.tree) <= paths(real.tree)
        assert found.accepted is not None
        assert len(found.accepted) <= len(real.accepted)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_step_s_own_settings_give_its_own_tree(name, temperature):
    run = session(OWN[name], temperature=temperature)
    run.run()
    for step in run.steps:
        found = what_if(step, in_force(step), run.settings)
        assert columns(found.tree) == columns(step.tree)
        assert (found.events, found.accepted, found.unknown, found.settled) == (step.events, step.accepted, (), True)
        assert found.recorded == tuple(range(len(step.tree)))
        assert found.bonus == step.bonus


@settings(max_examples=60)
@given(first=dynatrees(history="off"), second=dynatrees(history="off"))
def test_other_settings_give_the_tree_of_a_fork_wherever_the_record_suffices(first, second):
    run = session(first)
    for step in [run.step(), run.step()]:
        if first.root != second.root:
            with pytest.raises(NotRecordedError, match="another token"):
                what_if(step, second)
            continue
        assert_agrees(what_if(step, second), really(run, step, second))


@settings(max_examples=40)
@given(
    budget=st.integers(1, 40),
    deepest=st.integers(1, 4),
    stop=st.floats(0, 0.3),
    deep=st.floats(0.3, 1),
    prune=st.floats(0, 0.3),
    branches=st.integers(1, 3),
)
def test_what_only_takes_away_is_always_known(budget, deepest, stop, deep, prune, branches):
    run = session(WIDE)
    step = run.step()
    less = WIDE.changed(
        node_budget=budget, base_depth=deepest, max_depth=deepest, stop_probability=stop, deep_probability=deep,
        prune_probability=prune, min_branches=1, mid_branches=1, max_branches=branches,
    )  # fmt: skip
    found = what_if(step, less)
    assert found.unknown == ()
    assert found.settled
    assert_agrees(found, really(run, step, less))


@settings(max_examples=30)
@example(budget=6, depth=4, children=3)
@given(budget=st.integers(1, 20), depth=st.integers(1, 6), children=st.integers(1, 5))
def test_the_best_of_all_candidates_are_chosen_again_from_the_record(budget, depth, children):
    run = session(EAGLE)
    step = run.step()
    other = speclab.DraftHead(node_budget=budget, depth=depth, children=children)
    found = what_if(step, other)
    if budget <= 12 and (depth, children) == (4, 3):
        assert found.unknown == ()
    if not found.unknown:
        assert_agrees(found, really(run, step, other))
    with pytest.raises(NotRecordedError, match="another draft"):
        what_if(step, other.changed(head=1))


def test_history_is_grown_again_from_the_thresholds_in_force():
    run = session_of(speclab.DynaTree(low_confidence=0.7, prune_probability=0.02), max_new_tokens=60)
    run.run()
    moved = [step for step in run.steps if step.settings["high_confidence"] != 0.9]
    assert moved
    assert all(columns(what_if(step, in_force(step)).tree) == columns(step.tree) for step in moved)


def test_what_the_record_lacks_is_named():
    step = session(speclab.FixedTree(depth=2, branching=2)).step()
    deeper = what_if(step, speclab.FixedTree(depth=3, branching=2))
    assert columns(deeper.tree) == columns(step.tree)
    assert deeper.unknown == (3, 4, 5, 6)
    wider = what_if(step, speclab.FixedTree(depth=1, branching=12))
    assert len(wider.tree) == 1 + len(step.nodes[0].draft_top) == 9
    assert wider.unknown == (0,)


def test_where_the_path_goes_on_beyond_the_record_it_is_not_settled():
    """A chain cut short was accepted whole: with more room the target's next choice after it is unknown to no one."""
    exact = table_pair(TARGET, TARGET, 8)
    step = Session(exact, speclab.LinearSpeculation(draft_tokens=3), PROMPT, max_new_tokens=20).step()
    assert len(step.accepted) == 3
    longer = what_if(step, speclab.LinearSpeculation(draft_tokens=5))
    assert (longer.accepted, longer.unknown, longer.settled) == ((1, 2, 3), (3,), False)
    shorter = what_if(step, speclab.LinearSpeculation(draft_tokens=2))
    assert (shorter.accepted, shorter.settled, shorter.bonus) == ((1, 2), True, step.tree.token[3])


def test_a_new_leaf_that_the_target_chose_is_accepted_and_what_follows_it_is_unknown():
    pair = table_pair(TARGET, DRAFT, 8)
    run = Session(pair, speclab.FixedTree(depth=1, branching=1), PROMPT, max_new_tokens=40)
    run.run()
    found = [(step, what_if(step, speclab.FixedTree(depth=1, branching=8))) for step in run.steps]
    new = [(step, other) for step, other in found if not step.accepted]
    assert new
    for step, other in new:
        assert other.tree.token[list(other.accepted)].tolist() == [step.bonus]
        assert (other.settled, other.bonus, other.recorded[other.accepted[0]]) == (True, None, None)


def test_draws_and_strategies_without_a_draft_are_refused_in_one_sentence():
    step = session(speclab.FixedTree(depth=2, branching=2), temperature=1.0).step()
    drawing = speclab.FixedTree(depth=2, branching=2, candidates="independent")
    with pytest.raises(NotRecordedError, match="would be drawn at random"):
        what_if(step, drawing, SessionSettings(temperature=1.0))
    drawn = session(drawing, temperature=1.0).step()
    with pytest.raises(NotRecordedError, match="were drawn at random"):
        what_if(drawn, speclab.FixedTree())
    plain = session(speclab.PromptLookup()).step()
    with pytest.raises(NotRecordedError, match="PromptLookup drafts does not follow"):
        what_if(plain, in_force(plain))


def test_another_acceptance_rule_leaves_the_path_open():
    run = session(WIDE, temperature=1.5, acceptance="typical", typical_epsilon=0.01, typical_delta=0.05, seed=5)
    run.run()
    found = [what_if(step, in_force(step), run.settings) for step in run.steps]
    assert any(other.accepted is None and not other.settled for other in found)
    assert [columns(other.tree) for other in found] == [columns(step.tree) for step in run.steps]


def test_real_models_agree_with_their_record():
    pair = ModelPair(Runner(tiny("llama"), "target"), Runner(tiny("llama", seed=1), "draft"), name="tiny")
    run = Session(pair, WIDE.changed(root="drafted", drafting="node"), PROMPT, max_new_tokens=12)
    step = run.step()
    calls = run.pair.draft.calls
    for changes in ({"node_budget": 9}, {"prune_probability": 0.01}, {"max_branches": 4}, {"max_depth": 6}):
        other = in_force(step).changed(**changes)
        found = what_if(step, other)
        assert run.pair.draft.calls == calls
        assert_agrees(found, really(run, step, other))
