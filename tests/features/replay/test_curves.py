"""Settings over their range, on one text: the values chosen, and that each point is the replay of its settings."""

from dataclasses import replace

import pytest
from support.pairs import PROMPT, pair_of
from support.records import ran

import speclab
from speclab.drafters.ranges import COUNT
from speclab.errors import CancelledError
from speclab.features.replay.curves import span, sweep, variable
from speclab.features.replay.replayer import Replayer
from speclab.settings import bounds

KINDS = [
    kind
    for kind in speclab.strategies().values()
    if all(not f.is_required() for f in kind.model_fields.values())
]
RANGES = [
    *((kind(), variable(kind())) for kind in KINDS),
    (speclab.DynaTree(base_depth=1, max_depth=1), ["max_depth"]),
    (speclab.LinearSpeculation(draft_tokens=63), ["draft_tokens"]),
]
DYNATREE = speclab.DynaTree(prune_probability=0.1, base_depth=3, node_budget=12)


def finished(strategy=DYNATREE, pair=None):
    return ran(pair or pair_of("llama"), strategy, PROMPT, max_new_tokens=24)


@pytest.mark.parametrize(("strategy", "names"), RANGES, ids=lambda one: type(one).__name__)
def test_a_range_is_in_order_distinct_within_bounds_and_holds_the_current_value(strategy, names):
    for name in names:
        values = span(strategy, name)
        assert getattr(strategy, name) in values
        assert 2 <= len(values) == len(set(values))
        numbers = [
            value
            for value in values
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        if numbers:
            assert numbers == sorted(numbers)
            assert len(values) <= COUNT + 3
            low, high = bounds(type(strategy).model_fields[name])
            assert low <= numbers[0] < numbers[-1] <= high
        for value in numbers:
            assert strategy.changed(**{name: value})


def test_each_point_is_the_replay_of_its_settings_and_values_that_contradict_others_say_why():
    run = finished()
    run.goto(2)
    calls = run.pair.target.calls
    *_, curve = sweep(Replayer(run), DYNATREE, "base_depth", (1, 3, 9))
    assert (run.pair.target.calls, run.cursor) == (calls, 2), (
        "no target runs, and the session stays where it is"
    )
    assert [point.value for point in curve.points] == [1, 3, 9]
    low, here, refused = curve.points
    assert (refused.strategy, "max_depth" in refused.refused) == (None, True)
    for point in (low, here):
        alone = Replayer(run).replay(DYNATREE.changed(base_depth=point.value))
        for name in ("strategy", "iterations", "tokens_per_iteration", "draft_calls"):
            assert getattr(point, name) == getattr(alone, name)
        assert point.rows == sum(one.nodes for one in alone.passes)
    assert here.iterations == len(run.steps)
    assert curve.plain.tokens_per_iteration == 1


def test_cancelled_midway_it_ends_within_a_replay_and_what_was_yielded_stays():
    run = finished()
    drawn = []
    asked = 0

    def check():
        nonlocal asked
        asked += len(drawn) >= 2
        if asked > 2:
            raise CancelledError

    with pytest.raises(CancelledError):
        drawn.extend(sweep(Replayer(run), DYNATREE, "node_budget", check=check))
    assert [len(curve.points) for curve in drawn] == [1, 2]


def test_a_strategy_that_cannot_run_is_refused_at_each_point():
    run = finished(
        speclab.PromptLookup(draft_tokens=3), replace(pair_of("llama"), draft=None, heads=())
    )
    *_, curve = sweep(Replayer(run), speclab.LinearSpeculation(), "draft_tokens", (2, 3))
    assert all("draft" in point.refused for point in curve.points)


def test_the_ends_of_an_open_range_are_accepted():
    for end in bounds(speclab.DynaTree.model_fields["prune_probability"], 0.001):
        assert speclab.DynaTree(prune_probability=end).prune_probability == end
