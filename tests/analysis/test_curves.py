"""Settings over their range, on one text: the values chosen, and that each point is the replay of its settings."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import isfinite

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pairs import PROMPT, pair_of

import speclab
from speclab.analysis.curves import Curve, Point, every_strategy, span, sweep, variable
from speclab.analysis.replay import Replayer
from speclab.errors import CancelledError, SettingsError
from speclab.models.pair import ModelPair
from speclab.settings import bounds

KINDS = [kind for kind in speclab.strategies().values() if all(not f.is_required() for f in kind.model_fields.values())]
RANGES = [(kind(), name) for kind in KINDS for name in variable(kind())] + [
    (speclab.DynaTree.for_unsure_draft(), "node_budget"),
    (speclab.DynaTree(base_depth=1, max_depth=1), "max_depth"),
    (speclab.LinearSpeculation(draft_tokens=63), "draft_tokens"),
]
DYNATREE = speclab.DynaTree(prune_probability=0.1, base_depth=3, node_budget=12)


def finished(strategy: speclab.Strategy = DYNATREE, pair: ModelPair | None = None) -> speclab.Session:
    run = speclab.Session(pair or pair_of("llama"), strategy, PROMPT, max_new_tokens=24)
    run.run()
    return run


def figures(point: Point) -> tuple:
    return point.iterations, point.tokens_per_iteration, point.draft_calls, point.rows, point.inexact


@settings(max_examples=60)
@given(st.sampled_from(RANGES), st.integers(2, 30))
def test_a_range_is_in_order_distinct_within_bounds_and_holds_the_value_in_force(one, count):
    strategy, name = one
    values, now = span(strategy, name, count=count), getattr(strategy, name)
    assert now in values
    assert 2 <= len(values) == len(set(values))
    if isinstance(now, str | bool):
        return
    assert list(values) == sorted(values)
    assert len(values) <= count + 1
    low, high = bounds(type(strategy).model_fields[name])
    assert low <= values[0] < values[-1] <= high
    assert {type(value) for value in values} == {type(now)}
    assert strategy.changed(**{name: values[0]})
    assert strategy.changed(**{name: values[-1]})


@settings(max_examples=60)
@given(st.sampled_from(RANGES), st.floats(0, 1100), st.floats(0, 1100), st.integers(2, 20))
def test_a_range_of_ones_own_has_its_ends_or_is_refused_in_a_sentence(one, low, high, count):
    strategy, name = one
    now = getattr(strategy, name)
    assume(not isinstance(now, str | bool))
    if isinstance(now, int):
        low, high = int(low), int(high)
    least, most = bounds(type(strategy).model_fields[name], None if isinstance(now, int) else 0.001)
    if low >= high or low < least or high > most:
        with pytest.raises(SettingsError, match=r"\.$"):
            span(strategy, name, low, high, count)
    else:
        values = span(strategy, name, low, high, count)
        assert {low, high, now} <= set(values)
        assert all(isfinite(value) for value in values)
        assert len(values) <= max(count + 1, 3)


def test_what_cannot_be_a_range_is_refused():
    for name, low, high, count, said in (
        ("node_budget", 8, 8, 11, "two values"),
        ("node_budget", 9, 8, 11, "two values"),
        ("node_budget", 0, 8, 11, "from 1 to 1024"),
        ("node_budget", 1.5, 8, 11, "whole number"),
        ("node_budget", None, None, 1, "2 to"),
        ("root", 1, 2, 11, "choice of verified, drafted"),
        ("nonsense", None, None, 11, "no setting 'nonsense'"),
    ):
        with pytest.raises(SettingsError, match=said):
            span(DYNATREE, name, low, high, count)


def last(curves) -> Curve:
    *_, found = curves
    return found


def test_each_point_is_the_replay_of_its_settings_and_values_that_contradict_others_are_left_out_with_the_reason():
    run = finished()
    ranges = {"node_budget": (2, 6, 12), "base_depth": (1, 3, 9)}
    found = last(sweep(Replayer(run), DYNATREE, ranges))
    assert [point.values for point in found.points] == [*product(*ranges.values())]
    assert found.total == len(found.points)
    for point in found.points:
        if point.values[1] == 9:
            assert point.strategy is None
            assert "max_depth" in point.refused
            continue
        budget, depth = point.values
        alone = Replayer(run).replay(DYNATREE.changed(node_budget=budget, base_depth=depth))
        assert point.strategy == alone.strategy
        nodes = sum(one.nodes for one in alone.passes)
        assert figures(point) == (
            alone.iterations, alone.tokens_per_iteration, alone.draft_calls, nodes, alone.inexact,
        )  # fmt: skip
        assert point.tokens_per_second > 0
    assert found.here is found.points[7]
    assert figures(found.here)[0] == len(run.steps)
    assert found.plain.tokens_per_iteration == 1
    assert found.best.tokens_per_second == max(point.tokens_per_second for point in found.replayed)


def test_no_target_runs_and_the_session_stays_where_it_is():
    run = finished()
    run.goto(2)
    calls = run.pair.target.calls
    last(sweep(Replayer(run), DYNATREE, {"max_branches": span(DYNATREE, "max_branches", count=4)}))
    assert (run.pair.target.calls, run.cursor) == (calls, 2)


def test_cancelled_midway_it_ends_within_a_replay_and_what_was_drawn_stays():
    run, drawn, asked = finished(), [], 0

    def check() -> None:
        nonlocal asked
        asked += len(drawn) >= 2
        if asked > 2:
            raise CancelledError

    with pytest.raises(CancelledError):
        drawn.extend(sweep(Replayer(run), DYNATREE, {"node_budget": span(DYNATREE, "node_budget")}, check))
    assert [len(found.points) for found in drawn] == [1, 2]
    assert drawn[-1].best is not None


def test_all_strategies_are_one_table_those_that_cannot_run_with_the_reason():
    run = finished(speclab.PromptLookup(draft_tokens=3), replace(pair_of("llama"), draft=None, heads=()))
    found = last(every_strategy(Replayer(run), run.strategy))
    by_name = {point.values[0]: point for point in found.points}
    assert set(speclab.strategies(by_hand=False)) < set(by_name)
    assert "draft" in by_name["LinearSpeculation"].refused
    assert found.here.iterations == len(run.steps)
    assert by_name["Autoregressive"].iterations == len(run.token_ids) - 1
