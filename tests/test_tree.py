"""DraftTree: order, depths, masks, selection, and the graph, over random trees."""

import dataclasses

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused
from support.strategies import draft_trees

from speclab.errors import SettingsError
from speclab.tree import DraftTree


@given(draft_trees(max_nodes=24), st.integers(0, 5))
def test_order_depths_paths_and_masks_are_those_of_the_graph(tree, prefix):
    """Of a graph that is built here from the parents alone."""
    graph = networkx.DiGraph([(parent, node) for node, parent in enumerate(tree.parent.tolist())])
    graph.remove_node(-1)
    assert [0, *(child for _, child in networkx.bfs_edges(graph, 0))] == list(range(len(tree)))
    own = tree.to_networkx()
    assert set(own.edges) == set(graph.edges)
    mask = tree.attention_mask(prefix)
    assert (mask[:, prefix:] == tree.ancestor_mask()).all()
    for node in range(len(tree)):
        path = list(tree.path(node))
        assert path == networkx.shortest_path(graph, 0, node)
        assert tree.depth[node] == len(path) - 1
        assert list(tree.children[node]) == list(graph.successors(node))
        assert tree.path_log_prob[node] == pytest.approx(sum(tree.log_prob[path]))
        assert np.flatnonzero(mask[node]).tolist() == [*range(prefix), *(prefix + n for n in path)]
        names = ("token", "depth", "log_prob", "source")
        assert own.nodes[node] == {name: getattr(tree, name)[node] for name in names}


def _row(tree, node):
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
        waiting += [*[other for other in siblings if other > node][:1], *tree.children[node][:1]]
    place = {node: index for index, node in enumerate(grown)} | {-1: -1}
    parents = [place[parent] for parent in tree.parent[grown].tolist()]
    columns = (tree.token[grown].tolist(), parents, tree.log_prob[grown].tolist())
    again, order = DraftTree.grown(*columns, [str(node) for node in grown])
    assert [grown[index] for index in order] == list(range(len(tree)))
    assert again.source == tuple(map(str, range(len(tree))))
    assert again == dataclasses.replace(tree, source=again.source)


@pytest.mark.parametrize("parents", [[], [-1, 5], [-1, -2], [-1, -1], [1, 0], [-1, 0, 3, 2]])
def test_what_did_not_grow_below_one_root_is_refused(parents):
    with refused(SettingsError, "draft tree"):
        DraftTree.grown(parents, parents, parents, "draft")


def test_columns_are_copies_and_cannot_be_written():
    token = np.array([3, 4])
    tree = DraftTree(token, np.array([-1, 0]), np.zeros(2), ("a", "b"))
    token[0] = 9
    assert tree.token.tolist() == [3, 4]
    for column in (tree.token, tree.parent, tree.log_prob, tree.depth, tree.path_log_prob):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


@pytest.mark.parametrize(
    "wrong",
    [
        *[{"parent": parent} for parent in ([], [0], [-1, -1], [-1, 1], [[-1, 0]], [None, 0])],
        *[{"token": token} for token in ([0], [0, 1.5], [0, 1 << 70], [0, None])],
    ],
    ids=str,
)
def test_what_is_not_a_tree_is_refused_and_never_rounded(wrong):
    columns = {"token": [0, 1], "parent": [-1, 0], "log_prob": [0.0, 0.0], "source": "draft"}
    with pytest.raises((ValueError, SettingsError)):
        DraftTree.of(**columns | wrong)
    order = {"token": [0] * 4, "parent": [-1, 0, 1, 0], "log_prob": [0.0] * 4}
    with pytest.raises(SettingsError, match="breadth-first"):
        DraftTree.of(**order, source="draft")
