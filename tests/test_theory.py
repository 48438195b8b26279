"""Expected yields and best shapes: against simulation, enumeration of all trees, limits, and where claims end."""

import doctest
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import refused

from speclab import theory
from speclab.errors import SettingsError
from speclab.theory import (
    best_chain,
    best_isotropic,
    best_spine,
    chain_yield,
    isotropic_yield,
    optimal_widths,
    sequoia_shape,
    spine_yield,
)
from speclab.tree import DraftTree

TRIALS = 40_000

rates = st.floats(0.0, 1.0)
inner_rates = st.floats(0.01, 0.99)


def _assert_mean(samples, expected):
    """Within four standard errors: about one chance in 16,000, and the seeds are fixed."""
    error = samples.std(ddof=1) / math.sqrt(len(samples))
    assert abs(samples.mean() - expected) <= 4 * error + 1e-12


def _run_lengths(hits):
    """How many in a row are true, from the left, along the last axis."""
    return np.cumprod(hits, axis=-1, dtype=np.int64).sum(axis=-1)


# Chains and full trees


def test_chain_yield():
    hits = np.random.default_rng(5).random((TRIALS, 7)) < 0.7
    _assert_mean(1 + _run_lengths(hits), chain_yield(0.7, 7))
    assert [chain_yield(0, 7), chain_yield(1, 7), chain_yield(0.7, 0)] == [1, 8, 1]
    assert chain_yield(1 - 1e-9, 100) == pytest.approx(101 - 5050e-9, rel=1e-12)


def test_a_chain_of_hazards_by_depth():
    """Each token may be accepted at its own rate, given those before it."""
    hazards = [0.70, 0.69, 0.65]
    hits = np.random.default_rng(6).random((TRIALS, 3)) < hazards
    _assert_mean(1 + _run_lengths(hits), chain_yield(hazards, 3))
    assert chain_yield(hazards, 3) == pytest.approx(1 + 0.7 + 0.7 * 0.69 + 0.7 * 0.69 * 0.65)
    assert chain_yield(np.array([0.7] * 9), 4) == pytest.approx(chain_yield(0.7, 4))
    assert doctest.testmod(theory).failed == 0


@given(st.lists(rates, max_size=6), st.tuples(*[st.floats(0.01, 9)] * 3))
def test_the_best_chain_for_an_engine_s_times(hazards, cost):
    best = best_chain(hazards, cost)
    for length, rate in enumerate(best.rates):
        time = cost[0] + cost[1] * (length + 1) + cost[2] * length
        assert rate * time == pytest.approx(chain_yield(hazards, length))
    assert len(best.rates) == len(hazards) + 1
    assert best.rates[best.length] == max(best.rates)
    assert best.expected_tokens == pytest.approx(chain_yield(hazards, best.length))


def test_free_passes_ask_for_the_longest_chain_and_dear_ones_for_none():
    assert best_chain([0.5] * 5, (1, 0, 0)).length == 5
    assert best_chain([0.5] * 5, (1, 0, 1)).length == 0


def test_what_is_no_rate_or_no_count_is_refused():
    for call, words in (
        (lambda: chain_yield(1.2, 3), "acceptance"),
        (lambda: chain_yield([0.7, math.nan], 2), "acceptance"),
        (lambda: chain_yield("0.7", 3), "acceptance"),
        (lambda: chain_yield([0.7], 3), "3"),
        (lambda: chain_yield(0.7, 2.5), "length"),
        (lambda: isotropic_yield([0.5], 2, 3), "acceptance"),
        (lambda: best_isotropic(0.5, -1), "node_budget"),
        (lambda: spine_yield(0.5, 0.1, [-1], 2), "widths"),
        (lambda: optimal_widths(0.5, 0.1, 0, 4), "spine_length"),
        (lambda: best_spine(0.5, -0.1, 12, 3), "branch_acceptance"),
        (lambda: sequoia_shape([0.5, None], 4, 2), "rank_acceptance"),
        (lambda: best_chain([0.5], (1, 1)), "cost"),
        (lambda: best_chain([0.5], (0, 0, 1)), "cost"),
    ):
        with refused(SettingsError, words):
            call()


def test_isotropic_yield_is_the_mean_over_independent_siblings():
    for acceptance, branching, depth in ((0.2, 3, 3), (0.5, 2, 5)):
        right = np.random.default_rng(4).random((TRIALS, depth, branching)) < acceptance
        tokens = 1 + _run_lengths(right.any(axis=2))
        _assert_mean(tokens, isotropic_yield(acceptance, branching, depth))


@given(rates, st.integers(1, 40))
def test_best_isotropic_is_the_best_full_tree_within_the_budget(acceptance, budget):
    def nodes(branching, depth):
        return sum(branching**level for level in range(1, depth + 1))

    best = best_isotropic(acceptance, budget)
    assert nodes(best.branching, best.depth) <= budget
    every = itertools.product(range(1, budget + 1), repeat=2)
    fitting = [isotropic_yield(acceptance, *shape) for shape in every if nodes(*shape) <= budget]
    assert best.expected_tokens == pytest.approx(max(fitting))


