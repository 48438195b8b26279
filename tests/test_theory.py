"""Expected yields and best shapes: against simulation, enumeration of all trees, limits, and where claims end."""

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

from speclab import theory
from speclab.errors import SettingsError
from speclab.theory import (
    best_isotropic,
    best_spine,
    chain_yield,
    dominance_gap,
    isotropic_yield,
    optimal_widths,
    sequoia_shape,
    spine_yield,
    tree_yield,
)
from speclab.tree import DraftTree

TRIALS = 40_000

rates = st.floats(0.0, 1.0)
inner_rates = st.floats(0.01, 0.99)


def _assert_mean(samples: np.ndarray, expected: float) -> None:
    """Within four standard errors: about one chance in 16,000, and the seeds are fixed."""
    error = samples.std(ddof=1) / math.sqrt(len(samples))
    assert abs(samples.mean() - expected) <= 4 * error + 1e-12


def _run_lengths(hits: np.ndarray) -> np.ndarray:
    """How many in a row are true, from the left, along the last axis."""
    return np.cumprod(hits, axis=-1, dtype=np.int64).sum(axis=-1)


def _simulate_spine(p_s, p_t, widths, depth, follow_longest: bool, seed: int) -> np.ndarray:
    """Tokens per pass when every branch is a chain of `depth` tokens; a right branch is followed, or the longest."""
    random = np.random.default_rng(seed)
    spine = _run_lengths(random.random((TRIALS, len(widths))) < p_s)
    tokens = spine + 1
    for place, width in enumerate(widths):
        broken = np.flatnonzero(spine == place)
        if width == 0 or not len(broken):
            continue
        right = random.random((len(broken), width, depth)) < p_t
        reach = _run_lengths(right)
        first = reach[np.arange(len(broken)), right[:, :, 0].argmax(axis=1)]
        tokens[broken] += reach.max(axis=1) if follow_longest else first
    return tokens


SPINES = [
    (0.6, 0.1, (10, 6, 3, 1, 0, 0), 6),
    (0.9, 0.3, (4, 4, 2, 1, 1, 1, 0, 0), 3),
    (0.3, 0.25, (20, 5), 1),
    (0.5, 0.8, (2, 1, 0), 6),
    (0.0, 0.2, (5, 5), 4),
]


@pytest.mark.parametrize(("p_s", "p_t", "widths", "depth"), SPINES)
def test_spine_yield_is_the_mean_of_following_one_branch_and_a_lower_bound_for_the_longest(p_s, p_t, widths, depth):
    expected = spine_yield(p_s, p_t, widths, depth)
    _assert_mean(_simulate_spine(p_s, p_t, widths, depth, follow_longest=False, seed=1), expected)
    assert _simulate_spine(p_s, p_t, widths, depth, follow_longest=True, seed=2).mean() > expected - 0.02


def test_several_independent_chains_are_above_the_bound_that_is_called_tight():
    tokens = _simulate_spine(0.3, 0.6, (6, 6), 6, follow_longest=True, seed=3)
    assert tokens.mean() > spine_yield(0.3, 0.6, (6, 6), 6) + 0.5


def test_spine_yield_at_its_limits():
    assert spine_yield(0.6, 0.1, [], 6) == 1.0
    assert spine_yield(1.0, 0.1, [3.0, 2.0, 1.0], 6) == pytest.approx(4.0)
    assert spine_yield(0.0, 0.1, [3.0, 2.0], 1) == pytest.approx(1 + (1 - 0.9**3))
    assert spine_yield(0.6, 0.0, [3.0, 2.0], 6) == pytest.approx(chain_yield(0.6, 2))
    assert spine_yield(0.0, 1.0, [0.5, 0.0], 6) == pytest.approx(1 + 6)
    assert spine_yield(0.0, 1.0, [0.0, 4.0], 6) == pytest.approx(1.0)
    assert spine_yield(0.6, 0.1, [0, 0, 0], 6) == pytest.approx(chain_yield(0.6, 3))


@given(rates, rates, st.lists(st.floats(0, 50), max_size=8), st.integers(1, 8))
def test_spine_yield_lies_between_its_spine_and_the_longest_path(p_s, p_t, widths, depth):
    tokens = spine_yield(p_s, p_t, widths, depth)
    assert chain_yield(p_s, len(widths)) - 1e-9 <= tokens <= len(widths) + depth + 1 + 1e-9


def _water_filling(p_s: float, p_t: float, length: int, budget: float) -> np.ndarray:
    """The widths by bisection on the common marginal, with no straight line in it."""
    cost = -math.log(1 - p_t)
    log_reach = np.arange(length) * math.log(p_s)

    def widths(log_price: float) -> np.ndarray:
        return np.maximum((log_reach - log_price) / cost, 0)

    low, high = log_reach[-1] - cost * budget - 1, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if widths(middle).sum() > budget else (low, middle)
    return widths(high)


