"""Token Recycling: the static template, filled from a table of what was verified."""

from __future__ import annotations

from collections import Counter

import pytest
from records import assert_consistent
from reference import transitions as reference
from table_runner import mixed_probs, random_probs, table_pair

import speclab
from speclab.drafters.token_recycling import LEVELS, template

VOCAB = 12
PROBS = mixed_probs(random_probs(VOCAB, 3), lambda path: random_probs(VOCAB, 4)(path[-1:]), 0.8)
"""What comes next depends mostly on the last token, so that a table of transitions is often right."""


def test_the_papers_template():
    depth = [0]
    for parent, _ in template(81, 8):
        depth.append(depth[parent] + 1)
    assert Counter(depth[1:]) == dict(enumerate(LEVELS, start=1))
    assert template(81, 8)[:8] == tuple((0, rank) for rank in range(8))


@pytest.mark.parametrize("budget", [1, 2, 13, 25, 41, 60, 81])
def test_smaller_templates_are_part_of_the_larger(budget):
    """As (rank, rank, …) paths."""

    def paths(nodes):
        found = [()]
        for parent, rank in nodes:
            found.append((*found[parent], rank))
        return set(found)

    assert len(paths(template(budget, 8))) == budget
    assert paths(template(budget, 8)) <= paths(template(81, 8))


@pytest.mark.parametrize("budget", [13, 81])
def test_every_iteration_is_the_papers(budget):
    """The table of prefill and all rows, as a dict of dicts; the tree filled from it."""
    strategy = speclab.TokenRecycling(node_budget=budget, successors=5)
    session = speclab.Session(table_pair(PROBS, None, VOCAB), strategy, [1, 2, 3, 1, 2], max_new_tokens=30)
    plain, text = reference.Table(5), list(session.prompt_ids)
    rows = [PROBS(tuple(text[: end + 1])) for end in range(len(text))]
    plain.harvest([-1, *text[:-1]], text, [reference.logs(row) for row in rows])
    while not session.done:
        text = session.prompt_ids + session.token_ids
        step = session.step()
        paths = [tuple(step.tree.token[list(step.tree.path(node))[1:]].tolist()) for node in range(1, len(step.tree))]
        assert paths == reference.static_tree(plain, text, template(budget, 5), 1000)
        accepted = {0, *step.accepted}
        for node in sorted(range(len(step.tree)), key=accepted.__contains__):
            path = (*text, *step.tree.token[list(step.tree.path(node))[1:]].tolist())
            plain.harvest([path[-2]], [path[-1]], [reference.logs(PROBS(path))])
        assert_consistent(step)
        assert step.adaptation.after["table_rows"] == len(plain.after)
    assert session.metrics.counts.accepted > 5
