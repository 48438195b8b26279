"""Positional acceptance: yields of any tree, the best shape, and the best budget, against enumeration of all trees."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import draft_trees

from speclab.theory import chain_yield, sequoia_shape, tree_yield
from speclab.tree import DraftTree

TRIALS = 40_000

rates = st.floats(0.0, 1.0)


def _exclusive(weights: list[float], room: float) -> list[float]:
    """Rates of exclusive ranks, adding up to `room`."""
    return [room * weight / sum(weights) for weight in weights]


exclusive_rates = st.builds(_exclusive, st.lists(st.floats(0.01, 1), min_size=12, max_size=12), st.floats(0, 1))


@given(draft_trees(), exclusive_rates)
def test_tree_yield_equals_the_mean_over_every_end_of_the_walk(tree, by_rank):
    chances, lengths = [], []
    for end in range(len(tree)):
        path = tree.path(end)
        ranks = [tree.children[above].index(node) for above, node in itertools.pairwise(path)]
        stops = 1 - sum(by_rank[: len(tree.children[end])])
        chances.append(stops * math.prod(by_rank[rank] for rank in ranks))
        lengths.append(len(path))
    assert sum(chances) == pytest.approx(1)
    assert tree_yield(tree, by_rank) == pytest.approx(np.dot(chances, lengths))


def test_tree_yield_bounds_independent_siblings_from_above():
    tree = DraftTree.of([0, 1, 2, 3, 4, 5, 6], [-1, 0, 0, 1, 1, 2, 2], [0.0] * 7, "random")
    by_rank = [0.7, 0.6]
    right = np.random.default_rng(6).random((TRIALS, 7)) < np.array([1, *by_rank, *by_rank, *by_rank])
    reached = np.ones((TRIALS, 7), dtype=bool)
    for node in range(1, 7):
        reached[:, node] = right[:, node] & reached[:, tree.parent[node]]
    longest = (reached * (tree.depth + 1)).max(axis=1)
    assert longest.mean() < tree_yield(tree, by_rank)


def test_tree_yield_of_a_chain_and_of_a_root():
    chain = DraftTree.of([0, 1, 2, 3], [-1, 0, 1, 2], [0.0] * 4, "random")
    assert tree_yield(chain, [0.6]) == pytest.approx(chain_yield(0.6, 3))
    assert [tree_yield(chain, [0.0]), tree_yield(chain, [1.0])] == [1, 4]
    assert tree_yield(DraftTree.root(7), [0.6]) == 1


def _all_shapes(nodes: int) -> Iterator[tuple[int, ...]]:
    """Every ordered tree of a root and `nodes` more, as parents in breadth-first order."""
    shapes = [(-1,)]
    for node in range(1, nodes + 1):
        shapes = [(*shape, parent) for shape in shapes for parent in range(max(shape[-1], 0), node)]
    yield from shapes


def _tree(parents: tuple[int, ...]) -> DraftTree:
    return DraftTree.of(range(len(parents)), parents, [0.0] * len(parents), "shape")


SHAPES = [_tree(parents) for nodes in range(7) for parents in _all_shapes(nodes)]


@given(st.lists(rates, min_size=6, max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_sequoia_shape_is_the_best_of_all_trees(by_rank, budget, depth):
    """For any rates: also where a later rank is accepted more often, and where ranks have a rate of 0."""
    shape = sequoia_shape(by_rank, budget, depth)
    tree = _tree(shape.parents)
    assert len(tree) <= budget + 1
    assert tree.depth.max() <= depth
    assert tree_yield(tree, by_rank) == pytest.approx(shape.expected_tokens)
    fitting = (tree for tree in SHAPES if len(tree) <= budget + 1 and tree.depth.max() <= depth)
    assert shape.expected_tokens == pytest.approx(max(tree_yield(tree, by_rank) for tree in fitting))


def _most_probable_paths(by_rank: list[float], budget: int, depth: int) -> float:
    """The yield of the `budget` most probable paths, taken greedily."""
    heap, total = [(-1.0, 0)], 0.0
    for _ in range(budget + 1):
        if not heap:
            break
        chance, level = heapq.heappop(heap)
        total -= chance
        if level < depth:
            for rate in by_rank:
                heapq.heappush(heap, (chance * rate, level + 1))
    return total


@given(exclusive_rates, st.integers(1, 64), st.integers(1, 10))
def test_sequoia_shape_takes_the_most_probable_paths_where_rates_fall_with_rank(by_rank, budget, depth):
    falling = sorted(by_rank, reverse=True)
    expected = _most_probable_paths(falling, budget, depth)
    assert sequoia_shape(falling, budget, depth).expected_tokens == pytest.approx(expected)


def test_sequoia_shape_is_a_chain_or_a_star_where_only_that_pays():
    assert sequoia_shape([1.0], 5, 5).parents == (-1, 0, 1, 2, 3, 4)
    assert sequoia_shape([0.25] * 4, 4, 1).parents == (-1, 0, 0, 0, 0)
    assert sequoia_shape([0.0, 0.0], 5, 5).parents == (-1,)
    assert sequoia_shape([0.5, 0.2], 0, 5).parents == (-1,)