@given(inner_rates, inner_rates, st.integers(1, 30), st.floats(0, 100))
def test_optimal_widths_equal_a_numeric_optimum_and_lie_on_the_line_of_proposition_2(p_s, p_t, length, budget):
    widths = optimal_widths(p_s, p_t, length, budget)
    assert widths == pytest.approx(_water_filling(p_s, p_t, length, budget), abs=1e-6)
    fall = -np.diff(widths[widths > 0])
    assert fall == pytest.approx(np.full(len(fall), math.log(p_s) / math.log(1 - p_t)), abs=1e-6)


@pytest.mark.parametrize("p_s", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("p_t", [0.1, 0.5, 0.9])
def test_no_other_division_of_the_budget_yields_more(p_s, p_t):
    best = spine_yield(p_s, p_t, optimal_widths(p_s, p_t, 3, 6), 6)
    steps = np.arange(0, 6.25, 0.5)
    others = [(a, b, 6 - a - b) for a in steps for b in steps if a + b <= 6]
    assert max(spine_yield(p_s, p_t, other, 6) for other in others) <= best + 1e-12


@given(rates, rates, st.integers(1, 40), st.floats(0, 1000))
def test_optimal_widths_spend_the_budget_and_never_rise(p_s, p_t, length, budget):
    widths = optimal_widths(p_s, p_t, length, budget)
    assert widths.shape == (length,)
    assert widths.sum() == pytest.approx(budget)
    assert (widths >= 0).all()
    assert (np.diff(widths) <= 1e-9).all()


def test_optimal_widths_at_their_limits():
    at_root, equal = [12, 0, 0, 0], [3, 3, 3, 3]
    for p_s, p_t, expected in [(0, 0.2, at_root), (0.5, 0, at_root), (0, 1, at_root), (1, 0.2, equal), (0.5, 1, equal)]:
        assert optimal_widths(p_s, p_t, 4, 12).tolist() == expected
    near = 1e-12
    assert optimal_widths(0.5, near, 4, 12) == pytest.approx(at_root)
    assert optimal_widths(near, 0.2, 4, 12) == pytest.approx(at_root)
    assert optimal_widths(1 - near, 0.2, 4, 12) == pytest.approx(equal)
    assert optimal_widths(5e-324, 5e-324, 4, 12) == pytest.approx(at_root)
    assert optimal_widths(0.5, 0.2, 4, 0).tolist() == [0, 0, 0, 0]


def test_best_spine_is_at_least_every_tree_of_whole_branches():
    p_s, p_t, budget = 0.6, 0.2, 8
    best = best_spine(p_s, p_t, budget, 3)
    assert best.spine_length + sum(best.widths) == pytest.approx(budget)
    assert best.expected_tokens == spine_yield(p_s, p_t, best.widths, 3)
    for length in range(1, budget + 1):
        for widths in itertools.product(range(budget - length + 1), repeat=length):
            if length + sum(widths) <= budget:
                assert spine_yield(p_s, p_t, widths, 3) <= best.expected_tokens + 1e-12


def test_best_spine_counts_every_node_of_a_branch():
    best = best_spine(0.6, 0.2, 60, 6, nodes_per_branch=6)
    assert best.spine_length + 6 * sum(best.widths) == pytest.approx(60)
    assert best.expected_tokens < best_spine(0.6, 0.2, 60, 6).expected_tokens


@pytest.mark.parametrize(("acceptance", "branching", "depth"), [(0.2, 3, 3), (0.5, 2, 5), (0.9, 1, 12), (0.05, 7, 2)])
def test_isotropic_yield_is_the_mean_over_independent_siblings(acceptance, branching, depth):
    right = np.random.default_rng(4).random((TRIALS, depth, branching)) < acceptance
    _assert_mean(1 + _run_lengths(right.any(axis=2)), isotropic_yield(acceptance, branching, depth))


@given(rates, st.integers(1, 6), st.integers(0, 8))
def test_isotropic_yield_at_its_limits(acceptance, branching, depth):
    assert isotropic_yield(0.0, branching, depth) == 1.0
    assert isotropic_yield(1.0, branching, depth) == depth + 1
    assert isotropic_yield(acceptance, 1, depth) == pytest.approx(chain_yield(acceptance, depth))


@given(rates, st.integers(1, 80))
def test_best_isotropic_is_the_best_full_tree_within_the_budget(acceptance, budget):
    best = best_isotropic(acceptance, budget)
    assert best.nodes == sum(best.branching**level for level in range(1, best.depth + 1)) <= budget
    fitting = [
        (branching, depth)
        for branching in range(1, budget + 1)
        for depth in range(1, budget + 1)
        if (depth <= 7 or branching == 1) and sum(branching**level for level in range(1, depth + 1)) <= budget
    ]
    assert best.expected_tokens == pytest.approx(max(isotropic_yield(acceptance, *shape) for shape in fitting))


def test_chain_yield():
    hits = np.random.default_rng(5).random((TRIALS, 7)) < 0.7
    _assert_mean(1 + _run_lengths(hits), chain_yield(0.7, 7))
    assert [chain_yield(0, 7), chain_yield(1, 7), chain_yield(0.7, 0)] == [1, 8, 1]
    assert chain_yield(1 - 1e-9, 100) == pytest.approx(101 - 5050e-9, rel=1e-12)


PAIRS = [(p_s, p_t) for p_s in np.arange(0.1, 1, 0.1) for p_t in np.arange(0.1, 1, 0.1) if p_s > p_t + 0.01]


def test_at_the_papers_budget_the_spine_tree_is_ahead_and_more_so_as_its_rate_rises():
    assert all(dominance_gap(p_s, p_t, 60) > 0 for p_s, p_t in PAIRS)
    for p_t in (0.05, 0.3, 0.6):
        gaps = [dominance_gap(p_s, p_t, 60) for p_s in np.linspace(p_t, 1, 12)]
        assert (np.diff(gaps) > 0).all()


def test_where_proposition_3_does_not_hold_for_the_yield_of_proposition_1():
    """What the docstring says of the claim; a change of the formulas must change that text too."""
    assert dominance_gap(0.201, 0.2, 71) > 0 > dominance_gap(0.201, 0.2, 72)
    assert dominance_gap(0.2, 0.15, 250) < -0.3
    assert dominance_gap(0.5, 0.5, 60) > 0.5  # equal rates, and yet not 0
    assert dominance_gap(0.3, 0.05, 60) > 0.2
    assert dominance_gap(0.3, 0.05, 60, nodes_per_branch=6) < -0.2  # with every node counted
    assert dominance_gap(0.74, 0.73, 2) < dominance_gap(0.735, 0.73, 2)  # and falling with p_s
    p_s, p_t, ceiling = 0.6, 0.5, 1 + 0.6 / 0.4 + chain_yield(0.5, 5)
    spines = [best_spine(p_s, p_t, budget, 6).expected_tokens for budget in (60, 250, 1000)]
    assert max(spines) <= ceiling < best_isotropic(p_t, 4000).expected_tokens


@given(inner_rates, inner_rates, st.integers(1, 6), st.integers(1, 6))
def test_an_isotropic_tree_with_one_path_raised_is_ahead_whatever_the_rates(a, b, branching, depth):
    """Proposition 3 for the tree that its proof builds: the branches beside the raised path branch on."""
    p_s, p_t = max(a, b), min(a, b)
    raised = 1.0
    for level in range(depth):
        aside = (1 - p_s) * (1 - (1 - p_t) ** (branching - 1))
        raised = 1 + p_s * raised + aside * isotropic_yield(p_t, branching, level)
    assert raised >= isotropic_yield(p_t, branching, depth) + (p_s - p_t) * (1 - p_t) ** (branching - 1) - 1e-12


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


ROOT, PAIR = DraftTree.root(0), DraftTree.of([0, 1, 2], [-1, 0, 0], [0.0] * 3, "random")
BAD = [
    ("chain_yield", (1.1, 3), "acceptance"),
    ("chain_yield", (0.5, -1), "length"),
    ("chain_yield", (math.nan, 3), "acceptance"),
    ("isotropic_yield", (-0.1, 3, 3), "acceptance"),
    ("isotropic_yield", (0.5, 0, 3), "branching"),
    ("isotropic_yield", (0.5, 2.5, 3), "branching"),
    ("best_isotropic", (0.5, 0), "node_budget"),
    ("spine_yield", (1.5, 0.1, [1], 6), "spine_acceptance"),
    ("spine_yield", (0.5, -1, [1], 6), "branch_acceptance"),
    ("spine_yield", (0.5, 0.1, [1, -1], 6), r"widths\.1"),
    ("spine_yield", (0.5, 0.1, [math.nan], 6), r"widths\.0"),
    ("spine_yield", (0.5, 0.1, [[1, 2]], 6), "widths"),
    ("spine_yield", (0.5, 0.1, ["x"], 6), "widths"),
    ("spine_yield", (0.5, 0.1, [1], 0), "branch_depth"),
    ("optimal_widths", (0.5, 0.1, 0, 6), "spine_length"),
    ("optimal_widths", (0.5, 0.1, 3, -1), "branch_budget"),
    ("optimal_widths", (0.5, 0.1, 3, math.inf), "branch_budget"),
    ("best_spine", (0.5, 0.1, 0, 6), "node_budget"),
    ("dominance_gap", (0.5, 1.1, 60), "branch_acceptance"),
    ("tree_yield", (ROOT, [0.5, 1.5]), r"rank_acceptance\.1"),
    ("tree_yield", (ROOT, []), "rank_acceptance"),
    ("tree_yield", (PAIR, [0.5]), "rank_acceptance has 1 rates: give one for each"),
    ("sequoia_shape", ([0.5], -1, 3), "node_budget"),
    ("sequoia_shape", ([0.5], 3, -1), "depth"),
    ("sequoia_shape", ([-0.5], 3, 3), "rank_acceptance"),
]


@pytest.mark.parametrize(("name", "arguments", "said"), BAD)
def test_bad_input_is_refused_in_one_sentence(name, arguments, said):
    with pytest.raises(SettingsError, match=said) as caught:
        getattr(theory, name)(*arguments)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_by_name_too():
    with pytest.raises(SettingsError, match="best_spine: nodes_per_branch must be greater than or equal to 1"):
        theory.best_spine(0.5, 0.1, 60, 6, nodes_per_branch=0)
