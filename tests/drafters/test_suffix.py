"""The suffix automaton against scans of the text, and the drafters that copy by it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import lookup as reference
from support.interrupts import at_line
from support.records import paths_of
from support.table_runner import random_probs, table_pair

import speclab
from speclab.drafters.base import Context
from speclab.drafters.prompt_lookup import Copies
from speclab.drafters.suffix import BREAK, SuffixAutomaton

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=60)
LENGTHS = st.tuples(st.integers(1, 6), st.integers(1, 6)).map(sorted)
CHANGES = st.lists(st.tuples(st.integers(0, 60), TEXTS), min_size=1, max_size=8)
"""Each cuts the text somewhere and then adds other tokens."""
PAIR = table_pair(random_probs(4, 1), None, 4)


def places(text: list[int], phrase: list[int]) -> list[int]:
    """Where the phrase ends, by a scan of the text."""
    n = len(phrase)
    return [end for end in range(n, len(text) + 1) if text[end - n : end] == phrase]


def check(automaton: SuffixAutomaton, text: list[int], phrase: list[int]) -> None:
    """The longest suffix of the phrase in the text, how often it occurs, and what follows it how often."""
    state, length = automaton.match(phrase)
    matching = [n for n in range(len(phrase) + 1) if places(text, phrase[len(phrase) - n :])]
    assert length == matching[-1]
    if length:
        match = phrase[len(phrase) - length :]
        assert state.count == len(places(text, match))
        after = Counter(text[end] for end in places(text, match) if end < len(text))
        found = {token: share for token, _, share in automaton.continuations(state)}
        shares = {token: count / after.total() for token, count in after.items()}
        assert found == {token: share for token, share in shares.items() if token != BREAK}


@given(CHANGES, st.lists(st.integers(0, 3), max_size=8))
def test_a_growing_text_is_what_a_scan_finds_after_any_additions_and_cuts(changes, phrase):
    automaton = SuffixAutomaton(longest=9)
    text = []
    for cut, more in changes:
        text = text[:cut]
        automaton.read(text)
        text += more
        automaton.read(text)
        check(automaton, text, phrase)
        check(automaton, text, text[-8:])


def test_a_read_that_stopped_at_any_line_is_begun_again():
    text = [1, 2, 1, 2, 3, 1, 2, 1, 1, 3]
    stop = at_line("drafters/suffix")

    def stopped(number):
        automaton = SuffixAutomaton(longest=4)
        automaton.read(text[:5])
        with suppress(KeyboardInterrupt), stop(number, KeyboardInterrupt()) as seen:
            automaton.read(text)
        automaton.read(text)
        check(automaton, text, text[-4:])
        check(automaton, text, [2, 1])
        return len(seen)

    lines = stopped(0)
    assert lines > 60
    assert [stopped(number) for number in range(1, lines + 1)] == [*range(1, lines + 1)]


@given(st.lists(TEXTS, max_size=4), st.lists(st.integers(0, 3), max_size=30))
def test_texts_that_do_not_grow_have_counts_of_phrases_of_any_length(texts, phrase):
    whole = [token for text in texts for token in (*text, BREAK)]
    automaton = SuffixAutomaton.of(whole)
    check(automaton, whole, phrase)
    assert len(automaton.states) <= max(1, 2 * len(whole)), "about one state a token"


@given(CHANGES, LENGTHS, st.integers(0, 25))
def test_copies_are_what_a_scan_finds_after_any_additions_and_cuts(changes, lengths, limit):
    short, long = lengths
    copies = Copies(short, long)
    text = []
    for cut, more in changes:
        kept = text[:cut]
        for text in (kept, kept + more):
            if text:
                expected = reference.matches(text, range(short, long + 1), limit) if limit else []
                assert copies.matches(text, limit) == expected


def test_prompt_lookup_drafts_the_longest_match_and_records_every_one():
    text = [0, 1, 2, 3, 1, 2]
    draft = speclab.PromptLookup(draft_tokens=4).drafter(PAIR).draft(Context(text, 3, lambda: None))
    assert draft.tree.token.tolist() == [2, 3, 1, 2]
    assert draft.tree.parent.tolist() == [-1, 0, 1, 2]
    assert [event.values.get("ngram") for event in draft.events] == [2, 2, 1]


# Suffix decoding


def suffix_tree(text: list[int], **settings):
    """The draft of suffix decoding after a text: its paths, and the values of its route."""
    strategy = speclab.SuffixDecoding(**{"min_probability": 0, "node_budget": 99, **settings})
    draft = strategy.drafter(PAIR).draft(Context(text, 40, lambda: None))
    return [*paths_of(draft.tree)][1:], draft.events[0].values


def test_the_tree_is_the_frequencies_after_the_match_and_as_large_as_the_match_allows():
    text = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 0, 1]
    # after "0 1" comes 2, three times of three; after "0 1 2" comes 3 twice and 0 once
    paths, values = suffix_tree(text, factor=2)
    assert paths == [(2,), (2, 3), (2, 3, 0), (2, 3, 0, 1)]
    score = pytest.approx(1 + 3 * 2 / 3)
    found = {"by": "suffix", "route": "context", "match": 2, "occurrences": 3, "score": score}
    assert values == found
    paths, _ = suffix_tree(text, factor=3)
    assert paths == [(2,), (2, 3), (2, 0), (2, 3, 0), (2, 3, 0, 1), (2, 3, 0, 1, 2)]
    assert suffix_tree(text, factor=1)[0] == [(2,), (2, 3)]
    assert suffix_tree(text, factor=2, longest_match=1)[0] == [(2,), (2, 3)]
    assert (2, 0) not in suffix_tree(text, factor=3, min_probability=0.5)[0]
    assert suffix_tree(text, factor=2, node_budget=3)[0] == [(2,), (2, 3)]
    assert suffix_tree([0, 1, 2, 3]) == ([], {"by": "suffix", "route": "plain", "match": 0})
