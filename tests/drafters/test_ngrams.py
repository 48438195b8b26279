"""Earlier occurrences against a scan of the text, and prompt lookup's chain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from reference import lookup as reference
from table_runner import random_probs, table_pair

import speclab
from speclab.drafters.base import Context
from speclab.drafters.ngrams import NgramIndex

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=60)
LENGTHS = st.tuples(st.integers(1, 6), st.integers(1, 6)).map(sorted)
PICKS = st.sampled_from(["first", "last"])


@given(st.lists(st.tuples(st.integers(0, 60), TEXTS), min_size=1, max_size=8), LENGTHS, PICKS, st.integers(0, 25))
def test_matches_are_what_a_scan_finds_after_any_additions_and_cuts(changes, lengths, pick, limit):
    """Each change cuts the text somewhere, which the index is told, and then adds other tokens."""
    short, long = lengths
    index, text = NgramIndex(short, long, pick), []
    for cut, more in changes:
        kept = text[:cut]
        for text in (kept, kept + more):
            expected = reference.matches(text, range(short, long + 1), pick, limit) if limit else []
            assert index.matches(text, limit) == expected


def test_which_occurrence():
    """`1 2` is followed by 3, 4 and 5; the text ends in `1 2`."""
    text = [7, 1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 5, 7, 1, 2]
    assert [NgramIndex(2, 2, pick).matches(text, 1)[0].tokens for pick in ("first", "last")] == [(3,), (5,)]


def test_a_text_that_repeats_itself_is_continued():
    matches = NgramIndex(3, 3).matches([1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3], 10)
    assert matches == [(3, 7, (4, 1, 2, 3, 4, 1, 2, 3, 4, 1))]


PAIR = table_pair(random_probs(4, 1), None, 4)


def draft_once(strategy, text, depth=1000):
    return strategy.drafter(PAIR).draft(Context(text, depth, lambda: None))


@given(TEXTS, LENGTHS, PICKS, st.integers(1, 30), st.integers(0, 12))
def test_prompt_lookup_drafts_the_chain_that_a_scan_finds(text, lengths, pick, draft_tokens, depth):
    short, long = lengths
    strategy = speclab.PromptLookup(longest_ngram=long, shortest_ngram=short, pick=pick, draft_tokens=draft_tokens)
    tree = draft_once(strategy, text, depth).tree
    limit = min(draft_tokens, depth)
    matches = reference.matches(text, range(short, long + 1), pick, limit) if limit else []
    assert tree.token.tolist() == [text[-1], *(matches[0][2] if matches else ())]
    assert tree.parent.tolist() == [*range(-1, len(tree) - 1)]
    assert set(tree.source[1:]) <= {"context"}


def test_the_record_has_the_match_of_each_length():
    draft = draft_once(speclab.PromptLookup(longest_ngram=3, draft_tokens=4), [3, 1, 2, 3, 0, 2, 3])
    route, *matches = draft.events
    assert (route.kind, route.values["route"]) == ("route", "chain")
    assert [event.values for event in matches] == [
        {"ngram": 2, "position": 4, "copied": 4, "token": 0},
        {"ngram": 1, "position": 4, "copied": 4, "token": 0},
    ]
    assert draft_once(speclab.PromptLookup(), [3, 1]).events[0].values == {"route": "plain"}
