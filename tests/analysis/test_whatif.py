"""Trees grown again from the record, compared with trees that were really drafted."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sessions import DRAFT, PROMPT, TARGET, session_of
from table_runner import mixed_probs, random_probs, table_pair
from tiny import tiny
from variants import VARIANTS, dynatrees

import speclab
from speclab.analysis.whatif import WhatIf, in_force, what_if
from speclab.drafters.base import Context, Strategy
from speclab.drafters.draft_forward import ModelForward
from speclab.drafters.draft_head import best_first
from speclab.drafters.dual_draft import confidence, weighed
from speclab.drafters.growth import GrownStrategy
from speclab.engine.session import Session
from speclab.errors import NotRecordedError
from speclab.models.pair import ModelPair
from speclab.models.runner import Runner
from speclab.settings import SessionSettings
from speclab.trace.records import Step
from speclab.tree import DraftTree

EAGLE = speclab.DraftHead(node_budget=12, depth=4, children=3)
GROWN = {name: variant for name, variant in VARIANTS.items() if isinstance(variant, GrownStrategy)}
OWN = GROWN | {"best first": EAGLE}
VOCAB = 24
DISTRIBUTIONS = random_probs(VOCAB, 3, low=0.5, high=2.5)
NEAR = mixed_probs(DISTRIBUTIONS, random_probs(VOCAB, 4), 0.15)
WIDE = speclab.DynaTree(
    stop_probability=0, deep_probability=0, prune_probability=0, low_confidence=0.9, high_confidence=0.95,
    base_depth=4, max_depth=4, history="off",
)  # fmt: skip


def session(strategy: Strategy, **chosen: object) -> Session:
    return Session(table_pair(DISTRIBUTIONS, NEAR, VOCAB), strategy, PROMPT, **({"max_new_tokens": 16} | chosen))


def finished(pair: ModelPair, strategy: Strategy, prompt: list[int] = PROMPT, tokens: int = 30) -> Session:
    run = Session(pair, strategy, prompt, max_new_tokens=tokens)
    run.run()
    return run


def columns(tree: DraftTree) -> tuple[list[int], list[int], list[float]]:
    return tree.token.tolist(), tree.parent.tolist(), tree.log_prob.tolist()


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(tree.token[list(tree.path(node))].tolist()) for node in range(len(tree))}


def forked(run: Session, step: Step, strategy: Strategy) -> Step:
    """What a fork before this step decodes."""
    return run.fork(at=step.index, strategy=strategy).step()


def assert_agrees(found: WhatIf, real: Step, *, events: bool = True) -> None:
    """Wherever the record says that it suffices, it was right."""
    assert found.accepted is not None
    if found.unknown:
        if len(real.tree) < int(real.settings["node_budget"]):  # else others may have taken their places
            assert paths(found.tree) <= paths(real.tree)
            assert len(found.accepted) <= len(real.accepted)
        return
    assert columns(found.tree)[:2] == columns(real.tree)[:2]
    assert found.tree.log_prob.tolist() == pytest.approx(real.tree.log_prob.tolist(), abs=1e-5)
    if events:
        assert [(e.kind, e.node, e.reason) for e in found.events] == [(e.kind, e.node, e.reason) for e in real.events]
    assert real.accepted[: len(found.accepted)] == found.accepted
    if found.settled:
        assert found.accepted == real.accepted
        assert found.bonus in {real.bonus, None}


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


@settings(max_examples=25)
@given(first=dynatrees(history="off"), second=dynatrees(history="off"))
def test_other_settings_give_the_tree_of_a_fork_wherever_the_record_suffices(first, second):
    run = session(first)
    for step in [run.step(), run.step()]:
        if first.root != second.root:
            with pytest.raises(NotRecordedError, match="another token"):
                what_if(step, second)
            continue
        assert_agrees(what_if(step, second), forked(run, step, second))


@settings(max_examples=20)
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
    assert_agrees(found, forked(run, step, less))


@settings(max_examples=20)
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
        assert_agrees(found, forked(run, step, other))
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
    """A chain cut short was accepted whole: what follows with more room is not recorded."""
    step = Session(table_pair(TARGET, TARGET, 8), speclab.LinearSpeculation(draft_tokens=3), PROMPT).step()
    assert len(step.accepted) == 3
    longer = what_if(step, speclab.LinearSpeculation(draft_tokens=5))
    assert (longer.accepted, longer.unknown, longer.settled) == ((1, 2, 3), (3,), False)
    shorter = what_if(step, speclab.LinearSpeculation(draft_tokens=2))
    assert (shorter.accepted, shorter.settled, shorter.bonus) == ((1, 2), True, step.tree.token[3])


def test_a_new_leaf_that_the_target_chose_is_accepted_and_what_follows_it_is_unknown():
    run = finished(table_pair(TARGET, DRAFT, 8), speclab.FixedTree(depth=1, branching=1), tokens=40)
    found = [(step, what_if(step, speclab.FixedTree(depth=1, branching=8))) for step in run.steps if not step.accepted]
    assert found
    for step, other in found:
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
    run = Session(pair, WIDE.changed(root="drafted"), PROMPT, max_new_tokens=12)
    step = run.step()
    calls = run.pair.draft.calls
    for changes in ({"node_budget": 9}, {"prune_probability": 0.01}, {"max_branches": 4}, {"max_depth": 6}):
        other = in_force(step).changed(**changes)
        found = what_if(step, other)
        assert run.pair.draft.calls == calls
        assert_agrees(found, forked(run, step, other))


# Dual-Draft Routing: both trees are recorded.

PROBS = random_probs(8, 4, low=0.5, high=2.5)
SMALL = {"node_budget": 12, "depth": 3, "children": 4}


def dual_run(**chosen: object) -> Session:
    heads = tuple(table_pair(mixed_probs(PROBS, random_probs(8, seed), 0.4), None, 8).target for seed in (5, 6))
    pair = ModelPair(table_pair(PROBS, None, 8).target, heads=heads, name="tables")
    return finished(pair, speclab.DualDraft(**(SMALL | chosen)))


DUAL = {mode: dual_run(mode=mode) for mode in ("route", "merge")}


@pytest.mark.parametrize("mode", ["route", "merge", "first", "second"])
@pytest.mark.parametrize("run", DUAL.values(), ids=DUAL)
def test_another_mode_verifies_what_a_fork_would_have(run, mode):
    whole = 0
    for step in run.steps:
        other = in_force(step).changed(mode=mode)
        found, real = what_if(step, other), forked(run, step, other)
        assert found.unknown == ()
        assert_agrees(found, real, events=False)
        whole += found.accepted == real.accepted
    assert whole > len(run.steps) / 2


@pytest.mark.parametrize("mode", ["route", "merge"])
@settings(max_examples=8)
@given(budget=st.integers(1, 12))
def test_a_smaller_budget_restricts_both_trees_and_may_change_the_choice(mode, budget):
    for step in DUAL[mode].steps[:4]:
        other = in_force(step).changed(node_budget=budget)
        real, found = forked(DUAL[mode], step, other), what_if(step, other)
        assert found.unknown == ()
        assert_agrees(found, real, events=False)
        route = found.events[0]
        assert (route.kind, route.reason, route.values) == ("route", real.events[0].reason, real.events[0].values)


def test_a_head_that_is_named_as_a_part_is_restricted_too():
    named = speclab.DraftHead(node_budget=10, depth=3, children=3, head=0)
    run = dual_run(first=named)
    for step in run.steps[:4]:
        other = in_force(step).changed(first=named.changed(node_budget=4))
        assert_agrees(what_if(step, other), forked(run, step, other), events=False)
    elsewhere = in_force(run.steps[0]).changed(first=named.changed(head=1))
    with pytest.raises(speclab.NotRecordedError, match="nodes alone"):
        what_if(run.steps[0], elsewhere)


def test_the_choice_does_change_with_the_budget():
    changed = 0
    for step in DUAL["route"].steps:
        chosen = [what_if(step, in_force(step).changed(node_budget=budget)).events[0].values for budget in (2, 12)]
        changed += chosen[0]["chosen"] != chosen[1]["chosen"]
    assert changed


limits = st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(1, 4))


@settings(max_examples=20)
@given(was=limits, now=limits, seed=st.integers(0, 50))
def test_a_tree_is_restricted_to_what_would_have_been_drafted_or_not_at_all(was, now, seed):
    probs = random_probs(8, seed)

    def drafted(limits: speclab.DraftHead) -> DraftTree:
        pair = table_pair(probs, probs, 8)
        return best_first(limits, ModelForward(pair.draft, "draft", 8), Context(PROMPT, 99, lambda: None)).tree

    before, after = (speclab.DraftHead(node_budget=one[0], depth=one[1], children=one[2]) for one in (was, now))
    left = after.restrict(drafted(before), before)
    if left is not None:
        assert columns(left) == columns(drafted(after))
    less = now[0] <= was[0] and now[1:] == was[1:]
    assert left is not None or not less


def test_a_record_of_what_was_right_lately_answers_for_both_statistics():
    run, weighing = dual_run(confidence="recent"), 0
    for step in run.steps:
        by_mean = in_force(step).changed(confidence="mean")
        assert_agrees(what_if(step, by_mean), forked(run, step, by_mean), events=False)
        was, less = in_force(step), in_force(step).changed(node_budget=7)
        trees = [less.part(place).restrict(one.tree, was.part(place)) for place, one in enumerate(step.proposals)]
        recent = [step.adaptation.before[f"recent_{name}"] for name in ("first", "second")]
        scores = [weighed(confidence(tree), right) for tree, right in zip(trees, recent, strict=True)]
        assert columns(what_if(step, less).tree) == columns(trees[int(scores[1] > scores[0])])
        weighing += (scores[1] > scores[0]) != (confidence(trees[1]) > confidence(trees[0]))
    assert weighing, "what was right lately decides somewhere"


PARTS = {
    "first": speclab.DynaTree(base_depth=3, prune_probability=0, history="off"),
    "second": speclab.PromptLookup(),
}


def test_one_part_alone_answers_as_it_does_by_itself():
    run = finished(table_pair(PROBS, PROBS, 8), speclab.DualDraft(mode="first", **PARTS), tokens=20)
    for step in run.steps:
        other = in_force(step).changed(first=PARTS["first"].changed(node_budget=5))
        assert_agrees(what_if(step, other), forked(run, step, other), events=False)
    with pytest.raises(NotRecordedError, match="FixedTree drafts in another way"):
        what_if(run.steps[0], in_force(run.steps[0]).changed(first=speclab.FixedTree()))


@pytest.mark.parametrize(
    ("chosen", "changes", "sentence"),
    [
        ({}, {"confidence": "recent"}, "only while trees are compared by it"),
        ({}, {"node_budget": 13}, "a smaller budget leaves of the most probable"),
        ({}, {"children": 3}, "a smaller budget leaves of the most probable"),
        ({"mode": "first"}, {"mode": "merge"}, "one tree alone"),
        (PARTS, {"first": speclab.DynaTree(base_depth=2)}, "of the tree of DynaTree the record holds the nodes alone"),
    ],
    ids=str,
)
def test_what_dual_draft_does_not_record_is_refused_in_one_sentence(chosen, changes, sentence):
    pair = table_pair(PROBS, PROBS, 8) if chosen is PARTS else DUAL["route"].pair
    step = Session(pair, speclab.DualDraft(**(SMALL | chosen)), PROMPT, max_new_tokens=30).step()
    with pytest.raises(NotRecordedError, match=sentence):
        what_if(step, in_force(step).changed(**changes))
    with pytest.raises(NotRecordedError, match="DualDraft drafts does not follow"):
        what_if(Session(table_pair(PROBS, PROBS, 8), speclab.FixedTree(), PROMPT).step(), in_force(step))


# Sequoia: the shape from the rates it recorded, the tokens from what was looked up.

SOURCED = mixed_probs(random_probs(12, 3), lambda path: random_probs(12, 4)(path[-1:]), 0.8)
REPEATS = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4, 3]
sources = pytest.mark.parametrize("source", ["transitions", "draft"])


def sequoia_run(source: str, context: int | None = None, tokens: int = 40, **chosen: object) -> Session:
    strategy = speclab.SequoiaTree(**({"source": source, "node_budget": 14, "depth": 4, "successors": 4} | chosen))
    draft = mixed_probs(SOURCED, random_probs(12, 5), 0.2) if source == "draft" else None
    return finished(table_pair(SOURCED, draft, 12, context=context), strategy, REPEATS, tokens)


SEQUOIA = {source: sequoia_run(source) for source in ("transitions", "draft")}


def with_all_learned(run: Session, step: Step, strategy: speclab.SequoiaTree) -> Step:
    """What these settings draft here, with the rates measured by then, which a fork would have to measure anew."""
    twin = run.fork(at=step.index)
    twin._decoding.drafter.settings = strategy
    return twin.step()


def assert_sequoia(found: WhatIf, real: Step) -> None:
    assert_agrees(found, real)
    assert paths(found.tree) <= paths(real.tree), "its shape leaves no node's place to another"


@sources
def test_a_sequoia_step_s_own_settings_give_its_own_tree(source):
    for step in SEQUOIA[source].steps:
        found = what_if(step, in_force(step))
        assert_sequoia(found, step)
        assert (found.unknown, found.settled) == ((), True)


@sources
@settings(max_examples=8)
@given(budget=st.integers(1, 24), depth=st.integers(1, 6))
def test_another_budget_or_depth_gives_the_tree_it_would_have_drafted(source, budget, depth):
    run = SEQUOIA[source]
    for step in run.steps[::3]:
        other = in_force(step).changed(node_budget=budget, depth=depth)
        assert_sequoia(what_if(step, other), with_all_learned(run, step, other))


def test_a_smaller_budget_is_mostly_known():
    steps = SEQUOIA["draft"].steps
    smaller = [what_if(step, in_force(step).changed(node_budget=budget)) for step in steps for budget in range(1, 14)]
    assert sum(not found.unknown for found in smaller) > 0.8 * len(smaller)


def test_given_rates_give_the_tree_of_a_fork():
    run, known = SEQUOIA["draft"], 0
    for rates in ("0.9", "0.5 0.4", "0.3 0.3 0.3 0.3", "0.2, 0.1"):
        for step in run.steps:
            other = in_force(step).changed(rank_acceptance=rates, node_budget=9, successors=3)
            found = what_if(step, other)
            assert_sequoia(found, forked(run, step, other))
            known += not found.unknown
    assert known > len(run.steps)


def test_rows_of_the_table_are_recorded_whole():
    """A row with fewer successors than the shape asks for lacks nothing; one never looked up is unknown."""
    run = sequoia_run("transitions", rank_acceptance="0.5, 0.2")
    for step in run.steps:
        wide = in_force(step).changed(rank_acceptance="0.3, 0.3, 0.3, 0.3", depth=1)
        found = what_if(step, wide)
        assert found.unknown == ()
        assert_sequoia(found, with_all_learned(run, step, wide))
    deep = [what_if(step, in_force(step).changed(rank_acceptance="0.9", depth=8)) for step in run.steps]
    assert any(other.unknown for other in deep)


def test_where_the_context_ends_the_record_says_so():
    run = sequoia_run("draft", context=len(REPEATS) + 24, tokens=24, depth=16, rank_acceptance="0.9")
    assert any("the context" in event.reason for step in run.steps for event in step.events)
    assert all(what_if(step, in_force(step)).unknown == () for step in run.steps)


@pytest.mark.parametrize(
    ("source", "changes", "sentence"),
    [
        ("draft", {"source": "transitions"}, "another draft"),
        ("transitions", {"source": "draft"}, "another draft"),
        ("transitions", {"successors": 5}, "with another successors the table of transitions"),
        ("transitions", {"carry": "carried"}, "with another carry"),
    ],
)
def test_what_would_have_asked_another_or_learned_otherwise_is_refused(source, changes, sentence):
    step = SEQUOIA[source].steps[2]
    with pytest.raises(NotRecordedError, match=sentence):
        what_if(step, in_force(step).changed(**changes))


def test_a_tree_of_another_strategy_tells_none_of_the_rates():
    step = Session(table_pair(PROBS, PROBS, 8), speclab.FixedTree(depth=2), PROMPT, max_new_tokens=9).step()
    with pytest.raises(NotRecordedError, match="SequoiaTree drafts does not follow"):
        what_if(step, speclab.SequoiaTree(source="draft"))
