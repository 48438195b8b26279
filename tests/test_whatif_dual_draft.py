"""What Dual-Draft Routing would have had verified, from both recorded trees, held against forks that drafted again."""

from __future__ import annotations

import pytest
from dual_pairs import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st
from table_runner import mixed_law, random_law, table_pair

import speclab
from speclab.analysis.whatif import WhatIf, in_force, what_if
from speclab.drafters.base import Context
from speclab.drafters.best_first import Limits, best_first, restrict
from speclab.drafters.draft_forward import DraftForward
from speclab.drafters.scores import confidence, weighed
from speclab.engine.session import Session
from speclab.errors import NotRecordedError
from speclab.models.pair import ModelPair
from speclab.trace.records import Step
from speclab.tree import DraftTree

VOCAB = 8
PROMPT = [1, 2, 3]
LAW = random_law(VOCAB, 4, low=0.5, high=2.5)


def pair_of() -> ModelPair:
    heads = tuple(table_pair(mixed_law(LAW, random_law(VOCAB, seed), 0.4), None, VOCAB).target for seed in (5, 6))
    return ModelPair(table_pair(LAW, None, VOCAB).target, heads=heads, name="tables")


def run_of(pair: ModelPair | None = None, **chosen: object) -> Session:
    run = Session(pair or pair_of(), speclab.DualDraft(**(SMALL | chosen)), PROMPT, max_new_tokens=30)
    run.run()
    return run


def assert_agrees(found: WhatIf, real: Step) -> None:
    assert same(found.tree, real.tree)
    assert found.unknown == ()
    assert real.accepted[: len(found.accepted)] == found.accepted
    if found.settled:
        assert found.accepted == real.accepted
        assert found.bonus in {real.bonus, None}


def same(one: DraftTree, other: DraftTree) -> bool:
    rows = [(tree.token.tolist(), tree.parent.tolist(), tree.log_prob.tolist()) for tree in (one, other)]
    return rows[0] == rows[1]


RUNS = {mode: run_of(mode=mode) for mode in ("route", "merge")}


@pytest.mark.parametrize("mode", ["route", "merge", "first", "second"])
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_another_mode_verifies_what_a_fork_would_have(run, mode):
    least = 0
    for step in run.steps:
        other = in_force(step).changed(mode=mode)
        real = run.fork(at=step.index, strategy=other).step()
        found = what_if(step, other)
        assert_agrees(found, real)
        least += found.accepted == real.accepted
    assert least > len(run.steps) / 2


@pytest.mark.parametrize("mode", ["route", "merge"])
@settings(max_examples=15)
@given(budget=st.integers(1, 12))
def test_a_smaller_budget_cuts_both_trees_and_may_change_the_choice(mode, budget):
    for step in RUNS[mode].steps[:4]:
        other = in_force(step).changed(node_budget=budget)
        real = RUNS[mode].fork(at=step.index, strategy=other).step()
        found = what_if(step, other)
        assert_agrees(found, real)
        route = found.events[0]
        assert (route.kind, route.reason, route.values) == ("route", real.events[0].reason, real.events[0].values)


def test_the_choice_does_change_with_the_budget():
    changed = 0
    for step in RUNS["route"].steps:
        chosen = [what_if(step, in_force(step).changed(node_budget=budget)).events[0].values for budget in (2, 12)]
        changed += chosen[0]["chosen"] != chosen[1]["chosen"]
    assert changed


@settings(max_examples=40)
@given(
    was=st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(1, 4)),
    now=st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 50),
)
def test_a_tree_is_cut_to_what_would_have_been_drafted_or_not_at_all(was, now, seed):
    law = random_law(VOCAB, seed)

    def drafted(limits: Limits) -> DraftTree:
        pair = table_pair(law, law, VOCAB)
        return best_first(limits, DraftForward(pair.draft, 8), Context(PROMPT, 99, lambda: None), "draft").tree

    left = restrict(drafted(Limits(*was)), Limits(*was), Limits(*now))
    if left is not None:
        assert same(left, drafted(Limits(*now)))
    less = now[0] <= was[0] and now[1:] == was[1:]
    assert left is not None or not less


def test_a_record_of_what_was_right_lately_answers_for_both_statistics():
    run, weighing = run_of(confidence="recent"), 0
    for step in run.steps:
        by_mean = in_force(step).changed(confidence="mean")
        assert_agrees(what_if(step, by_mean), run.fork(at=step.index, strategy=by_mean).step())
        less = in_force(step).changed(node_budget=7)
        trees = [
            less.part(place).restrict(one.tree, in_force(step).part(place)) for place, one in enumerate(step.proposals)
        ]
        recent = [step.adaptation.before[f"recent_{name}"] for name in ("first", "second")]
        scores = [weighed(confidence(tree), right) for tree, right in zip(trees, recent, strict=True)]
        assert same(what_if(step, less).tree, trees[int(scores[1] > scores[0])])
        weighing += (scores[1] > scores[0]) != (confidence(trees[1]) > confidence(trees[0]))
    assert weighing, "what was right lately decides somewhere"


PARTS = {"first": speclab.DynaTree(base_depth=3, prune_probability=0, history="off"), "second": speclab.PromptLookup()}


def test_one_part_alone_answers_as_it_does_by_itself():
    run = Session(table_pair(LAW, LAW, VOCAB), speclab.DualDraft(mode="first", **PARTS), PROMPT, max_new_tokens=20)
    run.run()
    for step in run.steps:
        other = in_force(step).changed(first=PARTS["first"].changed(node_budget=5))
        assert_agrees(what_if(step, other), run.fork(at=step.index, strategy=other).step())
    with pytest.raises(NotRecordedError, match="FixedTree drafts in another way"):
        what_if(run.steps[0], in_force(run.steps[0]).changed(first=speclab.FixedTree()))


@pytest.mark.parametrize(
    ("chosen", "changes", "sentence"),
    [
        ({}, {"confidence": "recent"}, "only while trees are compared by it"),
        ({}, {"node_budget": 13}, "a smaller budget leaves of the likeliest"),
        ({}, {"children": 3}, "a smaller budget leaves of the likeliest"),
        ({"mode": "first"}, {"mode": "merge"}, "one tree alone"),
        (PARTS, {"first": speclab.DynaTree(base_depth=2)}, "of the tree of DynaTree the record holds the nodes alone"),
    ],
    ids=str,
)
def test_what_is_not_recorded_is_refused_in_one_sentence(chosen, changes, sentence):
    pair = table_pair(LAW, LAW, VOCAB) if chosen is PARTS else pair_of()
    step = Session(pair, speclab.DualDraft(**(SMALL | chosen)), PROMPT, max_new_tokens=30).step()
    with pytest.raises(NotRecordedError, match=sentence):
        what_if(step, in_force(step).changed(**changes))
    with pytest.raises(NotRecordedError, match="DualDraft drafts does not follow"):
        what_if(Session(table_pair(LAW, LAW, 8), speclab.FixedTree(), PROMPT).step(), in_force(step))
