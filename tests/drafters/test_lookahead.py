"""Lookahead decoding: window, pool and tree against a plain reference, and rows that are no candidates."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records import assert_consistent, paths_of
from support.table_runner import mixed_probs, random_probs, table_pair

import speclab

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
def test_every_iteration_looks_ahead_as_the_paper_does(strategy, prompt, room):
    """The tree is the newest n-grams that start with the root; the window moves down to the target's answers."""
    context = None if room is None else len(prompt) + 16 + room
    session = speclab.Session(
        table_pair(PROBS, None, VOCAB, context), strategy, prompt, max_new_tokens=16
    )
    grams = []
    columns = []
    read = 0
    n = strategy.ngram
    while not session.done:
        text = session.prompt_ids + session.token_ids
        room = 1000 if context is None else context - len(text)
        grams += [tuple(text[end - n : end]) for end in range(max(n, read + 1), len(text) + 1)]
        read = len(text)
        pool = newest(strategy.guesses, grams)
        step = session.step()
        assert_consistent(step)
        guesses = [guess[:room] for guess in pool.get(text[-1], ())]
        starts = Counter(guess[:end] for guess in guesses for end in range(len(guess) + 1))
        nodes = paths_of(step.tree)
        assert nodes.keys() == {*starts, ()}
        for path in nodes:
            share = starts[path] / starts[path[:-1]] if path else 1
            assert step.tree.log_prob[nodes[path]] == pytest.approx(np.log(share))
        route, *tried = step.events
        assert (route.values["guesses"], len(tried)) == (len(guesses), len(guesses))
        tokens = [text[-1], *(row.token for row in step.extra)] if step.extra else []
        width = len(tokens) // (n - 1)
        assert width == max(0, min(strategy.window, room - n + 3))
        columns = columns[:width] or [tokens[place::width] for place in range(width)]
        first = [text[-1], *(column[0] for column in columns[1:])]
        rows = {}
        for place, column in enumerate(columns):
            column[0] = first[place]
            for level in range(n - 1):
                path = (*text[:-1], *first[: place + 1], *column[1 : level + 1])
                rows[level, place] = column[level], place + level, int(np.argmax(PROBS(path)))
            column.append(rows[n - 2, place][2])
            grams.append(tuple(column))
            del column[0]
        due = [rows[at] for at in sorted(rows)][1:]
        assert [(row.token, row.depth, row.target_choice) for row in step.extra] == due


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


def newest(width, grams):
    """By first token, what follows it in different n-grams, newest first."""
    held = {}
    for token, *rest in reversed(grams):
        held.setdefault(token, {})[tuple(rest)] = None
    return {token: tuple(after)[:width] for token, after in held.items()}
