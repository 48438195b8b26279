"""GOOSE and its isotropic baseline against direct construction, and whole runs with all that they learn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import goose as reference
from support.records import paths_of
from support.table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.base import Context
from speclab.drafters.transitions import Rows
from speclab.models.answer import Answer

VOCAB = 6
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-2:]), 0.7)
TEXTS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40)
PAIR = table_pair(PROBS, None, VOCAB)


@st.composite
def geese(draw: st.DrawFn) -> speclab.Goose:
    low, mid, high = sorted(draw(st.tuples(*[st.floats(0, 1)] * 3)))
    short, long = sorted(draw(st.tuples(st.integers(1, 4), st.integers(1, 4))))
    return speclab.Goose(
        node_budget=draw(st.integers(1, 30)),
        branch_depth=draw(st.integers(1, 5)),
        max_spine=draw(st.integers(1, 12)),
        successors=draw(st.integers(1, 6)),
        score_threshold=draw(st.floats(0, 0.3)),
        spine_branch_ratio=draw(st.just(0) | st.floats(0, 1)),
        low_ratio=low,
        mid_ratio=mid,
        high_ratio=high,
        longest_ngram=long,
        shortest_ngram=short,
        bypass=draw(st.sampled_from(["either", "both", "graded", "off"])),
        bypass_acceptance=draw(st.floats(0, 1)),
        spine=draw(st.sampled_from(["context", "transitions", "off"])),
        bigrams=draw(st.booleans()),
    )


def filled(strategy, rows, seed):
    """A drafter and the plain table, both after the same random rows."""
    drafter = strategy.drafter(PAIR)
    plain = reference.Table(strategy.successors, strategy.bigrams)
    random = np.random.default_rng(seed)
    previous = random.integers(0, VOCAB, rows).tolist()
    tokens = random.integers(0, VOCAB, rows).tolist()
    weights = np.exp(random.normal(0, 2, (rows, VOCAB)))
    probs = weights / weights.sum(1, keepdims=True)
    if rows:
        answer = Answer(torch.tensor(np.log(probs), dtype=torch.float32))
        drafter.table.add(Rows(previous, tokens, *answer.topk(strategy.successors)))
        plain.harvest(previous, tokens, probs.tolist())
    return drafter, plain


def breadth_first(tree: reference.Tree) -> list:
    """Paths level by level; siblings in the order in which they were added."""
    order = [()]
    for path in order:
        order += [other for other in tree if other and other[:-1] == path]
    return order


@settings(max_examples=100)
@given(geese(), TEXTS, st.integers(0, 40), st.integers(0, 999), st.floats(0, 1), st.integers(0, 30))
def test_the_tree_is_the_one_of_direct_construction(strategy, text, rows, seed, acceptance, depth):
    drafter, plain = filled(strategy, rows, seed)
    drafter.rate = (acceptance, 1.0)
    tree = drafter.draft(Context(text, depth, lambda: None)).tree
    expected = reference.draft_tree(plain, text, strategy.model_dump(), acceptance, depth)
    reached = sorted(reference.reach(expected, path) for path in expected)
    assert sorted(np.exp(tree.path_log_prob)) == pytest.approx(reached, rel=1e-4)
    if np.diff(np.log(reached)).min(initial=1) < 1e-6 or expected.keys() != paths_of(tree).keys():
        return  # of two equally probable candidates either may come first, or be the last that fits
    assert list(paths_of(tree)) == breadth_first(expected)
    assert list(zip(np.exp(tree.log_prob), tree.source, strict=True)) == [
        (pytest.approx(expected[path][0], rel=1e-4), expected[path][1]) for path in paths_of(tree)
    ]
    assert len(tree) <= strategy.node_budget


@given(
    st.integers(1, 5),
    st.integers(1, 40),
    TEXTS,
    st.integers(0, 40),
    st.integers(0, 999),
    st.integers(0, 20),
)
def test_the_isotropic_tree_is_the_uniform_one(branching, budget, text, rows, seed, depth):
    strategy = speclab.IsotropicTree(
        branching=branching, node_budget=budget, longest_ngram=3, shortest_ngram=2
    )
    drafter, plain = filled(strategy, rows, seed)
    tree = drafter.draft(Context(text, depth, lambda: None)).tree
    assert list(paths_of(tree)) == reference.isotropic_tree(
        plain, text, strategy.model_dump(), depth
    )
    assert set(tree.source[1:]) <= {"context", "transition"}


@pytest.mark.parametrize("name", speclab.Goose.presets())
def test_whole_runs_are_the_papers(name):
    """Prefill, every tree, every row learned and every running rate, step by step against the plain ones."""
    strategy = speclab.Goose.presets()[name].changed(
        node_budget=20, longest_ngram=3, shortest_ngram=2
    )
    session = speclab.Session(PAIR, strategy, [1, 2, 3, 1, 2, 3, 1], max_new_tokens=60)
    s = strategy.model_dump()
    plain = reference.Table(10, strategy.bigrams)
    text = list(session.prompt_ids)
    plain.harvest(
        [-1, *text[:-1]], text, [PROBS(tuple(text[: end + 1])) for end in range(len(text))]
    )
    rate = reference.Rate(0.5)
    routes = Counter()
    while not session.done:
        text = session.prompt_ids + session.token_ids
        step = session.step()
        tree = reference.draft_tree(plain, text, s, rate.mean, 1000)
        paths = list(paths_of(step.tree))
        assert paths == breadth_first(tree)
        route = step.events[0].values
        spine = [()]
        while len(spine) <= route["spine"]:
            spine.append(next(path for path in paths if path and path[:-1] == spine[-1]))
        rate.add(
            *reference.tries(spine[1:], [int(step.tree.token[node]) for node in step.accepted]), 0.3
        )
        assert step.adaptation.after["spine_acceptance"] == pytest.approx(rate.mean)
        assert step.adaptation.before["spine_ratio"] == route["spine_ratio"]
        accepted = {0, *step.accepted}
        for node in sorted(range(len(paths)), key=accepted.__contains__):
            whole = (*text, *paths[node])
            plain.harvest([whole[-2]], [whole[-1]], [PROBS(whole)])
        routes[route["route"]] += 1
    assert len(routes) >= (1 if strategy.spine == "off" else 2)
    assert session.metrics.counts.accepted > 15
