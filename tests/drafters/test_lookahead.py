"""Lookahead decoding: window, pool and tree against a plain reference, and rows that are no candidates."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.lookahead import Lookahead as Reference
from reference.lookahead import Pool
from support.records import assert_consistent, paths_of
from support.table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.lookahead import NgramPool

VOCAB = 6
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-2:]), 0.8)
PROMPT = [5, 0, 2, 4, 3, 1, 1, 5, 0, 2]


@st.composite
def lookaheads(draw: st.DrawFn) -> speclab.Lookahead:
    bounds = {
        "window": (1, 6),
        "ngram": (3, 5),
        "guesses": (1, 4),
    }
    values = {name: draw(st.integers(*bound)) for name, bound in bounds.items()}
    return speclab.Lookahead(**values)


@given(
    lookaheads(),
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12),
    st.none() | st.integers(0, 12),
)
def test_every_iteration_is_that_of_the_plain_reference(strategy, prompt, room):
    """Candidates and their shares, rows of the window and the target's answers, up to the end of the context."""
    context = None if room is None else len(prompt) + 16 + room
    session = speclab.Session(
        table_pair(PROBS, None, VOCAB, context), strategy, prompt, max_new_tokens=16
    )
    reference = Reference(lambda path: int(np.argmax(PROBS(tuple(path)))), strategy.model_dump())
    while not session.done:
        text = session.prompt_ids + session.token_ids
        paths, rows, size = reference.iteration(
            text, 1000 if context is None else context - len(text)
        )
        step = session.step()
        assert_consistent(step)
        nodes = paths_of(step.tree)
        assert nodes.keys() == paths.keys() | {()}
        for path, share in paths.items():
            assert step.tree.log_prob[nodes[path]] == pytest.approx(np.log(share))
        # The runner answers from what a row sees, so an answer of the reference's says that it sees
        # the right rows.
        assert [(row.token, row.depth, row.target_choice) for row in step.extra] == rows
        route, *tried = step.events
        assert (route.values["pool"], route.values["guesses"]) == (size, len(tried))


def test_the_window_looks_at_no_draw():
    """With other noise the first pass answers the same."""
    pair = table_pair(PROBS, None, VOCAB)
    first = [
        speclab.Session(
            pair, speclab.Lookahead(window=4), PROMPT, max_new_tokens=30, temperature=1.2, seed=seed
        ).step()
        for seed in range(6)
    ]
    alike = [step for step in first if step.tree.token[0] == first[0].tree.token[0]]
    assert len({step.committed for step in alike}) > 1
    assert len({tuple(row.target_choice for row in step.extra) for step in alike}) == 1


NGRAMS = st.lists(st.tuples(*[st.integers(0, 2)] * 3), max_size=12)
BATCHES = st.lists(NGRAMS, max_size=6)


def held(pool):
    return {token: pool.after(token) for token in range(3)}, pool.size


def listed(width, batches):
    pool = Pool(width)
    for ngram in chain.from_iterable(batches):
        pool.add(ngram)
    return {token: tuple(ngram[1:] for ngram in pool.newest(token)) for token in range(3)}, len(
        pool.grams
    )


@given(st.integers(1, 4), BATCHES, BATCHES)
def test_the_pool_holds_what_a_list_holds_and_goes_back(width, before, after):
    pool = NgramPool(width)
    other = NgramPool(width)
    for batch in before:
        pool.add(batch)
    state = pool.snapshot()
    for batch in after:
        pool.add(batch)
    other.add([(0, 1, 2)])
    other.restore(state)
    assert held(other) == listed(width, before)
    assert held(pool) == listed(width, before + after), (
        "another pool that goes back leaves this one as it is"
    )
    for batch in after:
        other.add(batch)
    assert held(other) == held(pool)
