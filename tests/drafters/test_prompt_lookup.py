"""Prompt lookup: the chain that a scan finds, and nothing where there is none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from reference import lookup as reference
from table_runner import random_probs, table_pair

import speclab
from speclab.drafters.base import Context
from speclab.sources.context import REACH

PAIR = table_pair(random_probs(4, 1), None, 4)


def draft_once(strategy, text, depth=1000):
    return strategy.drafter(PAIR).draft(Context(text, depth, lambda: None))


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=50),
    st.tuples(st.integers(1, 6), st.integers(1, 6)).map(sorted),
    st.sampled_from(["first", "last", "longest"]),
    st.integers(1, 30),
    st.integers(0, 12),
)
def test_the_chain_is_what_a_scan_finds(text, lengths, pick, draft_tokens, depth):
    short, long = lengths
    strategy = speclab.PromptLookup(longest_ngram=long, shortest_ngram=short, pick=pick, draft_tokens=draft_tokens)
    tree = draft_once(strategy, text, depth).tree
    found = reference.matches(text, range(short, long + 1), pick, min(draft_tokens, depth), REACH)
    assert tree.token.tolist() == [text[-1], *(found[0][2] if found else ())]
    assert tree.parent.tolist() == [*range(-1, len(tree) - 1)]
    assert set(tree.source[1:]) <= {"context"}


def test_the_record_says_what_was_found_for_each_length():
    draft = draft_once(speclab.PromptLookup(longest_ngram=3, draft_tokens=4), [3, 1, 2, 3, 0, 2, 3])
    route, *matches = draft.events[:3]
    assert (route.kind, route.values["route"]) == ("route", "chain")
    assert [event.values for event in matches] == [
        {"ngram": 2, "position": 4, "copied": 4, "token": 0},
        {"ngram": 1, "position": 4, "copied": 4, "token": 0},
    ]
    assert draft_once(speclab.PromptLookup(), [3, 1]).events[0].values == {"route": "plain"}
