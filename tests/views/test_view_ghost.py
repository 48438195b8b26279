"""A tree that was not drafted, drawn over the one that was: what would be gone, new, or is not in the record."""

from __future__ import annotations

import pytest
from sessions import PROMPT
from table_runner import mixed_probs, random_probs, table_pair
from view_samples import parse

import speclab
from speclab.analysis.whatif import in_force, what_if
from speclab.trace.records import Step
from speclab.views.draft_tree import tree_svg
from speclab.views.whatif_tree import ghost_svg, whatif_sentence

TARGET = random_probs(24, 3, low=0.5, high=2.5)
DRAFT = mixed_probs(TARGET, random_probs(24, 4), 0.15)


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    strategy = speclab.FixedTree(depth=3, branching=2)
    run = speclab.Session(table_pair(TARGET, DRAFT, 24), strategy, PROMPT, max_new_tokens=24)
    run.run()
    return run.steps


def drawn(svg: str) -> list[int]:
    nodes = [int(mark.get("data-node", -1)) for mark in parse(svg).iter()]
    return [node for node in nodes if node >= 0]


def seen(step: Step, **changes):
    """The picture and the sentence of what these changes would have made."""
    found = what_if(step, in_force(step).changed(**changes))
    return found, ghost_svg(step, found), whatif_sentence(step, found)


def test_what_would_be_gone_or_new_is_told_apart(steps):
    _, svg, _ = seen(steps[0], depth=2)
    assert drawn(svg) == list(range(15))
    assert svg.count("would not be drafted") == 8 + 1, "the lowest level, and the legend"
    _, svg, said = seen(steps[0])
    assert drawn(svg) == drawn(tree_svg(steps[0]))
    assert "would not be drafted" not in svg
    assert "would have been the same: 15" in said
    _, svg, said = seen(steps[0], branching=3)
    assert svg.count("would be drafted as well") == len(drawn(svg)) - 15 > 0
    assert "→ ?" in svg
    assert "as far as the record knows" in said


def test_the_path_is_the_one_the_target_would_take(steps):
    found, svg, said = seen(next(step for step in steps if len(step.accepted) == 3), depth=1)
    assert "3 nodes instead of 15, 1 accepted instead of 3" in said
    assert f"id {found.bonus}" in svg


def test_the_sentence_says_where_the_record_ends(steps):
    _, _, said = seen(steps[0], depth=4)
    for fact in ("the record does not hold what the draft says", "Node 7", "and 5 more"):
        assert fact in said


def test_every_step_and_every_change_can_be_drawn(steps):
    changes = {"depth": 1}, {"branching": 1}, {"branching": 8}, {"node_budget": 4}, {"prune_probability": 0.2}
    for change in changes:
        for step in steps[::3]:
            found, svg, _ = seen(step, **change)
            assert len(drawn(svg)) == len(step.tree) + found.recorded.count(None) or "nodes are folded" in svg
