"""The walk against the paper's SELECTCOMMIT, over random trees and choices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from reference.dynatree import select_commit
from strategies import draft_trees

from speclab.engine.acceptance import sample_and_match
from speclab.tree import DraftTree

VOCAB = 3


def _choices(data: st.DataObject, tree: DraftTree) -> list[int]:
    return data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=len(tree), max_size=len(tree)))


@st.composite
def merged_trees(draw: st.DrawFn) -> DraftTree:
    """Trees in which siblings may carry the same token, as merged ones do."""
    tree = draw(draft_trees(max_nodes=16))
    token = draw(st.lists(st.integers(0, VOCAB - 1), min_size=len(tree), max_size=len(tree)))
    return DraftTree.of(token, tree.parent.tolist(), tree.log_prob.tolist(), "random")


@given(merged_trees(), st.data())
def test_a_verified_root_is_the_papers_walk(tree, data):
    choices = _choices(data, tree)
    path, committed = select_commit(tree.token.tolist(), tree.parent.tolist(), choices, first=int(tree.token[0]))
    taken = sample_and_match(tree, choices.__getitem__)
    assert list(taken.accepted) == path[1:]
    assert [*(tree.token[node] for node in taken.accepted), taken.bonus] == committed[1:]


@given(merged_trees(), st.data(), st.integers(0, VOCAB - 1))
def test_a_drafted_root_is_the_papers_walk(tree, data, first):
    choices = _choices(data, tree)
    path, committed = select_commit(tree.token.tolist(), tree.parent.tolist(), choices, first)
    taken = sample_and_match(tree, choices.__getitem__, root_choice=first)
    assert list(taken.accepted) == path
    assert [*(tree.token[node] for node in taken.accepted), taken.bonus] == committed


@given(merged_trees(), st.data())
def test_the_target_is_asked_only_where_the_walk_comes_by(tree, data):
    """A choice may be a draw: it is made for nodes that are reached, and for no other."""
    choices, asked = _choices(data, tree), []

    def choose(node: int) -> int:
        asked.append(node)
        return choices[node]

    sample_and_match(tree, choose)
    for node in asked:
        path = tree.path(node)
        assert all(tree.token[child] == choices[tree.parent[child]] for child in path[1:])
