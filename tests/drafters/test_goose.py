"""GOOSE and its baseline against direct construction, its routes, and what it learns."""

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
from speclab.drafters.goose import RunningRate
from speclab.models.answer import Answer
from speclab.theory import optimal_widths

VOCAB = 6
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-2:]), 0.7)


def lone(probs=PROBS, vocab=VOCAB):
    return table_pair(probs, None, vocab)


@st.composite
def geese(draw: st.DrawFn, **fixed: object) -> speclab.Goose:
    low, mid, high = sorted(draw(st.tuples(*[st.floats(0, 1)] * 3)))
    few, many = sorted(draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
    short, long = sorted(draw(st.tuples(st.integers(1, 4), st.integers(1, 4))))
    drawn = {
        "node_budget": draw(st.integers(1, 30)),
        "reserved_share": draw(st.floats(0, 1)),
        "branch_depth": draw(st.integers(1, 5)),
        "depth_from": draw(st.sampled_from(["branch", "root"])),
        "max_spine": draw(st.integers(1, 12)),
        "extended_spine": draw(st.integers(0, 30)),
        "filling": draw(st.sampled_from(["best", "breadth"])),
        "successors": draw(st.integers(1, 6)),
        "scores": draw(st.sampled_from(["vocabulary", "kept"])),
        "score_threshold": draw(st.floats(0, 0.3)),
        "spine_branch_ratio": draw(st.floats(0, 1)),
        "low_ratio": low,
        "mid_ratio": mid,
        "high_ratio": high,
        "low_acceptance": few,
        "high_acceptance": many,
        "longest_ngram": long,
        "shortest_ngram": short,
        "pick": draw(st.sampled_from(["last", "first", "longest"])),
        "consensus": draw(st.sampled_from(["lengths", "occurrences"])),
        "bypass": draw(st.sampled_from(["either", "both", "consensus", "length", "off", "gradual"])),
        "bypass_length": draw(st.integers(1, 12)),
        "bypass_acceptance": draw(st.floats(0, 1)),
        "spine": draw(st.sampled_from(["context", "transitions", "off"])),
        "spine_branches": draw(st.booleans()),
        "schedule": draw(st.sampled_from(["harmonic", "optimal", "equal"])),
        "bigram_entries": draw(st.sampled_from([0, 8, 1000])),
    }
    return speclab.Goose(**(drawn | fixed))


TEXTS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40)


def filled(strategy, text, rows, seed):
    """A drafter and the plain table, both harvested from the same random rows; as unlike as random ones are."""
    drafter, plain = strategy.drafter(lone()), Table(strategy.successors, strategy.bigram_entries)
    random = np.random.default_rng(seed)
    previous, tokens = random.integers(0, VOCAB, rows).tolist(), random.integers(0, VOCAB, rows).tolist()
    logits = torch.tensor(random.normal(0, 2, (rows, VOCAB)), dtype=torch.float32)
    if rows:
        drafter.table.harvest(previous, tokens, Answer(logits).topk(drafter.table.width))
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


@settings(max_examples=70)
@given(geese(), TEXTS, st.integers(0, 40), st.integers(0, 999), st.floats(0, 1), st.floats(0.01, 1), st.integers(0, 30))
def test_the_tree_is_the_one_of_direct_construction(strategy, text, rows, seed, spine, branch, depth):
    drafter, plain = filled(strategy, text, rows, seed)
    drafter._rates = type(drafter._rates)(RunningRate(spine), RunningRate(branch))
    tree = drafter.draft(Context(text, depth, lambda: None)).tree

    def widths(length, rest):
        return list(optimal_widths(spine, branch, length, rest))

    expected = reference.draft_tree(plain, text, strategy.model_dump(), spine, depth, widths)
    assert paths_of(tree) == breadth_first(expected)
    assert list(tree.source) == [expected[path][1] for path in paths_of(tree)]
    assert len(tree) <= strategy.node_budget
    assert tree.depth.max() <= depth
    for children in tree.children:
        assert "context" not in [tree.source[child] for child in children][1:], "context before transition"
    probs = np.exp(tree.log_prob).tolist()
    assert probs == pytest.approx([expected[path][0] for path in paths_of(tree)], rel=1e-4)


@given(
    st.integers(1, 5), st.integers(1, 40), TEXTS, st.integers(0, 40), st.integers(0, 999), st.integers(0, 20),
    st.booleans(),
)  # fmt: skip
def test_the_isotropic_tree_is_the_uniform_one(branching, budget, text, rows, seed, depth, copies):
    strategy = speclab.IsotropicTree(
        branching=branching, node_budget=budget, longest_ngram=3, shortest_ngram=2, copies=copies
    )
    drafter, plain = filled(strategy, text, rows, seed)
    tree = drafter.draft(Context(text, depth, lambda: None)).tree
    assert paths_of(tree) == reference.isotropic_tree(plain, text, strategy.model_dump(), depth)
    sources = Counter(tree.source)
    assert sources["context"] + sources["transition"] == len(tree) - 1


AUTHORS = speclab.Goose.presets()["authors' code"]


