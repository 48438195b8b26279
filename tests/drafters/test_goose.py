"""GOOSE and its isotropic baseline against direct construction, its routes, and what it learns."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from records import assert_consistent
from reference import goose as reference
from reference.transitions import Table, logs
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.base import Context
from speclab.drafters.transitions import Rows
from speclab.models.answer import Answer

VOCAB = 6
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-2:]), 0.7)
TEXTS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40)


def lone(probs=PROBS, vocab=VOCAB):
    return table_pair(probs, None, vocab)


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
        bypass=draw(st.sampled_from(["either", "both", "off"])),
        bypass_acceptance=draw(st.floats(0, 1)),
        spine=draw(st.sampled_from(["context", "transitions", "off"])),
        bigrams=draw(st.booleans()),
    )


def filled(strategy, text, rows, seed):
    """A drafter and the plain table, both after the same random rows; as unlike as random ones are."""
    drafter, plain = strategy.drafter(lone()), Table(strategy.successors, 1000 * strategy.bigrams)
    random = np.random.default_rng(seed)
    previous, tokens = random.integers(0, VOCAB, rows).tolist(), random.integers(0, VOCAB, rows).tolist()
    logits = torch.tensor(random.normal(0, 2, (rows, VOCAB)), dtype=torch.float32)
    if rows:
        drafter.table.add(Rows(previous, tokens, *Answer(logits).topk(strategy.successors)))
        plain.harvest(previous, tokens, logits.tolist())
    return drafter, plain


def paths_of(tree):
    return [tuple(tree.token[list(tree.path(node))[1:]].tolist()) for node in range(len(tree))]


def breadth_first(tree: reference.Tree) -> list:
    """Paths level by level; siblings in the order in which they were added."""
    order = [()]
    for path in order:
        order += [other for other in tree if other and other[:-1] == path]
    return order


@settings(max_examples=100)
@given(geese(), TEXTS, st.integers(0, 40), st.integers(0, 999), st.floats(0, 1), st.integers(0, 30))
def test_the_tree_is_the_one_of_direct_construction(strategy, text, rows, seed, acceptance, depth):
    drafter, plain = filled(strategy, text, rows, seed)
    drafter.rate = (acceptance, 1.0)
    tree = drafter.draft(Context(text, depth, lambda: None)).tree
    expected = reference.draft_tree(plain, text, strategy.model_dump(), acceptance, depth)
    reached = sorted(reference.reach(expected, path) for path in expected)
    assert sorted(np.exp(tree.path_log_prob)) == pytest.approx(reached, rel=1e-4)
    if np.diff(np.log(reached)).min(initial=1) < 1e-6:  # of two equally probable candidates either may come first
        return
    if other := set(expected) - set(paths_of(tree)):  # or either may be the last that fits
        last = {path: np.exp(tree.path_log_prob[node]) for node, path in enumerate(paths_of(tree))}
        ours = sorted(prob for path, prob in last.items() if path not in expected)
        assert ours == pytest.approx(sorted(reference.reach(expected, path) for path in other), rel=1e-4)
        return
    assert paths_of(tree) == breadth_first(expected)
    assert list(tree.source) == [expected[path][1] for path in paths_of(tree)]
    assert len(tree) <= strategy.node_budget
    assert tree.depth.max() <= depth
    for children in tree.children:
        assert "context" not in [tree.source[child] for child in children][1:], "context before transition"
    probs = np.exp(tree.log_prob).tolist()
    assert probs == pytest.approx([expected[path][0] for path in paths_of(tree)], rel=1e-4)


@given(st.integers(1, 5), st.integers(1, 40), TEXTS, st.integers(0, 40), st.integers(0, 999), st.integers(0, 20))
def test_the_isotropic_tree_is_the_uniform_one(branching, budget, text, rows, seed, depth):
    strategy = speclab.IsotropicTree(branching=branching, node_budget=budget, longest_ngram=3, shortest_ngram=2)
    drafter, plain = filled(strategy, text, rows, seed)
    tree = drafter.draft(Context(text, depth, lambda: None)).tree
    assert paths_of(tree) == reference.isotropic_tree(plain, text, strategy.model_dump(), depth)
    sources = Counter(tree.source)
    assert sources["context"] + sources["transition"] == len(tree) - 1


def test_the_spine_tree_by_hand():
    """Nine nodes, 0.4 of them for the spine: 1, 2, 3. Half of the other five along it as 1, 1/2, 1/3: one, 6 after 1.
    The rest at the root, best first: 4 (0.3, beside a copy of 0.5), its child 7, 5 and its child 8. One is left."""
    table = {9: {1: 0.5, 4: 0.3, 5: 0.2}, 1: {2: 0.6, 6: 0.4}, 4: {7: 1.0}, 5: {8: 1.0}, 6: {8: 1.0}}
    strategy = speclab.Goose(
        node_budget=9, bypass="off", low_ratio=0.4, mid_ratio=0.4, bigrams=False, successors=3, longest_ngram=1,
        shortest_ngram=1,
    )  # fmt: skip
    drafter = strategy.drafter(lone(random_probs(10, 1), 10))
    for token, row in table.items():
        logits = torch.full((1, 10), -50.0)
        logits[0, list(row)] = torch.tensor(list(row.values())).log()
        drafter.table.add(Rows([-1], [token], *Answer(logits).topk(3)))
    tree = drafter.draft(Context([9, 1, 2, 3, 0, 9], 100, lambda: None)).tree
    assert paths_of(tree) == [(), (1,), (4,), (5,), (1, 2), (1, 6), (4, 7), (5, 8), (1, 2, 3)]


@pytest.mark.parametrize("bypass", ["either", "both"])
def test_the_two_readings_of_the_bypass(bypass):
    """Three tokens were seen before after the same two, in one length of n-gram alone: long enough, no consensus."""
    text = [1, 2, 3, 4, 5, 0, 2]  # `2` alone occurred before
    strategy = speclab.Goose(bypass=bypass, bypass_acceptance=0, longest_ngram=2, shortest_ngram=1)
    draft = strategy.drafter(lone()).draft(Context(text, 100, lambda: None))
    assert draft.events[0].values["route"] == ("bypass" if bypass == "either" else "spine tree")
    agreeing = strategy.drafter(lone()).draft(Context([1, 2, 3, 4, 5, 0, 1, 2], 100, lambda: None))
    assert agreeing.events[0].values["route"] == "bypass", "both lengths agree, and the chain is long"
    assert (agreeing.tree.parent == np.arange(-1, len(agreeing.tree) - 1)).all()


@pytest.mark.parametrize("name", speclab.Goose.presets())
def test_whole_runs_are_the_papers(name):
    """Prefill, every tree, every row learned and every running rate, step by step against the plain ones."""
    strategy = speclab.Goose.presets()[name].changed(node_budget=20, longest_ngram=3, shortest_ngram=2)
    session = speclab.Session(lone(), strategy, [1, 2, 3, 1, 2, 3, 1], max_new_tokens=60)
    s, plain, text = strategy.model_dump(), Table(10, 1000 * strategy.bigrams), list(session.prompt_ids)
    plain.harvest([-1, *text[:-1]], text, [logs(PROBS(tuple(text[: end + 1]))) for end in range(len(text))])
    rate, routes = reference.Rate(0.5), Counter()
    while not session.done:
        text = session.prompt_ids + session.token_ids
        step = session.step()
        assert_consistent(step)
        tree = reference.draft_tree(plain, text, s, rate.mean, 1000)
        paths = paths_of(step.tree)
        assert paths == breadth_first(tree)
        route = step.events[0].values
        spine = [()]
        while len(spine) <= route["spine"]:
            spine.append(next(path for path in paths if path and path[:-1] == spine[-1]))
        rate.add(*reference.tries(spine[1:], [int(step.tree.token[node]) for node in step.accepted]), 0.3)
        assert step.adaptation.after["spine_acceptance"] == pytest.approx(rate.mean)
        assert step.adaptation.before["spine_ratio"] == route["spine_ratio"]
        assert step.adaptation.before.keys() == step.adaptation.after.keys()
        accepted = {0, *step.accepted}
        for node in sorted(range(len(paths)), key=accepted.__contains__):
            whole = (*text, *paths[node])
            plain.harvest([whole[-2]], [whole[-1]], [logs(PROBS(whole))])
        routes[route["route"]] += 1
    assert len(routes) >= (1 if strategy.spine == "off" else 2)
    assert session.metrics.counts.accepted > 15
