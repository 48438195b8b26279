"""Historical adjustment: the published schedule, its bounds, and what is carried from prompt to prompt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dynatree as reference
from table_runner import mixed_probs, random_probs, table_pair
from variants import dynatrees

import speclab
from speclab.drafters.dynatree import adjustment, remember

TEXT = [2, 1, 0, 1, 2]

HISTORIES = st.lists(st.floats(0, 1), min_size=0, max_size=25)


@given(HISTORIES, st.integers(2, 8), st.integers(1, 4), st.floats(0.5, 0.95), st.floats(0.3, 0.8))
def test_history_is_the_published_schedule(shares, base, above, high, deep):
    window = ()
    for share in shares:
        window = remember(window, share)
    now = speclab.DynaTree(base_depth=base, max_depth=base + above, high_confidence=high, deep_probability=deep)
    expected = reference.adjust(now.model_dump(), shares)
    changes, reason = adjustment(now, window)
    got = now.model_dump() | changes
    assert {k: pytest.approx(v, abs=1e-4) if isinstance(v, float) else v for k, v in expected.items()} == got
    assert reason


@given(HISTORIES.filter(lambda shares: len(shares) >= 5), dynatrees())
def test_history_never_leaves_the_bounds_and_never_moves_the_other_way(shares, now):
    """Whatever the settings: what comes out is valid, and goes where the mean points or stays."""
    changes, _ = adjustment(now, tuple(shares[-10:]))
    after = now.changed(**changes)
    bold = sum(shares[-10:]) / len(shares[-10:]) > 0.7
    for name, sign in (("base_depth", 1), ("high_confidence", -1), ("deep_probability", -1)):
        moved = sign * (getattr(after, name) - getattr(now, name))
        assert moved >= 0 if bold else moved <= 0, name


def test_history_a_prompt_is_the_published_codes():
    """Never within a prompt; from the sixth on each goes on from what the last used, by the prompts before it."""
    target = random_probs(8, 3, low=0.5, high=2.0)
    pair = table_pair(target, mixed_probs(target, random_probs(8, 4), 0.5), 8)
    strategy, shares, seen = speclab.DynaTree.authors_code(), [], []
    expected = strategy.model_dump()
    for _ in range(7):
        expected = reference.adjust(expected, shares)
        session = speclab.Session(pair, strategy, TEXT, max_new_tokens=30)
        session.run()
        for step in session.steps:
            for name in ("base_depth", "high_confidence", "deep_probability"):
                assert step.settings[name] == pytest.approx(expected[name], abs=1e-4)
        shares.append(reference.published_statistic([len(step.committed) for step in session.steps]))
        seen.append(expected["base_depth"])
    assert seen == [4] * 5 + [3, 2], "the code's D_0, which counts one more, goes from 5 to 3"


@settings(max_examples=30)
@given(st.sampled_from(["verified", "drafted"]), st.integers(0, 1000))
def test_the_statistic_of_an_iteration(root, seed):
    """What history says that it saw, iteration by iteration, is the mean of the reference's statistic."""
    target = random_probs(8, seed, low=0.5, high=2.0)
    draft = mixed_probs(target, random_probs(8, seed + 1), 0.5)
    strategy = speclab.DynaTree.paper().changed(base_depth=3, root=root)
    _, rounds = reference.decode(target, draft, tuple(TEXT), strategy.model_dump() | {"mid_branches": 2}, 8)
    session = speclab.Session(table_pair(target, draft, 8), strategy, TEXT, max_new_tokens=200)
    for expected in rounds:
        step = session.step()
        assert list(step.accepted) == expected.accepted
        assert step.settings["base_depth"] == expected.settings["base_depth"]
        if "mean acceptance" in step.adaptation.reason:
            told = float(step.adaptation.reason.partition("mean acceptance ")[2].split()[0])
            assert told == pytest.approx(expected.mean, abs=0.0051)
