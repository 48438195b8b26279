"""Sequoia's trees grown again from the record: the shape from the rates it told, the tokens from what was looked up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_runner import mixed_law, random_law, table_pair

import speclab
from speclab.analysis.whatif import WhatIf, in_force, what_if
from speclab.engine.session import Session
from speclab.errors import NotRecordedError
from speclab.trace.records import Step
from speclab.tree import DraftTree

VOCAB = 12
LAW = mixed_law(random_law(VOCAB, 3), lambda path: random_law(VOCAB, 4)(path[-1:]), 0.8)
DRAFT = mixed_law(LAW, random_law(VOCAB, 5), 0.2)
PROMPT = [5, 9, 2, 4, 3, 7, 7, 1, 5, 9, 2, 4, 3]
sources = pytest.mark.parametrize("source", ["transitions", "draft"])


def run_of(source: str, context: int | None = None, tokens: int = 40, **chosen: object) -> Session:
    strategy = speclab.SequoiaTree(**({"source": source, "node_budget": 14, "depth": 4, "successors": 4} | chosen))
    pair = table_pair(LAW, DRAFT if source == "draft" else None, VOCAB, context=context)
    run = Session(pair, strategy, PROMPT, max_new_tokens=tokens)
    run.run()
    return run


def really(run: Session, step: Step, strategy: speclab.SequoiaTree) -> Step:
    """What these settings draft here, with all that was learned by then."""
    twin = run.fork(at=step.index)
    twin._decoding.drafter.settings = strategy
    return twin.step()


def paths(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(tree.token[list(tree.path(node))].tolist()) for node in range(len(tree))}


def assert_agrees(found: WhatIf, real: Step) -> None:
    if found.unknown:
        assert paths(found.tree) <= paths(real.tree)
        return
    assert found.tree.token.tolist() == real.tree.token.tolist()
    assert found.tree.parent.tolist() == real.tree.parent.tolist()
    assert found.tree.log_prob.tolist() == pytest.approx(real.tree.log_prob.tolist(), abs=1e-6)
    assert [(e.kind, e.node, e.reason) for e in found.events] == [(e.kind, e.node, e.reason) for e in real.events]
    if found.settled:
        assert (found.accepted, found.bonus) in {(real.accepted, real.bonus), (real.accepted, None)}
    else:
        assert found.accepted == real.accepted[: len(found.accepted)]


@sources
def test_a_step_s_own_settings_give_its_own_tree(source):
    run = run_of(source)
    for step in run.steps:
        found = what_if(step, in_force(step))
        assert_agrees(found, step)
        assert found.unknown == ()
        assert found.settled


@sources
@settings(max_examples=20)
@given(budget=st.integers(1, 24), depth=st.integers(1, 6))
def test_another_budget_or_depth_gives_the_tree_it_would_have_drafted(source, budget, depth):
    """With the rates measured by then, which a fork with other settings would have to measure anew."""
    run = RUNS[source]
    for step in run.steps[::3]:
        other = in_force(step).changed(node_budget=budget, depth=depth)
        assert_agrees(what_if(step, other), really(run, step, other))


def test_a_smaller_budget_is_mostly_known():
    steps = RUNS["draft"].steps
    smaller = [what_if(step, in_force(step).changed(node_budget=budget)) for step in steps for budget in range(1, 14)]
    assert sum(not found.unknown for found in smaller) > 0.8 * len(smaller)


RUNS = {source: run_of(source) for source in ("transitions", "draft")}


def test_given_rates_give_the_tree_of_a_fork():
    run, known = RUNS["draft"], 0
    for rates in ("0.9", "0.5 0.4", "0.3 0.3 0.3 0.3", "0.2, 0.1"):
        for step in run.steps:
            other = in_force(step).changed(rank_acceptance=rates, node_budget=9, successors=3)
            found = what_if(step, other)
            assert_agrees(found, run.fork(at=step.index, strategy=other).step())
            known += not found.unknown
    assert known > len(run.steps)


def test_rows_of_the_table_are_recorded_whole():
    """A row with fewer successors than the shape asks for lacks nothing; one never looked up is unknown."""
    run = run_of("transitions", rank_acceptance="0.5, 0.2")
    wide = "0.3, 0.3, 0.3, 0.3"
    found = [(step, what_if(step, in_force(step).changed(rank_acceptance=wide, depth=1))) for step in run.steps]
    for step, other in found:
        assert other.unknown == ()
        assert_agrees(other, really(run, step, in_force(step).changed(rank_acceptance=wide, depth=1)))
    deep = [what_if(step, in_force(step).changed(rank_acceptance="0.9", depth=8)) for step in run.steps]
    assert any(other.unknown for other in deep)


def test_where_the_context_ends_the_record_says_so():
    run = run_of("draft", context=len(PROMPT) + 24, tokens=24, depth=16, rank_acceptance="0.9")
    assert any("the context" in event.reason for step in run.steps for event in step.events)
    for step in run.steps:
        assert what_if(step, in_force(step)).unknown == ()


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
    step = RUNS[source].steps[2]
    with pytest.raises(NotRecordedError, match=sentence):
        what_if(step, in_force(step).changed(**changes))


def test_a_tree_of_another_strategy_tells_none_of_the_rates():
    step = Session(table_pair(LAW, DRAFT, VOCAB), speclab.FixedTree(depth=2), PROMPT, max_new_tokens=9).step()
    with pytest.raises(NotRecordedError, match="SequoiaTree drafts does not follow"):
        what_if(step, speclab.SequoiaTree(source="draft"))
