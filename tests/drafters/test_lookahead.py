"""Lookahead decoding: window, pool and tree against a plain reference, rows that are no candidates, one target call."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import assert_consistent, assert_same
from reference.lookahead import Lookahead as Reference
from reference.lookahead import Pool
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.lookahead import NgramPool
from speclab.trace.files import load_trace

VOCAB = 6
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-2:]), 0.8)
PROMPT = [5, 0, 2, 4, 3, 1, 1, 5, 0, 2]


def choose(path):
    return int(np.argmax(PROBS(tuple(path))))


@st.composite
def lookaheads(draw: st.DrawFn) -> speclab.Lookahead:
    bounds = {"window": (1, 6), "ngram": (3, 5), "guesses": (1, 4), "pool_per_token": (1, 5), "window_seed": (0, 3)}
    values = {name: draw(st.integers(*bound)) for name, bound in bounds.items()}
    return speclab.Lookahead(**values, text_ngrams=draw(st.booleans()))


@settings(max_examples=40)
@given(lookaheads(), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12), st.none() | st.integers(0, 12))
def test_every_iteration_is_that_of_the_plain_reference(strategy, prompt, room):
    """Candidates and their shares, rows of the window and the target's answers, up to the end of the context."""
    context = None if room is None else len(prompt) + 16 + room
    session = speclab.Session(table_pair(PROBS, None, VOCAB, context), strategy, prompt, max_new_tokens=16)
    reference = Reference(choose, strategy.model_dump())
    while not session.done:
        text = session.prompt_ids + session.token_ids
        paths, rows, size = reference.iteration(text, 1000 if context is None else context - len(text))
        step = session.step()
        assert_consistent(step)
        got = {tuple(step.tree.token[list(step.tree.path(node))[1:]].tolist()): node for node in range(len(step.tree))}
        assert got.keys() == paths.keys() | {()}
        for path, share in paths.items():
            assert step.tree.log_prob[got[path]] == pytest.approx(np.log(share))
        assert [(row.token, row.depth, row.target_choice) for row in step.extra] == rows
        assert step.events[0].values["pool"] == size


def run(strategy, **settings):
    session = speclab.Session(table_pair(PROBS, None, VOCAB), strategy, PROMPT, **({"max_new_tokens": 40} | settings))
    session.run()
    return session


def test_a_row_of_the_window_sees_the_first_level_up_to_its_column_and_its_column():
    """Three columns, three levels: rows 1 and 2 of the first level, then columns 0 to 2 of each further level."""
    step = run(speclab.Lookahead(window=3, ngram=4)).steps[2]
    n = len(step.tree)
    root, *rows = 0, *range(n, n + 8)
    one, two, a, b, c, d, e, f = rows
    assert [row.sees for row in step.extra] == [
        (root, one), (root, one, two),
        (root, a), (root, one, b), (root, one, two, c),
        (root, a, d), (root, one, b, e), (root, one, two, c, f),
    ]  # fmt: skip
    assert [row.depth for row in step.extra] == [1, 2, 1, 2, 3, 2, 3, 4]
    assert {row.prefix_seen for row in step.extra} == {step.prefix_length}
    assert step.mask.shape == (n, n)


def test_the_window_looks_at_no_draw():
    """With other noise the first pass answers the same; the text is that of plain sampling."""
    sampling = {"temperature": 1.2, "max_new_tokens": 30}
    first = [run(speclab.Lookahead(window=4), seed=seed, **sampling).steps[0] for seed in range(6)]
    alike = [step for step in first if step.tree.token[0] == first[0].tree.token[0]]
    assert len({step.committed for step in alike}) > 1
    assert len({tuple(row.target_choice for row in step.extra) for step in alike}) == 1


NGRAMS = st.lists(st.tuples(*[st.integers(0, 2)] * 3), max_size=12)
BATCHES = st.lists(NGRAMS, max_size=6)


def held(pool):
    return {token: pool.after(token) for token in range(3)}, pool.size


def listed(width, batches):
    pool = Pool(width)
    for batch in batches:
        for ngram in batch:
            pool.add(ngram)
    return {token: tuple(ngram[1:] for ngram in pool.newest(token)) for token in range(3)}, len(pool.grams)


@given(st.integers(1, 4), BATCHES, BATCHES, st.data())
def test_the_pool_holds_what_a_list_holds_and_goes_back_to_any_state(width, batches, others, data):
    pool = NgramPool(width)
    states = [pool.snapshot()]
    for count, batch in enumerate(batches, start=1):
        pool.add(batch)
        assert held(pool) == listed(width, batches[:count])
        states.append(pool.snapshot())
    at = data.draw(st.integers(0, len(batches)))
    other = NgramPool(width)
    other.add([(0, 1, 2)])
    other.restore(states[at])
    assert held(pool) == listed(width, batches), "another pool that goes back leaves this one as it is"
    pool.restore(states[at])
    for each in (pool, other):
        assert held(each) == listed(width, batches[:at])
        for batch in others:
            each.add(batch)
        assert held(each) == listed(width, [*batches[:at], *others])


def test_the_record_tells_the_ngrams_tried_and_keeps_the_window(tmp_path):
    session = run(speclab.Lookahead(window=4, ngram=4, guesses=3))
    for step in session.steps:
        route, *rest = step.events
        tried = [event for event in rest if event.kind == "match"]
        assert route.values["guesses"] == len(tried) <= 3
        assert route.values["route"] == ("guesses" if tried else "plain")
        children = {int(step.tree.token[node]) for node in step.tree.children[0]}
        assert {event.values["token"] for event in tried} == children
    assert_same(load_trace(session.trace.save(tmp_path / "run")).steps, session.trace.steps)
