"""A tree that was not drafted, drawn over the one that was."""

from __future__ import annotations

import re

import pytest
from sessions import PROMPT
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.analysis.whatif import in_force, what_if
from speclab.trace.records import Step
from speclab.views.draft_tree import tree_svg
from speclab.views.whatif_tree import ghost_svg, whatif_sentence

TARGET = random_probs(24, 3, low=0.5, high=2.5)
DRAFT = mixed_probs(TARGET, random_probs(24, 4), 0.15)


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    run = speclab.Session(
        table_pair(TARGET, DRAFT, 24), speclab.FixedTree(depth=3, branching=2), PROMPT, max_new_tokens=24
    )
    run.run()
    return run.steps


def drawn(svg: str) -> list[int]:
    return [int(node) for node in re.findall(r'data-node="(\d+)"', svg)]


def struck(svg: str) -> list[int]:
    return [int(node) for node in re.findall(r'sl-struck"><g data-node="(\d+)"', svg)]


def test_what_would_be_gone_is_struck_out_and_nothing_else_changes_its_place(steps):
    step = steps[0]
    found = what_if(step, in_force(step).changed(depth=2))
    svg = ghost_svg(step, found)
    assert drawn(svg) == list(range(15))
    assert sorted(struck(svg)) == list(range(7, 15))
    assert svg.count("would not be drafted") == 1 + len(struck(svg))
    same = ghost_svg(step, what_if(step, in_force(step)))
    assert drawn(same) == drawn(tree_svg(step))
    assert not struck(same)


def test_what_would_be_new_is_told_apart_and_where_the_record_ends_there_is_a_question_mark(steps):
    step = steps[0]
    svg = ghost_svg(step, what_if(step, in_force(step).changed(branching=3)))
    assert len(drawn(svg)) > 15
    assert svg.count("would be drafted as well") == len(drawn(svg)) - 15
    assert "→ ?" in svg
    assert "would be new" in svg


def test_the_path_is_the_one_the_target_would_take(steps):
    step = next(step for step in steps if len(step.accepted) == 3)
    found = what_if(step, in_force(step).changed(depth=1))
    assert whatif_sentence(step, found) == (
        "What this iteration's tree would have been: 3 nodes instead of 15, 1 accepted instead of 3."
    )
    assert found.bonus is not None
    assert f"id {found.bonus}" in ghost_svg(step, found)
    assert "bonus: the target" in ghost_svg(step, found)


def test_the_sentence_says_where_the_record_ends(steps):
    step = steps[0]
    wider = whatif_sentence(step, what_if(step, in_force(step).changed(branching=3)))
    assert "as far as the record knows" in wider
    assert "a new node" in wider
    deeper = whatif_sentence(step, what_if(step, in_force(step).changed(depth=4)))
    assert "the record does not hold what the draft says behind them" in deeper
    assert "Node 7" in deeper
    assert "and 5 more would have more children" in deeper
    same = whatif_sentence(step, what_if(step, in_force(step)))
    assert same.startswith("This iteration's tree would have been the same: 15")


def test_every_step_and_every_change_can_be_drawn(steps):
    for step in steps:
        for changes in (
            {"depth": 1},
            {"branching": 1},
            {"branching": 8},
            {"node_budget": 4},
            {"prune_probability": 0.2},
        ):
            found = what_if(step, in_force(step).changed(**changes))
            svg = ghost_svg(step, found, selected=2)
            assert len(drawn(svg)) == len(step.tree) + found.recorded.count(None) or "nodes are folded" in svg
