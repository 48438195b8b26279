"""The walk against the paper's SELECTCOMMIT, over random trees and choices; and typical acceptance, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.dynatree import select_commit
from strategies import draft_trees

from speclab.engine.acceptance import sample_and_match, typical_acceptance, typical_floor
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


# Typical acceptance


LIKELY = np.array([0.5, 0.3, 0.15, 0.05])


def typical(tree: DraftTree, root: tuple | None = None, least: float = 0.1):
    return typical_acceptance(tree, lambda _: LIKELY, lambda node: 100 + node, lambda _: least, root)


def test_the_floor_is_medusas():
    """min(epsilon, delta exp(-H)): what is certain asks for epsilon, what is flat for less."""
    assert typical_floor(np.array([1.0, 0.0]), 0.09, 0.3) == pytest.approx(0.09)
    assert typical_floor(np.full(50, 1 / 50), 0.09, 0.3) == pytest.approx(0.3 / 50)


def test_typical_acceptance_takes_the_deepest_likely_path_and_the_targets_choice_after_it():
    tree = DraftTree.of([9, 0, 2, 3, 2, 3], [-1, 0, 0, 1, 2, 4], [0.0] * 6, "draft")
    taken = typical(tree)
    assert (taken.accepted, taken.bonus) == ((2, 4), 104)
    assert [(trial.node, trial.accepted) for trial in taken.trials] == [
        (1, True), (2, True), (3, False), (4, True), (5, False),
    ]  # fmt: skip


def test_of_two_as_deep_typical_acceptance_takes_the_likelier():
    tree = DraftTree.of([9, 2, 0, 0, 2], [-1, 0, 0, 1, 2], [0.0] * 5, "draft")
    assert typical(tree).accepted == (1, 3), "as likely as the other: the first"
    tree = DraftTree.of([9, 2, 0, 1, 1], [-1, 0, 0, 1, 2], [0.0] * 5, "draft")
    assert typical(tree).accepted == (2, 4)


def test_typical_acceptance_of_a_drafted_root():
    tree = DraftTree.of([1, 0], [-1, 0], [0.0] * 2, "draft")
    taken = typical(tree, (LIKELY, 2))
    assert (taken.accepted, taken.bonus) == ((0, 1), 101)
    taken = typical(tree, (LIKELY, 2), least=0.4)
    assert (taken.accepted, taken.bonus) == ((), 2)


def test_where_nothing_is_likely_enough_the_target_alone_speaks():
    taken = typical(DraftTree.of([9, 3], [-1, 0], [0.0] * 2, "draft"))
    assert (taken.accepted, taken.bonus) == ((), 100)
    assert taken.residual is LIKELY
