"""A run as plain data: records, their metrics, and how they are added up."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import draft_trees
from support.traces import TREE, step_of, trace_of

from speclab.trace.files import load_trace
from speclab.trace.metrics import Counts, Metrics, survival
from speclab.tree import CandidateSampling, DraftTree


@given(draft_trees(max_nodes=20), st.sampled_from(list(CandidateSampling)))
def test_any_tree_and_mask_survive(tmp_path_factory, tree, probs):
    tree = dataclasses.replace(tree, candidate_sampling=probs)
    path = tmp_path_factory.mktemp("trace") / "t"
    trace = trace_of(step_of(tree))
    assert load_trace(trace.save(path)) == trace


def test_impossible_tokens_and_a_wrong_mask_survive(tmp_path):
    """A distribution may hold zeros; and a mask that differs from the closure must be shown as it was given."""
    tree = DraftTree.of([1, 2], [-1, 0], [0.0, -np.inf], "draft")
    trace = trace_of(dataclasses.replace(step_of(tree), mask=np.ones((2, 2), dtype=np.bool_)))
    path = trace.save(tmp_path / "t")
    assert load_trace(path) == trace
    assert path.read_bytes() == trace.save(tmp_path / "again").read_bytes(), (
        "the same trace gives the same bytes"
    )


def test_token_ids_start_with_the_first_token_and_stop_at_the_cursor():
    trace = trace_of(step_of(TREE), step_of(TREE, 1))
    assert trace.token_ids == [4, 4, 1, 4]
    assert [trace.tokens_at(i) for i in range(3)] == [[4], [4, 4, 1], [4, 4, 1, 4]]


def test_metrics_are_the_sum_of_the_steps():
    metrics = trace_of(step_of(TREE), step_of(TREE, 1)).metrics
    assert metrics.counts == Counts(2, 3, 8, 2, 6, 2, 4, 0.2)
    assert metrics.ttft == 0.5


# Two iterations: a chain of 4 with 3 accepted, and a bonus; then 6 nodes, 3 on the longest path,
# none accepted, and the bonus alone, with a second target pass to rebuild the cache.
FIRST = Counts(
    iterations=1, committed=4, drafted=4, accepted=3, longest_path=4, target_calls=1, draft_calls=4, seconds=0.5,
    looked=4,
)  # fmt: skip
SECOND = Counts(
    iterations=1, committed=1, drafted=6, accepted=0, longest_path=3, target_calls=2, draft_calls=3, seconds=0.25,
    looked=1,
)  # fmt: skip
BOTH = Metrics(FIRST + SECOND, ttft=0.125)


DEFINED = {
    "iterations": 2, "tokens_per_iteration": 5 / 2, "acceptance_rate": 3 / 10, "path_acceptance": 3 / 7,
    "acceptance_hazard": 3 / 5,
    "paper_acceptance": 5 / 7, "target_calls": 3 + 1, "draft_calls": 7,
    "throughput": 5 / 0.75, "tpot": 0.75 / 5, "ttft": 0.125,
}  # fmt: skip


def test_definitions():
    assert BOTH.as_dict() == pytest.approx(DEFINED)
    assert {name: getattr(BOTH, name) for name in DEFINED} == pytest.approx(DEFINED)


def test_survival_counts_each_draft_as_far_as_it_went():
    """Ten chains of up to three: at depth 1 all are looked at, at depth 2 those that are so long."""
    ended = [Counts(accepted=1, looked=1)] * 2  # one token long, accepted
    lost = [Counts(accepted=1, looked=2)] * 2
    whole = [Counts(accepted=3, looked=3)] * 2
    first, second, third = survival([Counts(accepted=0, looked=1)] * 4 + ended + lost + whole)
    assert (first.looked, first.accepted, second.looked, second.accepted) == (10, 6, 4, 2)
    assert [row.survival for row in (first, second, third)] == pytest.approx([0.6, 0.3, 0.3])
    assert (first.low, first.high) == pytest.approx((0.3127, 0.8318), abs=1e-4)  # Wilson, 6 of 10
    assert second.low < 0.3 < second.high
    assert (third.low, third.high) == (second.low, second.high)
    (never,) = survival([Counts(accepted=0, looked=1)] * 5)
    assert (never.survival, never.low) == (0, 0)
    assert never.high == pytest.approx(0.4345, abs=1e-4)
    assert survival([Counts()]) == []


def test_nothing_decoded_gives_zero_everywhere():
    empty = Metrics(Counts())
    assert all(value == 0 for name, value in empty.as_dict().items() if name != "target_calls")
    assert empty.target_calls == 1
