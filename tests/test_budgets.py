"""The choice of a budget: the best of all subtrees, found by trying them; learned rates; curves that never fall."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import draft_trees

from speclab.costs.budget import LEAST, MOST, Reach, choose, sibling_ranks
from speclab.costs.curve import MODELLED, Curve, modelled, never_falling, seconds_by_rows
from speclab.drafters.base import Outcome
from speclab.tree import DraftTree

TREE = DraftTree.of([1, 2, 3, 4, 5], [-1, 0, 0, 1, 1], [0.0, -0.5, -2.0, -0.1, -3.0], "draft")
NO_LOGITS = torch.zeros((5, 8))


def closed_subsets(parents: list[int]) -> list[set[int]]:
    """Every set of nodes with the root that holds the parent of each."""
    found = [{0}]
    for node, parent in enumerate(parents[1:], start=1):
        found += [kept | {node} for kept in found if parent in kept]
    return found


@st.composite
def weighed_trees(draw: st.DrawFn) -> tuple[list[int], np.ndarray, np.ndarray, float]:
    parents = draw(draft_trees(max_nodes=9)).parent.tolist()
    count = len(parents)
    share = draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    reach = np.array(share)
    for node, parent in enumerate(parents[1:], start=1):
        reach[node] *= reach[parent]
    steps = draw(st.lists(st.floats(0, 2), min_size=count, max_size=count))
    return parents, reach, 1 + np.cumsum(steps), draw(st.floats(0, 3))


@given(weighed_trees(), st.booleans())
def test_no_subtree_is_better(made, verified_root):
    parents, reach, seconds, spent = made
    gain = [0.0 if verified_root and node == 0 else float(prob) for node, prob in enumerate(reach)]

    def rate(kept: set[int]) -> float:
        return (1 + sum(gain[node] for node in kept)) / (spent + seconds[len(kept) - 1])

    choice = choose(reach, seconds, spent, verified_root=verified_root)
    chosen = set(np.flatnonzero(choice.keep).tolist())
    assert chosen in closed_subsets(parents)
    assert choice.rate == pytest.approx(max(map(rate, closed_subsets(parents))))
    assert choice.rate == pytest.approx(rate(chosen))
    assert choice.seconds == pytest.approx(spent + seconds[len(chosen) - 1])


def test_a_machine_whose_rows_are_free_verifies_all_and_a_dear_one_few():
    reach = np.array([1.0, 0.6, 0.3, 0.2, 0.05])
    kept = {
        name: int(choose(reach, modelled(name, 1.0, 5)[1:], 0.0, verified_root=True).keep.sum()) for name in MODELLED
    }
    assert kept["wide GPU"] == 5
    assert kept["slow CPU"] == 2


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=12))
def test_a_curve_never_falls_and_keeps_its_mean(values):
    smooth = never_falling(values)
    assert (np.diff(smooth) >= -1e-12).all()
    assert smooth.mean() == pytest.approx(np.mean(values))
    assert (never_falling(sorted(values)) == sorted(values)).all()


def test_between_sizes_a_line_and_beyond_the_last_the_same_line():
    curve = Curve(name="made", rows=(1, 3, 5), seconds=(2.0, 4.0, 3.0), prefix=0, rounds=1)
    assert seconds_by_rows(curve, 5).tolist() == [0, 2, 2.75, 3.5, 3.5, 3.5]
    rising = Curve(name="made", rows=(1, 3), seconds=(2.0, 3.0), prefix=0, rounds=1)
    assert seconds_by_rows(rising, 5).tolist() == [0, 2, 2.5, 3, 3.5, 4]


@pytest.mark.parametrize("rows", [(), (2, 3), (1, 1), (1, 4, 2)])
def test_a_curve_that_is_none_is_refused(rows):
    with pytest.raises(ValueError, match=r"rows|curve"):
        Curve(name="made", rows=rows, seconds=(1.0,) * len(rows), prefix=0, rounds=1)


def test_places_among_siblings():
    assert sibling_ranks(np.array([-1, 0, 0, 0, 1, 1, 3])).tolist() == [0, 0, 1, 2, 0, 1, 0]


# What outcomes teach


def reach_of(reach: Reach, tree: DraftTree = TREE) -> list[float]:
    return reach.of(tree.parent, tree.log_prob, tree.source, verified_root=True).tolist()


def test_a_prior_is_between_bounds_and_no_node_is_likelier_than_its_parent():
    before = reach_of(Reach())
    assert before[0] == 1
    for node, parent in enumerate(TREE.parent.tolist()[1:], start=1):
        assert 0 < before[node] < before[parent]


def test_what_is_right_becomes_likelier_and_what_is_wrong_less():
    outcome = Outcome(TREE, (1, 3), (2, 4, 7), NO_LOGITS, NO_LOGITS[:0])
    reach, before = Reach(), reach_of(Reach())
    for _ in range(200):
        reach = reach.after(outcome, verified_root=True)
    after = reach_of(reach)
    assert after[1] > before[1]
    assert after[3] / after[1] == pytest.approx(MOST, abs=0.05)
    assert after[2] < before[2]
    assert min(after) >= LEAST**2
    assert reach.onward == pytest.approx(1, abs=0.02)


def test_only_what_the_walk_came_to_teaches():
    """Node 3 and 4 hang below a rejected one."""
    reach = Reach()
    for _ in range(20):
        reach = reach.after(Outcome(TREE, (), (7,), NO_LOGITS, NO_LOGITS[:0]), verified_root=True)
    before, after = reach_of(Reach()), reach_of(reach)
    assert after[1] < before[1]
    assert after[3] / after[1] == pytest.approx(before[3] / before[1])
    assert Reach().sources == {}


def test_sources_learn_apart():
    two = DraftTree.of([1, 2, 3], [-1, 0, 0], [0.0, -1.0, -1.0], ["target", "copy", "table"])
    reach = Reach().after(Outcome(two, (1,), (2, 5), NO_LOGITS[:3], NO_LOGITS[:0]), verified_root=True)
    assert set(reach.sources) == {"copy", "table"}
    assert reach_of(reach, two)[1] > reach_of(Reach(), two)[1]
    assert reach_of(reach, two)[2] < reach_of(Reach(), two)[2]


def test_a_drafted_root_is_tried_too():
    reach = Reach()
    for _ in range(50):
        reach = reach.after(Outcome(TREE, (), (7,), NO_LOGITS, NO_LOGITS[:0]), verified_root=False)
    judged = reach.of(TREE.parent, TREE.log_prob, TREE.source, verified_root=False)
    assert judged[0] < 0.2
