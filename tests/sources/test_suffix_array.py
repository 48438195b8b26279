"""The suffix array against a scan."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from reference import retrieval as reference

from speclab.sources.suffix_array import BREAK, SuffixArray

TEXTS = st.lists(st.integers(-1, 3), max_size=60)
PHRASES = st.lists(st.integers(0, 3), max_size=6)


@given(TEXTS, PHRASES)
def test_the_suffix_array_finds_what_a_scan_finds(text, phrase):
    array = SuffixArray(text)
    found = array.find(phrase)
    assert found.places == (len(reference.places([*text, BREAK], phrase)) if phrase else len(text) + 1)
    if found.places:
        after = {token: place.places for token, place in array.following(found)}
        assert after == reference.following(text, phrase)
        assert list(after) == sorted(after)


@given(TEXTS)
def test_suffixes_are_in_order(text):
    array = SuffixArray(text)
    suffixes = [array.tokens[start:].tolist() for start in array._order]
    assert suffixes == sorted(suffixes)