# Spine trees


def _simulate_spine(p_s, p_t, widths, depth):
    """Tokens per pass when every branch is a chain of `depth` tokens, and the first right branch is followed."""
    random = np.random.default_rng(1)
    spine = _run_lengths(random.random((TRIALS, len(widths))) < p_s)
    tokens = spine + 1
    for place, width in enumerate(widths):
        broken = np.flatnonzero(spine == place)
        if width and len(broken):
            right = random.random((len(broken), width, depth)) < p_t
            first = right[:, :, 0].argmax(axis=1)
            tokens[broken] += _run_lengths(right)[np.arange(len(broken)), first]
    return tokens


def test_spine_yield_is_the_mean_of_following_one_branch():
    for p_s, p_t, widths, depth in ((0.6, 0.1, (10, 6, 3, 1, 0, 0), 6), (0.0, 0.2, (5, 5), 4)):
        _assert_mean(_simulate_spine(p_s, p_t, widths, depth), spine_yield(p_s, p_t, widths, depth))
    assert spine_yield(0.6, 0.1, [], 6) == 1
    assert spine_yield(1.0, 0.1, [3, 2, 1], 6) == 4
    assert spine_yield(0.0, 1.0, [0.5, 0], 6) == 1 + 6


@given(inner_rates, inner_rates, st.integers(1, 30), st.floats(0, 100))
def test_optimal_widths_have_one_marginal_where_they_are_open_and_a_smaller_one_elsewhere(
    p_s, p_t, length, budget
):
    """The optimum of a concave sum: p_s^i (1 - p_t)^k_i is what a wider node i would add."""
    widths = optimal_widths(p_s, p_t, length, budget)
    assert widths.sum() == pytest.approx(budget)
    marginal = np.arange(length) * math.log(p_s) + widths * math.log(1 - p_t)
    assert marginal[widths > 0] == pytest.approx(np.full((widths > 0).sum(), marginal[0]), abs=1e-6)
    assert (marginal <= marginal[0] + 1e-6).all()


def test_optimal_widths_at_their_limits():
    for p_s, p_t, due in (
        (0, 0.2, [12, 0, 0, 0]),
        (0.5, 1e-12, [12, 0, 0, 0]),
        (0, 1, [12, 0, 0, 0]),
        (5e-324, 5e-324, [12, 0, 0, 0]),
        (1, 0.2, [3, 3, 3, 3]),
        (0.5, 1, [3, 3, 3, 3]),
        (1 - 1e-12, 0.2, [3, 3, 3, 3]),
    ):
        assert optimal_widths(p_s, p_t, 4, 12) == pytest.approx(due)


def test_best_spine_spends_the_budget_on_the_best_length():
    best = best_spine(0.6, 0.2, 12, 3)
    assert best.spine_length + sum(best.widths) == pytest.approx(12)
    for length in range(1, 13):
        widths = optimal_widths(0.6, 0.2, length, 12 - length)
        assert spine_yield(0.6, 0.2, widths, 3) <= best.expected_tokens


# The best of all trees


def _tree_yield(tree, by_rank):
    """1 + Σ_v Π_{u on the path to v} p(rank of u)."""
    probs = [1.0] * len(tree)
    for node, children in enumerate(tree.children):
        for rank, child in enumerate(children):
            probs[child] = probs[node] * by_rank[rank]
    return sum(probs)


def _tree(parents):
    return DraftTree.of(range(len(parents)), parents, [0.0] * len(parents), "shape")


SHAPES = [(-1,)]
"""Every ordered tree of a root and up to five more, as parents in breadth-first order."""
for shape in SHAPES:
    if len(shape) < 6:
        SHAPES += [(*shape, parent) for parent in range(max(shape[-1], 0), len(shape))]
SHAPES = [_tree(shape) for shape in SHAPES]


@given(st.lists(rates, min_size=5, max_size=5), st.integers(0, 5), st.integers(0, 5))
def test_sequoia_shape_is_the_best_of_all_trees(by_rank, budget, depth):
    """For any rates: also where a later rank is accepted more often, and where ranks have a rate of 0."""
    shape = sequoia_shape(by_rank, budget, depth)
    tree = _tree(shape.parents)
    assert len(tree) <= budget + 1
    assert tree.depth.max() <= depth
    assert _tree_yield(tree, by_rank) == pytest.approx(shape.expected_tokens)
    fitting = [each for each in SHAPES if len(each) <= budget + 1 and each.depth.max() <= depth]
    best = max(_tree_yield(each, by_rank) for each in fitting)
    assert shape.expected_tokens == pytest.approx(best)
