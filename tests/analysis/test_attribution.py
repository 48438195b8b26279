"""Accepted tokens by the sources of their path."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.analysis.attribution import (
    Attribution,
    SourceRate,
    attribution,
    source_rates,
    spine_bound,
    spine_widths,
    synergy,
)
from speclab.drafters.goose import Goose
from speclab.engine.acceptance import sample_and_match
from speclab.prompts import examples


def step(*sources: str):
    """A step whose accepted path has these sources."""
    return SimpleNamespace(
        tree=SimpleNamespace(source=("target", *sources)), accepted=tuple(range(1, len(sources) + 1))
    )


def test_each_path_is_of_one_kind():
    paths = [("context",) * 3, ("context", "context", "transition", "transition"), ("transition",), (), ("context",)]
    assert attribution(step(*path) for path in paths) == Attribution(4, 4, 1, 2)
    assert attribution([]).accepted == 0


def test_synergy_is_over_the_best_baseline():
    assert synergy(3.0, [1.5, 2.4]) == pytest.approx(1.25)
    with pytest.raises(ValueError, match="baseline"):
        synergy(3.0, [])


RIGHT, WRONG = 1, 0


def judged(parents, sources, tokens):
    """A verified tree: a node is right where its token is `RIGHT`, and the walk takes the first right child."""
    tree = speclab.DraftTree.of(tokens, parents, [0.0] * len(parents), sources)
    path = sample_and_match(tree, lambda node: RIGHT).accepted
    on_path = {0, *path}
    verdicts = [
        "accepted" if node in on_path else "rejected" if parent in on_path else "not reached"
        for node, parent in enumerate(parents)
    ]
    nodes = tuple(SimpleNamespace(verdict=verdict) for verdict in verdicts)
    return SimpleNamespace(tree=tree, nodes=nodes, accepted=path, committed=(RIGHT,) * (len(path) + 1), bonus=RIGHT)


C, T = "context", "transition"
SAVED = judged([-1, 0, 0, 1, 1, 1, 3, 5], ["target", C, T, C, T, T, C, T], [1, 1, 0, 0, 0, 1, 1, 0])
"""A right copy beside a wrong guess; a wrong copy beside two guesses, the second right; two nodes behind these."""


def test_three_measures_of_one_tree_by_hand():
    rates = source_rates([SAVED])
    assert rates[C] == SourceRate(drafted=3, tried=2, places=2, accepted=1, first=1)
    assert rates[T] == SourceRate(drafted=4, tried=3, places=2, accepted=1, first=0)
    assert (rates[T].share, rates[T].rate, rates[T].first_rate) == (1 / 4, 1 / 3, 0)
    assert source_rates([SAVED, SAVED])[T] == rates[T] + rates[T]
    assert SourceRate().share == SourceRate().rate == SourceRate().first_rate == 0


def test_widths_are_those_before_each_spine_node():
    assert spine_widths(SAVED.tree) == (1, 2, 0)
    assert spine_widths(speclab.DraftTree.root(5)) == ()
    assert (source_rates([]), spine_bound([], 0.5, 0.1)) == ({}, 1)


def test_rates_and_kinds_of_path_of_a_run_add_up_to_its_metrics():
    probs = mixed_probs(random_probs(6, 3), lambda path: random_probs(6, 4)(path[-2:]), 0.8)
    strategy = Goose(bypass="off", node_budget=20)
    session = speclab.Session(table_pair(probs, None, 6), strategy, [1, 2, 3, 1, 2, 3], max_new_tokens=120)
    session.run()
    rates, kinds, counts = source_rates(session.steps), attribution(session.steps), session.metrics.counts
    assert sum(rate.accepted for rate in rates.values()) == kinds.accepted == counts.accepted
    assert sum(rate.drafted for rate in rates.values()) == counts.drafted
    assert min(kinds.spine_only, kinds.spine_continuation, kinds.branch_only, kinds.continued) > 0
    for rate in rates.values():
        assert rate.drafted >= rate.tried >= rate.places >= rate.first
        assert rate.tried >= rate.accepted >= rate.first


def spine_steps(right, branches):
    """Spine trees with one branch of one token at each node; `[n, L]` bool: whether each copy and branch is right."""
    length = right.shape[1]
    spine = range(1, 2 * length, 2)
    parents = [-1, *(above for above in (0, *spine[:-1]) for _ in range(2))]
    for copies, guesses in zip(right, branches, strict=True):
        tokens = [RIGHT, *np.stack([copies, guesses & ~copies], axis=1).ravel()]
        yield judged(parents, ["target", *(C, T) * length], tokens)


def test_the_bound_is_the_mean_where_tokens_are_independent():
    random = np.random.default_rng(5)
    steps = list(spine_steps(random.random((2000, 5)) < 0.7, random.random((2000, 5)) < 0.3))
    rates = source_rates(steps)
    assert (rates[C].rate, rates[T].rate) == (pytest.approx(0.7, abs=0.02), pytest.approx(0.3, abs=0.03))
    measured = np.mean([len(step.committed) for step in steps])
    assert spine_bound(steps, rates[C].rate, rates[T].rate) == pytest.approx(measured, abs=0.05)


def test_the_bound_is_too_high_where_copies_are_right_together():
    together = np.repeat(np.random.default_rng(6).random((400, 1)) < 0.4, 10, axis=1)
    steps = list(spine_steps(together, np.zeros_like(together)))
    rates, measured = source_rates(steps), np.mean([len(step.committed) for step in steps])
    assert spine_bound(steps, rates[C].rate, rates[T].rate) > measured + 0.5
    assert spine_bound(steps, rates[C].share, rates[T].share) < measured


@given(st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=3), min_size=1, max_size=6))
def test_with_shares_the_bound_holds_whatever_was_right(rows):
    right = np.array(rows)
    steps = list(spine_steps(right[:, :, 0], right[:, :, 1]))
    copied, guessed = source_rates(steps)[C].share, source_rates(steps)[T].share
    if copied >= guessed:
        measured = np.mean([len(step.committed) for step in steps])
        assert spine_bound(steps, copied, guessed) <= measured + 1e-9


@pytest.fixture(scope="module")
def pair():
    return speclab.load_pair(device="cpu")


@pytest.mark.model
@pytest.mark.parametrize("kind", ["prose", "code", "maths", "repetitive"])
def test_proposition_1_is_below_what_the_shipped_models_give(pair, kind):
    """Appendix E.4 on our own runs, over all iterations; with shares, and with the sharper rates a try."""
    steps = []
    for prompt in examples(kind)[:3]:
        session = speclab.Session(pair, Goose(), prompt.text, max_new_tokens=64)
        session.run()
        steps += [step for step in session.steps if step.bonus is not None]
    measured, rates = np.mean([len(step.committed) for step in steps]), source_rates(steps)
    by_share = spine_bound(steps, rates[C].share, rates[T].share)
    by_rate = spine_bound(steps, rates[C].rate, rates[T].rate)
    assert 1 < by_share < by_rate <= measured
