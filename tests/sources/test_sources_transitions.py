"""The transition table against a dict of dicts; going back against a table that never went on."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import transitions as reference

from speclab.sources.transitions import TransitionTable

VOCAB, WIDTH = 9, 4


def batch(seed: int, rows: int) -> tuple[list[int], list[int], torch.Tensor]:
    random = np.random.default_rng(seed)
    previous = random.integers(-1, VOCAB, rows).tolist()
    return previous, random.integers(0, VOCAB, rows).tolist(), torch.tensor(random.normal(0, 3, (rows, VOCAB)))


BATCHES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 12)), max_size=8)
PAIRS = st.sampled_from([0, 1, 5, 1000])


def contents(table: TransitionTable) -> dict:
    """All that can be asked of a table."""
    rows = {(before, token): table.successors(before, token) for before in range(-1, VOCAB) for token in range(VOCAB)}
    return rows | {"filled": table.filled, "refreshed": table.refreshed, "bigrams": table.bigrams}


WIDE, KEY_BYTES = 600, WIDTH * 8 + 256


def new(pairs: int, hashed: int = 0) -> TransitionTable:
    """A dense table; or one of a vocabulary so wide that just `hashed` tokens fit."""
    return (
        TransitionTable(WIDE, WIDTH, pairs, 2 * hashed * KEY_BYTES) if hashed else TransitionTable(VOCAB, WIDTH, pairs)
    )


def go_on(table: TransitionTable, batches) -> TransitionTable:
    for seed, rows in batches:
        previous, tokens, logits = batch(seed, rows)
        rest = torch.full((rows, table.vocabulary - VOCAB), -50.0)
        table.harvest(previous, tokens, torch.cat([logits, rest], 1))
    return table


@given(BATCHES, PAIRS, st.integers(0, 3))
def test_a_table_is_a_dict_of_dicts(batches, pairs, hashed):
    """Dense, or hashed with as many tokens and pairs as fit; then the first in is the first out."""
    table = go_on(new(pairs, hashed), batches)
    plain = reference.Table(WIDTH, min(pairs, hashed) if hashed else pairs, hashed or VOCAB)
    for seed, rows in batches:
        previous, tokens, logits = batch(seed, rows)
        plain.harvest(previous, tokens, logits.tolist())
    for before in range(-1, VOCAB):
        for token in range(VOCAB):
            ids, scores = table.successors(before, token)
            expected = plain.successors(before, token)
            assert [id_ for id_, score in zip(ids, scores, strict=True) if score] == list(expected)
            assert [score for score in scores if score] == pytest.approx(list(expected.values()), rel=1e-5)
    assert table.dense == (not hashed)
    assert table.filled == len({key for key in plain.after if len(key) == 1})
    assert table.bigrams == len({key for key in plain.after if len(key) == 2})
    assert not hashed or table.bytes <= 2 * hashed * KEY_BYTES


@given(BATCHES, BATCHES, PAIRS, st.integers(0, 3))
def test_going_back_leaves_a_table_that_never_went_on(before, after, pairs, hashed):
    table = go_on(new(pairs, hashed), before)
    state = table.snapshot()
    then = contents(go_on(table, after))
    copy = new(pairs, hashed)
    copy.restore(state)
    assert contents(copy) == contents(go_on(new(pairs, hashed), before)), "a copy of the past"
    assert contents(table) == then, "which leaves the table as it is"
    table.restore(state)
    assert contents(table) == contents(copy)
    assert contents(go_on(table, after)) == contents(go_on(copy, after)) == then, "and both go on alike"


def test_a_moment_that_nobody_keeps_is_freed():
    table = TransitionTable(VOCAB, WIDTH, 5)
    first = table.snapshot()
    moments = []
    for seed in range(5):
        table.harvest(*batch(seed, 4))
        moments.append(weakref.ref(table.snapshot().checkpoint))
    gc.collect()
    assert all(moment() is not None for moment in moments), "the way back to the first moment"
    del first
    gc.collect()
    assert [moment() is not None for moment in moments] == [False] * 4 + [True]


def test_where_a_token_stands_twice_the_last_row_in_order_counts():
    logits = torch.eye(VOCAB)[[1, 2, 3]] * 9
    for order, best in ((None, 3), ([2, 0, 1], 2), ([1, 2, 0], 1)):
        table = TransitionTable(VOCAB, WIDTH, 5)
        table.harvest([4, 4, 4], [5, 5, 5], logits, order)
        assert table.successors(4, 5)[0][0] == table.successors(8, 5)[0][0] == best


def test_the_counts_tell_new_rows_from_old():
    table = TransitionTable(VOCAB, WIDTH, 5)
    table.harvest([0, 1, 2], [3, 4, 3], torch.randn(3, VOCAB))
    assert (table.filled, table.refreshed, table.bigrams) == (2, 0, 3)
    table.harvest([0, 1], [3, 5], torch.randn(2, VOCAB))
    assert (table.filled, table.refreshed, table.bigrams) == (3, 1, 4)


def test_impossible_tokens_are_no_successors():
    table = TransitionTable(VOCAB, WIDTH)
    table.harvest([-1], [0], torch.tensor([[0.0, 1.0, *[-torch.inf] * (VOCAB - 2)]]))
    ids, scores = table.successors(-1, 0)
    assert ids[:2] == [1, 0]
    assert scores[2:] == [0.0, 0.0]


@pytest.mark.parametrize("megabytes", [1, 16, 64])
def test_a_large_vocabulary_is_bounded(megabytes):
    """150,000 tokens: dense where they fit half of the bound, 12 MB of 10 successors each; else hashed."""
    table = TransitionTable(150_000, 10, 1 << 20, megabytes << 20)
    assert table.bytes <= megabytes << 20
    assert table.dense == (megabytes >= 32)
    logits = torch.zeros(2, 150_000)
    logits[0, 149_999] = logits[1, 7] = 30.0
    table.harvest([-1, 5], [149_998, 3], logits)
    assert table.successors(-1, 149_998)[0][0] == 149_999
    assert table.successors(0, 3)[0][0] == 7
