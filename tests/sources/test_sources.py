"""What strategies without a draft search: context matches, n-grams, a suffix tree, transitions."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import lookup, retrieval, transitions
from reference.lookahead import Pool

from speclab.drafters.lookahead import NgramPool
from speclab.models.answer import Answer
from speclab.sources import suffix_tree
from speclab.sources.context import REACH, ContextIndex
from speclab.sources.suffix_tree import SuffixTree
from speclab.sources.transitions import TransitionTable

TEXTS = st.lists(st.integers(0, 3), max_size=60)
LENGTHS = st.sets(st.integers(1, 6), min_size=1, max_size=4)
PICKS = st.sampled_from(["first", "last", "longest"])


def scanned(text, lengths, pick, limit):
    return lookup.matches(text, sorted(lengths), pick, limit, REACH)


@given(TEXTS, LENGTHS, PICKS, st.integers(1, 25), st.lists(st.integers(0, 3), max_size=12))
def test_a_match_further_on_is_what_a_scan_finds(text, lengths, pick, limit, after):
    """Tokens taken to stand behind the text belong to what is looked for, and are no place to copy from."""
    index = ContextIndex(lengths)
    index.update(text)
    expected = lookup.matches(text, sorted(lengths), pick, limit, REACH, after)
    assert index.match(pick, limit, after) == expected
    assert index.unanimous(after) == lookup.unanimous(text, lengths, after)


@given(st.lists(st.tuples(st.integers(0, 60), TEXTS), max_size=12), LENGTHS, PICKS)
def test_after_any_updates_and_cuts_it_equals_a_scan(changes, lengths, pick):
    """Each change cuts the text somewhere, which the index is told, and then goes on in another way."""
    index, text = ContextIndex(lengths), []
    for cut, more in changes:
        text = text[:cut]
        index.update(text)
        assert index.match(pick, 9) == scanned(text, lengths, pick, 9)
        text = text + more
        index.update(text)
        assert index.match(pick, 9) == scanned(text, lengths, pick, 9)


def test_which_occurrence():
    """`7 1 2` stands before 3, `9 1 2` before 4 and 5; the text ends in `7 1 2`."""
    text = [7, 1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 5, 7, 1, 2]
    index = ContextIndex([2])
    index.update(text)
    assert [index.match(pick, 1)[0].tokens for pick in ("first", "last", "longest")] == [(3,), (5,), (3,)]


def test_a_text_that_repeats_itself_is_continued():
    index = ContextIndex([3])
    index.update([1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3])
    assert index.match("last", 10)[0] == (3, 7, (4, 1, 2, 3, 4, 1, 2, 3, 4, 1))


PIECES = st.lists(st.integers(-1, 3), max_size=60)
PHRASES = st.lists(st.integers(0, 3), max_size=6)


@pytest.mark.parametrize("scanned", [0, 1 << 20], ids=["sorted", "scanned"])
@given(text=PIECES, parts=st.integers(0, 3), phrase=PHRASES)
def test_the_suffix_tree_finds_what_a_scan_finds(scanned, text, parts, phrase):
    """Every suffix of a phrase with its places, and every token that follows it with its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix_tree, "SCANNED", scanned)
        cut = len(text) * parts // 3
        tree = SuffixTree(text[:cut]).extended(text[cut:])
        found = tree.suffixes(phrase)
        for length in range(1, len(phrase) + 1):
            ends = retrieval.places(text, phrase[-length:])
            if length > len(found):
                assert not ends
                continue
            assert found[length - 1].tolist() == ends
            after = {token: places.tolist() for token, places in tree.children(found[length - 1])}
            assert {token: len(places) for token, places in after.items()} == retrieval.following(
                text, phrase[-length:]
            )
            assert all(text[end - 1] == token for token, places in after.items() for end in places)
            assert list(after) == sorted(after)


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


VOCAB, WIDTH = 9, 4


def batch(seed: int, rows: int) -> tuple[list[int], list[int], torch.Tensor]:
    random = np.random.default_rng(seed)
    previous = random.integers(-1, VOCAB, rows).tolist()
    return previous, random.integers(0, VOCAB, rows).tolist(), torch.tensor(random.normal(0, 3, (rows, VOCAB)))


BATCHES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 12)), max_size=8)
PAIRS = st.sampled_from([0, 1, 5, 1000])


def harvest(table: TransitionTable, previous, tokens, logits: torch.Tensor, order=None) -> None:
    table.harvest(previous, tokens, Answer(logits).topk(table.width), order)


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
        harvest(table, previous, tokens, torch.cat([logits, rest], 1))
    return table


@given(BATCHES, PAIRS, st.integers(0, 3))
def test_a_table_is_a_dict_of_dicts(batches, pairs, hashed):
    """Dense, or hashed with as many tokens and pairs as fit; then the first in is the first out."""
    table = go_on(new(pairs, hashed), batches)
    plain = transitions.Table(WIDTH, min(pairs, hashed) if hashed else pairs, hashed or VOCAB)
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
        harvest(table, *batch(seed, 4))
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
        harvest(table, [4, 4, 4], [5, 5, 5], logits, order)
        assert table.successors(4, 5)[0][0] == table.successors(8, 5)[0][0] == best


def test_the_counts_tell_new_rows_from_old():
    table = TransitionTable(VOCAB, WIDTH, 5)
    harvest(table, [0, 1, 2], [3, 4, 3], torch.randn(3, VOCAB))
    assert (table.filled, table.refreshed, table.bigrams) == (2, 0, 3)
    harvest(table, [0, 1], [3, 5], torch.randn(2, VOCAB))
    assert (table.filled, table.refreshed, table.bigrams) == (3, 1, 4)


def test_impossible_tokens_are_no_successors():
    table = TransitionTable(VOCAB, WIDTH)
    harvest(table, [-1], [0], torch.tensor([[0.0, 1.0, *[-torch.inf] * (VOCAB - 2)]]))
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
    harvest(table, [-1, 5], [149_998, 3], logits)
    assert table.successors(-1, 149_998)[0][0] == 149_999
    assert table.successors(0, 3)[0][0] == 7