@pytest.mark.parametrize(
    ("strategy", "changes"),
    [
        (speclab.Goose(), {}),
        (speclab.Goose(), {"bypass": "off"}),
        (speclab.Goose(), {"bypass_acceptance": 0.0}),
        (speclab.Goose(), {"spine": "transitions"}),
        (AUTHORS, {}),
        (AUTHORS, {"filling": "best", "reserved_share": 0.0}),
    ],
    ids=str,
)
def test_whole_runs_are_the_papers(strategy, changes):
    """Prefill, every tree, every harvest and every running rate, step by step against the plain ones."""
    strategy = strategy.changed(node_budget=20, bigram_entries=100, longest_ngram=3, shortest_ngram=2, **changes)
    session = speclab.Session(lone(), strategy, [1, 2, 3, 1, 2, 3, 1], max_new_tokens=60)
    s, plain, text = strategy.model_dump(), Table(10, 100), list(session.prompt_ids)
    plain.harvest([-1, *text[:-1]], text, [logs(PROBS(tuple(text[: end + 1]))) for end in range(len(text))])
    spine_rate, branch_rate, routes = reference.Rate(0.5), reference.Rate(0.1), Counter()
    while not session.done:
        text = session.prompt_ids + session.token_ids
        step = session.step()
        assert_consistent(step)
        tree = reference.draft_tree(plain, text, s, spine_rate.mean, 1000, None)
        paths = paths_of(step.tree)
        assert paths == breadth_first(tree)
        spine = [()]
        while len(spine) <= _spine_length(step):
            spine.append(next(path for path in paths if path and path[:-1] == spine[-1]))
        took, tried = reference.tries(tree, spine[1:], [int(step.tree.token[node]) for node in step.accepted])
        if s["statistic"] == "spine":
            took = (took[0] / len(spine[1:]), 1) if spine[1:] else (0, 0)
        spine_rate.add(*took, 0.3)
        branch_rate.add(*tried, 0.3)
        assert step.adaptation.after["spine_acceptance"] == pytest.approx(spine_rate.mean)
        assert step.adaptation.after["branch_acceptance"] == pytest.approx(branch_rate.mean)
        accepted = {0, *step.accepted}
        for node in sorted(range(len(paths)), key=accepted.__contains__):
            whole = (*text, *paths[node])
            plain.harvest([whole[-2]], [whole[-1]], [logs(PROBS(whole))])
        routes[_route(step)["route"]] += 1
    assert len(routes) >= 2
    assert session.metrics.counts.accepted > 15


def _route(step):
    return next(event for event in step.events if event.kind == "route").values


def _spine_length(step):
    return _route(step)["spine"]


# Routes


REPEATED = [1, 2, 3, 4, 5, 0] * 4


def test_confidence_moves_nodes_to_the_spine_by_degrees():
    """60 nodes of 100 without a match; 20 copied tokens of one occurrence: 0.9, so 96 nodes, 90 tokens of them copied
    again and again; two that agree: all 100, and copied as long as each next match agrees."""
    once, twice = [*range(30), 0, 1, 2, 3, 4], [*range(30), *range(10), 31, *range(6)]
    for text, confidence, nodes, spine in ((once, 0.9, 96, 90), (twice, 1.0, 100, 40), ([7, 8], 0.0, 60, 0)):
        drafter = AUTHORS.drafter(lone(random_probs(64, 1), 64))
        rows = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)) * 0.1
        drafter.table.harvest([-1] * 64, range(64), Answer(rows).topk(drafter.table.width))
        draft = drafter.draft(Context(text, 1000, lambda: None))
        assert draft.events[0].values["confidence"] == pytest.approx(confidence)
        assert (len(draft.tree), draft.tree.source.count("context")) == (nodes, spine)


# Records


def test_the_record_names_every_source_and_what_the_table_learned():
    session = speclab.Session(lone(), speclab.Goose(node_budget=16), REPEATED, max_new_tokens=40)
    session.run()
    for step in session.steps:
        values = _route(step)
        assert {"route", "spine_ratio", "spine_acceptance", "consensus", "table_rows", "table_bytes", "bigrams"} <= set(
            values
        )
        assert set(step.tree.source[1:]) <= {"context", "transition"}
        for node in range(len(step.tree)):
            expanded = [event for event in step.events if event.kind == "expand" and event.node == node]
            assert len(expanded) == bool(step.tree.children[node])
            assert all(event.values["added"] == len(step.tree.children[node]) for event in expanded)
        assert step.adaptation.before.keys() == step.adaptation.after.keys()
        assert step.adaptation.before["spine_ratio"] == values["spine_ratio"]
    assert len({step.adaptation.after["spine_acceptance"] for step in session.steps}) > 3


def test_the_authors_tree_by_hand():
    """Nine nodes, three of them copied: 1, 2, 3. Of the five others two go along the spine, one each to its first two
    nodes: 6 after 1, and nothing is known after 2. Three go to the root: 4 and 5, for 1 is there already. Two are left:
    they extend 4 and 5, which come before 6."""
    table = {(9,): {1: 0.5, 4: 0.3, 5: 0.2}, (1,): {2: 0.6, 6: 0.4}, (4,): {7: 1.0}, (5,): {8: 1.0}, (6,): {8: 1.0}}
    strategy = AUTHORS.changed(
        node_budget=9, reserved_share=0.0, bypass="off", high_ratio=0.4, mid_ratio=0.4, bigram_entries=0, successors=3,
        longest_ngram=1, shortest_ngram=1,
    )  # fmt: skip
    drafter = strategy.drafter(lone(random_probs(10, 1), 10))
    for (token,), row in table.items():
        logits = torch.full((1, 10), -50.0)
        logits[0, list(row)] = torch.tensor(list(row.values())).log()
        drafter.table.harvest([-1], [token], Answer(logits).topk(drafter.table.width))
    tree = drafter.draft(Context([9, 1, 2, 3, 0, 9], 100, lambda: None)).tree
    assert paths_of(tree) == [(), (1,), (4,), (5,), (1, 2), (1, 6), (4, 7), (5, 8), (1, 2, 3)]
