"""A tree that was not drafted, drawn over the one that was: what would be gone, new, or is not in the record."""

from __future__ import annotations

import pytest
from sessions import PROMPT
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.analysis.whatif import in_force, what_if
from speclab.trace.records import Step
from speclab.views.draft_tree import tree_spec
from speclab.views.figures import figure
from speclab.views.whatif_tree import whatif_sentence, whatif_spec

TARGET = random_probs(24, 3, low=0.5, high=2.5)
DRAFT = mixed_probs(TARGET, random_probs(24, 4), 0.15)


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    strategy = speclab.FixedTree(depth=3, branching=2)
    run = speclab.Session(table_pair(TARGET, DRAFT, 24), strategy, PROMPT, max_new_tokens=24)
    run.run()
    return run.steps


def placed(spec) -> dict[str, tuple[str, float, float]]:
    """Where each node and the target's own token is drawn, and as what, by the first line of its tooltip."""
    return {
        hover: (trace["name"], x, y)
        for trace in spec["data"] if trace.get("meta") == {"click": "node"}
        for hover, x, y in zip(trace["hovertext"], trace["x"], trace["y"], strict=True)
    }  # fmt: skip


def seen(step: Step, **changes):
    """The picture and the sentence of what these changes would have made."""
    found = what_if(step, in_force(step).changed(**changes))
    return found, whatif_spec(step, found), whatif_sentence(step, found)


def test_what_would_be_gone_or_new_is_told_apart(steps):
    now = placed(tree_spec(steps[0]))
    _, spec, _ = seen(steps[0], depth=2)
    assert [kind for kind, *_ in placed(spec).values()].count("would not be drafted") == 8, "the lowest level"
    assert sum("would not be drafted" in hover for hover in placed(spec)) == 8
    struck = next(trace for trace in spec["data"] if trace["name"] == "struck labels")
    assert struck["textfont"]["lineposition"] == "through"
    _, spec, said = seen(steps[0])
    assert placed(spec) == now
    assert "would have been the same: 15" in said
    _, spec, said = seen(steps[0], branching=3)
    new = sum("would be drafted as well" in hover for hover in placed(spec))
    assert new == len(placed(spec)) - 16 > 0
    assert len(next(trace for trace in spec["data"] if trace["name"] == "changed, selected")["x"]) == new
    assert any("→ ?" in trace.get("text", ()) for trace in spec["data"])
    assert "as far as the record knows" in said
    said = seen(steps[0], depth=4)[-1]
    for fact in ("the record does not hold what the draft says", "Node 7", "and 5 more"):
        assert fact in said


def test_nodes_keep_their_places_while_a_threshold_moves(steps):
    def nodes(spec):
        found = [trace for trace in spec["data"] if trace.get("meta") == {"click": "node"}]
        return {row[0]: row[1:] for t in found for row in zip(t["customdata"], t["x"], t["y"], strict=True)}

    for step in steps[:4]:
        whole = nodes(seen(step)[1])
        for changes in ({"depth": 1}, {"node_budget": 6}, {"prune_probability": 0.3}):
            now = nodes(seen(step, **changes)[1])
            assert all(now[node][0] == whole[node][0] for node in whole if node is not None)
            assert now.keys() == whole.keys()


def test_the_path_is_the_one_the_target_would_take(steps):
    found, spec, said = seen(next(step for step in steps if len(step.accepted) == 3), depth=1)
    assert "3 nodes instead of 15, 1 accepted instead of 3" in said
    assert any(f"id {found.bonus}" in hover and "own token" in hover for hover in placed(spec))


def test_every_step_and_every_change_can_be_drawn(steps):
    changes = {"depth": 1}, {"branching": 1}, {"branching": 8}, {"node_budget": 4}, {"prune_probability": 0.2}
    for change in changes:
        for step in steps[::3]:
            found, spec, _ = seen(step, **change)
            figure(spec)
            folded = any("folded here" in hover for hover in placed(spec))
            own = found.bonus is not None
            assert folded or len(placed(spec)) == len(step.tree) + found.recorded.count(None) + own
