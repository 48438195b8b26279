"""Accepted tokens by the sources of their path."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from table_runner import mixed_law, random_law, table_pair

import speclab
from speclab.decomposition import Decomposition, decomposition, synergy


def step(*sources: str):
    """A step whose accepted path has these sources."""
    return SimpleNamespace(
        tree=SimpleNamespace(source=("target", *sources)), accepted=tuple(range(1, len(sources) + 1))
    )


def test_each_path_is_of_one_kind():
    paths = [("context",) * 3, ("context", "context", "transition", "transition"), ("transition",), (), ("context",)]
    assert decomposition(step(*path) for path in paths) == Decomposition(4, 4, 1, 2)
    assert decomposition([]).accepted == 0


def test_all_accepted_tokens_of_a_run_are_in_it():
    law = mixed_law(random_law(6, 3), lambda path: random_law(6, 4)(path[-2:]), 0.8)
    strategy = speclab.Goose(bypass="off", node_budget=20)
    session = speclab.Session(table_pair(law, None, 6), strategy, [1, 2, 3, 1, 2, 3], max_new_tokens=120)
    session.run()
    parts = decomposition(session.steps)
    assert parts.accepted == session.metrics.counts.accepted
    assert min(parts.spine_only, parts.spine_continuation, parts.branch_only, parts.continued) > 0


def test_synergy_is_over_the_best_baseline():
    assert synergy(3.0, [1.5, 2.4]) == pytest.approx(1.25)
    with pytest.raises(ValueError, match="baseline"):
        synergy(3.0, [])
