"""The choice of a budget: the best of all subtrees, found by trying them; learned rates; curves that never fall."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import draft_trees

from speclab.costs.budget import KINDS, LEAST, MOST, SLACK, AcceptanceModel, choose, sibling_ranks
from speclab.costs.curve import Curve, never_falling, seconds_by_rows
from speclab.drafters.base import Outcome
from speclab.tree import DraftTree

TREE = DraftTree.of([1, 2, 3, 4, 5], [-1, 0, 0, 1, 1], [0.0, -0.5, -2.0, -0.1, -3.0], "draft")


def closed_subsets(parents: list[int]) -> list[set[int]]:
    """Every set of nodes with the root that holds the parent of each."""
    found = [{0}]
    for node, parent in enumerate(parents[1:], start=1):
        found += [kept | {node} for kept in found if parent in kept]
    return found


@st.composite
def weighted_trees(draw: st.DrawFn) -> tuple[list[int], np.ndarray, np.ndarray, float]:
    parents = draw(draft_trees(max_nodes=9)).parent.tolist()
    count = len(parents)
    probs = np.array(draw(st.lists(st.floats(0, 1), min_size=count, max_size=count)))
    for node, parent in enumerate(parents[1:], start=1):
        probs[node] *= probs[parent]
    steps = draw(st.lists(st.floats(0, 2), min_size=count, max_size=count))
    return parents, probs, 1 + np.cumsum(steps), draw(st.floats(0, 3))


@given(weighted_trees(), st.booleans())
def test_no_subtree_is_better(made, verified_root):
    parents, probs, seconds, drafting = made
    gain = [0.0 if verified_root and node == 0 else float(prob) for node, prob in enumerate(probs)]

    def rate(kept: set[int]) -> float:
        return (1 + sum(gain[node] for node in kept)) / (drafting + seconds[len(kept) - 1])

    choice = choose(probs.tolist(), seconds.tolist(), drafting, verified_root=verified_root)
    chosen = set(np.flatnonzero(choice.keep).tolist())
    assert chosen in closed_subsets(parents)
    best = max(map(rate, closed_subsets(parents)))
    assert (1 - SLACK) * best - 1e-9 <= choice.rate <= best + 1e-9
    assert choice.rate == pytest.approx(rate(chosen))
    assert choice.seconds == pytest.approx(drafting + seconds[len(chosen) - 1])


def test_a_machine_whose_rows_are_free_verifies_all_and_one_whose_rows_are_costly_few():
    probs = [1.0, 0.6, 0.3, 0.2, 0.05]
    free, costly = ([1 + share * node for node in range(5)] for share in (0.001, 0.4))
    assert all(choose(probs, free, 0.0, verified_root=True).keep)
    assert sum(choose(probs, costly, 0.0, verified_root=True).keep) == 2


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
    assert seconds_by_rows(rising, 5000)[-1] == pytest.approx(2 + 4999 / 2)


@pytest.mark.parametrize("rows", [(), (2, 3), (1, 1), (1, 4, 2)])
def test_a_curve_that_is_none_is_refused(rows):
    with pytest.raises(ValueError, match=r"rows|curve"):
        Curve(name="made", rows=rows, seconds=(1.0,) * len(rows), prefix=0, rounds=1)


def test_ranks_among_siblings():
    assert sibling_ranks(np.array([-1, 0, 0, 0, 1, 1, 3])).tolist() == [0, 0, 1, 2, 0, 1, 0]


def probs_of(model: AcceptanceModel, tree: DraftTree = TREE, *, verified_root: bool = True) -> list[float]:
    return model.path_probs(tree.parent.tolist(), tree.log_prob.tolist(), tree.source, verified_root=verified_root)


def taught(accepted: tuple[int, ...], times: int, *, verified_root: bool = True, tree=TREE) -> AcceptanceModel:
    model = AcceptanceModel()
    for _ in range(times):
        outcome = Outcome(tree, accepted, (7,), None, None)
        model = model.updated(outcome, verified_root=verified_root)
    return model


BEFORE = probs_of(AcceptanceModel())


def test_before_anything_was_tried_no_node_is_likelier_than_its_parent():
    assert BEFORE[0] == 1
    for node, parent in enumerate(TREE.parent.tolist()[1:], start=1):
        assert 0 < BEFORE[node] < BEFORE[parent]


def test_what_is_right_becomes_likelier_and_what_is_wrong_less():
    model = taught((1, 3), 200)
    after = probs_of(model)
    assert after[1] > BEFORE[1]
    assert after[3] / after[1] == pytest.approx(MOST, abs=0.05)
    assert after[2] < BEFORE[2]
    assert min(after) >= LEAST**2
    assert model.rates("draft")[1][0] == pytest.approx(MOST, abs=0.02)


def test_only_children_of_accepted_nodes_teach():
    """Nodes 3 and 4 hang below a rejected one."""
    model = taught((), 20)
    assert probs_of(model)[1] < BEFORE[1]
    assert sum(sum(counts[:KINDS]) for counts in model.counts.values()) == 20 * len(TREE.children[0])


def test_sources_learn_apart():
    two = DraftTree.of([1, 2, 3], [-1, 0, 0], [0.0, -1.0, -1.0], ["target", "copy", "table"])
    model = taught((1,), 1, tree=two)
    assert set(model.counts) == {"copy", "table"}
    assert probs_of(model, two)[1] > probs_of(AcceptanceModel(), two)[1]
    assert probs_of(model, two)[2] < probs_of(AcceptanceModel(), two)[2]


def test_a_drafted_root_is_tried_too():
    assert probs_of(taught((), 50, verified_root=False), verified_root=False)[0] < 0.2
