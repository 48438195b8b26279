"""Earlier occurrences against a scan of the text, and prompt lookup's chain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from reference import lookup as reference
from support.table_runner import random_probs, table_pair

import speclab
from speclab.drafters.base import Context
from speclab.drafters.prompt_lookup import NgramIndex

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=60)
LENGTHS = st.tuples(st.integers(1, 6), st.integers(1, 6)).map(sorted)
PICKS = st.sampled_from(["first", "last"])
PAIR = table_pair(random_probs(4, 1), None, 4)


@given(
    st.lists(st.tuples(st.integers(0, 60), TEXTS), min_size=1, max_size=8),
    LENGTHS,
    PICKS,
    st.integers(0, 25),
)
def test_matches_are_what_a_scan_finds_after_any_additions_and_cuts(changes, lengths, pick, limit):
    """Each change cuts the text somewhere, which the index notices, and then adds other tokens."""
    short, long = lengths
    index = NgramIndex(short, long, pick)
    text = []
    for cut, more in changes:
        kept = text[:cut]
        for text in (kept, kept + more):
            expected = reference.matches(text, range(short, long + 1), pick, limit) if limit else []
            assert index.matches(text, limit) == expected


@given(TEXTS, LENGTHS, PICKS, st.integers(1, 30), st.integers(0, 12))
def test_prompt_lookup_drafts_the_chain_that_a_scan_finds_and_records_every_match(
    text, lengths, pick, draft_tokens, depth
):
    short, long = lengths
    strategy = speclab.PromptLookup(
        longest_ngram=long, shortest_ngram=short, pick=pick, draft_tokens=draft_tokens
    )
    draft = strategy.drafter(PAIR).draft(Context(text, depth, lambda: None))
    limit = min(draft_tokens, depth)
    matches = reference.matches(text, range(short, long + 1), pick, limit) if limit else []
    assert draft.tree.token.tolist() == [text[-1], *(matches[0][2] if matches else ())]
    assert draft.tree.parent.tolist() == [*range(-1, len(draft.tree) - 1)]
    assert set(draft.tree.source[1:]) <= {"context"}
    route, *events = [event.values for event in draft.events]
    assert route["route"] == ("chain" if matches else "plain")
    assert [(each["ngram"], each["position"], each["token"]) for each in events] == [
        (length, position, tokens[0]) for length, position, tokens in matches
    ]
