"""The context index against a scan of the whole text."""

from __future__ import annotations

import pytest
from counted import Counted
from hypothesis import given
from hypothesis import strategies as st
from reference import lookup as reference

from speclab.sources.context import COMPARED, REACH, ContextIndex

TEXTS = st.lists(st.integers(0, 3), max_size=60)
LENGTHS = st.sets(st.integers(1, 6), min_size=1, max_size=4)
PICKS = st.sampled_from(["first", "last", "longest"])


def scanned(text, lengths, pick, limit):
    return reference.matches(text, sorted(lengths), pick, limit, COMPARED, REACH)


@given(TEXTS, LENGTHS, PICKS, st.integers(1, 25), st.lists(st.integers(0, 3), max_size=12))
def test_a_match_further_on_is_what_a_scan_finds(text, lengths, pick, limit, after):
    """Tokens taken to stand behind the text belong to what is looked for, and are no place to copy from."""
    index = ContextIndex(lengths)
    index.update(text)
    expected = reference.matches(text, sorted(lengths), pick, limit, COMPARED, REACH, after)
    assert index.match(pick, limit, after) == expected
    assert index.unanimous(after) == reference.unanimous(text, lengths, after)


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
        assert len(index) == len(text)
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


@pytest.mark.parametrize("pick", ["first", "last", "longest"])
@pytest.mark.parametrize("length", [64, 4096])
def test_no_work_grows_with_the_text(pick, length):
    """Reads of the text given, and of the index's own copy, for ten new tokens and a match after each."""
    index, text = ContextIndex([5, 4, 3]), Counted([1, 2, 3, 4, 5, 6, 7] * (length // 7))
    index.update(text)
    index._tokens, Counted.read = Counted(list.copy(index._tokens)), 0
    for token in [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]:
        text.append(token)
        index.update(text)
        assert len(index.match(pick, 20)) == 3
    per_token = 1 + (3 + 4 + 5) * 2 + 3 * (20 + 20)
    compared = 3 * COMPARED * 2 * (REACH + 1) if pick == "longest" else 0
    assert Counted.read <= 10 * (per_token + compared)
