from __future__ import annotations

from itertools import combinations, pairwise

from drawn import steps
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import draft_trees
from view_samples import large, sixty_nodes

from speclab.views import playback, tree_layout
from speclab.views.tree_layout import OWN


def _check(places) -> None:
    assert len({(place.depth, place.row) for place in places}) == len(places), "no two in one place"
    edges = [(places[p.parent], p) for p in places if p.parent >= 0]
    for one, other in combinations(edges, 2):
        if one[0].depth == other[0].depth:
            above = (one[0].row - other[0].row) * (one[1].row - other[1].row)
            assert above >= 0, "edges cross"
    for i, place in enumerate(places):
        children = [p.row for p in places if p.parent == i]
        assert all(p.depth == place.depth + 1 for p in places if p.parent == i)
        if children:
            assert place.row == (min(children) + max(children)) / 2
    for depth in {place.depth for place in places}:
        rows = sorted(place.row for place in places if place.depth == depth)
        assert all(b - a >= 1 for a, b in pairwise(rows)), "labels have a row of their own"


@settings(max_examples=30)
@given(steps())
def test_every_node_has_one_place_and_no_edges_cross(step):
    after = None if step.bonus is None else playback.last_on_path(step)
    places = tree_layout.place_nodes(step.tree, own_after=after)
    _check(places)
    assert [p.node for p in places] == [*range(len(step.tree)), *([] if after is None else [OWN])]
    assert [p.depth for p in places if p.node != OWN] == step.tree.depth.tolist()
    leaves = sum(not any(other.parent == i for other in places) for i in range(len(places)))
    assert max(p.row for p in places) <= leaves - 1


@settings(max_examples=30)
@given(steps(max_nodes=60), st.integers(1, 30), st.integers(0, 59))
def test_folding_keeps_the_path_and_counts_every_node(step, limit, extra):
    tree = step.tree
    kept = min(extra, len(tree) - 1)
    shown = tree_layout.choose_nodes(tree, step.accepted, [kept], limit)
    places = tree_layout.place_nodes(tree, shown, None if step.bonus is None else playback.last_on_path(step))
    _check(places)
    assert {*step.accepted, kept} <= shown
    assert all(int(tree.parent[node]) in shown for node in shown if node)
    for node in step.accepted:
        if node:
            assert set(tree.children[int(tree.parent[node])]) <= shown
    assert sum(p.node is not None and p.node != OWN for p in places) + sum(p.folded for p in places) == len(tree)
    assert all(p.folded != 1 for p in places), "a stub for one node would take that node's room"


@settings(max_examples=30)
@given(draft_trees(max_nodes=30))
def test_a_small_tree_is_not_folded(tree):
    assert tree_layout.choose_nodes(tree, ()) == frozenset(range(len(tree)))


def test_a_large_tree_keeps_to_the_limit_and_to_the_likeliest():
    step = large()
    shown = tree_layout.choose_nodes(step.tree, step.accepted)
    places = tree_layout.place_nodes(step.tree, shown, playback.last_on_path(step))
    assert 50 <= len(places) <= tree_layout.FOLD_ABOVE + 8
    assert tree_layout.choose_nodes(sixty_nodes().tree, ()) == frozenset(range(60))


def test_five_nodes_by_hand():
    assert tree_layout.leaf_rows([-1, 0, 0, 1, 1]) == [1.25, 0.5, 2.0, 0.0, 1.0]
    assert tree_layout.leaf_rows([-1, -1]) == [0.0, 1.0]
