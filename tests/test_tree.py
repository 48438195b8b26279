"""DraftTree: order, depths, masks, selection, and the graph, over random trees."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused
from support.strategies import draft_trees

from speclab.errors import SettingsError
from speclab.tree import CandidateSampling, DraftTree


@given(draft_trees(max_nodes=24), st.integers(0, 5))
def test_order_depths_paths_and_masks_are_those_of_the_graph(tree, prefix):
    """Of a graph that is built here from the parents alone."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(tree)))
    graph.add_edges_from(
        (parent, node) for node, parent in enumerate(tree.parent.tolist()) if parent >= 0
    )
    assert [0, *(child for _, child in networkx.bfs_edges(graph, 0))] == list(range(len(tree)))
    mask = tree.ancestor_mask()
    assert mask.dtype == np.bool_
    for node in range(len(tree)):
        path = list(tree.path(node))
        assert path == networkx.shortest_path(graph, 0, node)
        assert tree.depth[node] == len(path) - 1
        assert list(tree.children[node]) == list(graph.successors(node))
        assert tree.path_log_prob[node] == pytest.approx(sum(tree.log_prob[path]))
        assert set(np.flatnonzero(mask[node]).tolist()) == networkx.ancestors(graph, node) | {node}
    with_prefix = tree.attention_mask(prefix)
    assert with_prefix[:, :prefix].all()
    assert (with_prefix[:, prefix:] == mask).all()
    own = tree.to_networkx()
    assert set(own.edges) == set(graph.edges)
    columns = {
        "token": tree.token,
        "depth": tree.depth,
        "log_prob": tree.log_prob,
        "source": tree.source,
    }
    for node in range(len(tree)):
        assert own.nodes[node] == {name: column[node] for name, column in columns.items()}


def _row(tree: DraftTree, node: int) -> tuple:
    path = list(tree.path(node))
    return tuple(tree.token[path].tolist()), tree.log_prob[node], tree.source[node]


@given(draft_trees(max_nodes=24), st.data())
def test_select_keeps_the_chosen_paths_and_refuses_an_orphan(tree, data):
    """Keeping any set of nodes with their ancestors keeps exactly their texts, in order."""
    chosen = data.draw(st.sets(st.integers(0, len(tree) - 1)))
    kept = sorted({0} | {a for node in chosen for a in tree.path(node)})
    part = tree.select([node in kept for node in range(len(tree))])
    assert [_row(part, n) for n in range(len(part))] == [_row(tree, n) for n in kept]
    assert part.candidate_sampling == tree.candidate_sampling
    for gone in [node for node in range(len(tree)) if tree.children[node]]:
        with pytest.raises(ValueError, match=r"node 0|breadth-first"):
            tree.select([node != gone for node in range(len(tree))])


@given(draft_trees(max_nodes=16), st.randoms(use_true_random=False))
def test_nodes_grown_in_any_order_make_the_same_tree(tree, random):
    """Parents first and siblings in their order, else as it comes: depth first, best first, merged."""
    waiting = [0]
    grown = []
    while waiting:
        node = waiting.pop(random.randrange(len(waiting)))
        grown.append(node)
        siblings = tree.children[tree.parent[node]] if node else ()
        after = [other for other in siblings if other > node][:1]
        waiting += [*after, *tree.children[node][:1]]
    place = {node: index for index, node in enumerate(grown)} | {-1: -1}
    source = [f"grown {index}" for index in range(len(grown))]
    again, order = DraftTree.grown(
        tree.token[grown].tolist(),
        [place[parent] for parent in tree.parent[grown].tolist()],
        tree.log_prob[grown].tolist(),
        source,
    )
    for column in ("token", "parent", "log_prob"):
        assert getattr(again, column).tolist() == getattr(tree, column).tolist()
    assert [grown[index] for index in order] == list(range(len(tree)))
    assert again.source == tuple(source[index] for index in order)


def test_one_source_is_every_node_s():
    tree, _ = DraftTree.grown([1, 2], [-1, 0], [0, 0], "trees")
    assert tree.source == ("trees", "trees")


@pytest.mark.parametrize(
    "columns",
    ["", "-1 5", "-1 -2", "-1 -1", "1 0", "-1 0 3 2"],
    ids=["empty", "outside", "below -1", "two roots", "no root", "circle"],
)
def test_what_did_not_grow_below_one_root_is_refused(columns):
    parents = [int(parent) for parent in columns.split()]
    with refused(SettingsError, "draft tree"):
        DraftTree.grown(parents, parents, parents, "draft")


def test_columns_are_copies_and_cannot_be_written():
    token = np.array([3, 4])
    tree = DraftTree(token, np.array([-1, 0]), np.zeros(2), ("a", "b"))
    token[0] = 9
    assert tree.token.tolist() == [3, 4]
    assert tree.candidate_sampling is CandidateSampling.DETERMINISTIC
    for column in (tree.token, tree.parent, tree.log_prob, tree.depth, tree.path_log_prob):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


@pytest.mark.parametrize(
    ("parent", "log_prob", "why"),
    [
        ([], [], "at least a root"),
        ([-1, 0], [0.0], "one length"),
        ([0], [0.0], "only root"),
        ([-1, -1], [0.0, 0.0], "only root"),
        ([-1, 2, 0], [0.0] * 3, "before its children"),
        ([-1, 0, 1, 0], [0.0] * 4, "breadth-first"),
    ],
)
def test_what_is_not_a_tree_is_refused(parent, log_prob, why):
    with pytest.raises(ValueError, match=why):
        DraftTree.of([0] * len(parent), parent, log_prob, "draft")


@pytest.mark.parametrize(
    ("name", "wrong"), [("token", [1.5]), ("token", [1 << 70]), ("parent", [None])]
)
def test_what_is_no_number_is_refused_and_never_rounded(name, wrong):
    columns = {"token": [0], "parent": [-1], "log_prob": [0.0]} | {name: wrong}
    with pytest.raises(SettingsError, match=f"tree's {name} is "):
        DraftTree.of(**columns, source="draft")
    with refused(SettingsError, name, "[1, 1]"):
        DraftTree.of(**(columns | {name: [[0]]}), source="draft")
