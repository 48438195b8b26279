"""The pool of n-grams against a list, and its way back in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.lookahead import Pool

from speclab.sources.ngram_pool import NgramPool

GRAMS = st.lists(st.tuples(*[st.integers(0, 2)] * 3), max_size=12)
ADDITIONS = st.lists(GRAMS, max_size=6)
WIDTHS = st.integers(1, 4)


def held(pool):
    return {token: pool.after(token) for token in range(3)}, pool.size


def listed(width, additions):
    pool = Pool(width)
    for grams in additions:
        for gram in grams:
            pool.add(gram)
    return {token: tuple(gram[1:] for gram in pool.newest(token)) for token in range(3)}, len(pool.grams)


@given(WIDTHS, ADDITIONS)
def test_it_holds_what_a_list_holds(width, additions):
    pool = NgramPool(width)
    for count, grams in enumerate(additions, start=1):
        pool.add(grams)
        assert held(pool) == listed(width, additions[:count])


@given(WIDTHS, ADDITIONS, ADDITIONS, st.data())
def test_back_to_any_moment_and_on_from_there(width, additions, others, data):
    """Here by undoing, in another pool by a copy; the first pool stays as it is."""
    pool = NgramPool(width)
    moments = [pool.snapshot()]
    for grams in additions:
        pool.add(grams)
        moments.append(pool.snapshot())
    at = data.draw(st.integers(0, len(additions)))
    twin = NgramPool(width)
    twin.add([(0, 1, 2)])
    twin.restore(moments[at])
    assert held(twin) == listed(width, additions[:at])
    assert held(pool) == listed(width, additions)
    pool.restore(moments[at])
    for one in (pool, twin):
        for grams in others:
            one.add(grams)
        assert held(one) == listed(width, [*additions[:at], *others])


@given(WIDTHS, GRAMS, GRAMS, st.integers(0, 12))
def test_what_stops_an_addition_midway_is_undone(width, first, second, at):
    def interrupted():
        yield from second[:at]
        raise KeyboardInterrupt

    pool = NgramPool(width)
    pool.add(first)
    before = pool.snapshot()
    with pytest.raises(KeyboardInterrupt):
        pool.add(interrupted())
    pool.restore(before)
    assert held(pool) == listed(width, [first])
    pool.add(second)
    assert held(pool) == listed(width, [first, second])


def test_a_moment_that_was_gone_back_before_is_no_more():
    pool = NgramPool(2)
    start = pool.snapshot()
    pool.add([(1, 2, 3)])
    lost = pool.snapshot()
    pool.restore(start)
    pool.add([(1, 2, 2)])
    with pytest.raises(AssertionError, match="gone back to"):
        pool.restore(lost)
