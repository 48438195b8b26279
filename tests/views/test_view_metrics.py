from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import steps
from hypothesis import given, settings
from hypothesis import strategies as st
from picture import HTML, check_svg, parse, texts
from view_samples import drafted_root, five_nodes, one_node, trace

from speclab.trace.metrics import Metrics
from speclab.views import explain, metrics_chart
from speclab.views.metrics_chart import Plain


@settings(max_examples=20)
@given(st.lists(steps(max_nodes=10), max_size=5))
def test_pictures_are_well_formed(run):
    made = replace(trace(1), steps=tuple(replace(step, index=i) for i, step in enumerate(run)))
    check_svg(metrics_chart.metrics_svg(made))
    parse(metrics_chart.metrics_table(made) + explain.table(made), HTML)


@pytest.mark.parametrize("cursor", [0, 1, 5, 12, None])
def test_the_cursor_decides_what_is_drawn(cursor):
    made = trace(12)
    root = check_svg(metrics_chart.metrics_svg(made, cursor))
    drawn = [int(e.get("data-iteration")) for e in root.iter() if e.get("data-iteration")]
    assert drawn == [step.index + 1 for step in made.steps[:cursor]]


def test_a_long_run_shows_its_newest_iterations():
    made = trace(200)
    svg = metrics_chart.metrics_svg(made)
    root = check_svg(svg)
    drawn = [int(e.get("data-iteration")) for e in root.iter() if e.get("data-iteration")]
    assert drawn == list(range(201 - metrics_chart.MOST, 201))
    assert len(svg) < 90_000
    tau = made.metrics.tokens_per_iteration
    assert f"{tau:.2f} tokens per iteration" in texts(root), "figures cover all iterations"


def test_every_metric_has_a_definition():
    table = metrics_chart.metrics_table(trace(12))
    for name in Metrics(trace(12).metrics.counts).as_dict():
        assert len(metrics_chart.definition(name)) > 10
        assert name.replace("_", " ") in table


def test_acceptance_by_depth_by_hand():
    run = [five_nodes(), five_nodes(), one_node(), drafted_root()]
    assert metrics_chart.depth_counts(run) == [(3, 3), (3, 3), (1, 0), (1, 0)]
    assert metrics_chart.depth_counts([one_node()]) == []


def test_adapted_settings_are_the_ones_that_changed():
    assert metrics_chart.adapted(trace(12).steps) == ("base_depth", "high_confidence")
    assert "base depth 7" in metrics_chart.metrics_svg(trace(12))
    assert metrics_chart.adapted(trace(2).steps[:0]) == ()


def test_plain_decoding_is_measured_or_called_modelled():
    made = trace(12)
    modelled = metrics_chart.metrics_svg(made)
    assert "plain decoding, modelled" in modelled
    assert "at most" in modelled
    measured = metrics_chart.metrics_svg(made, plain=Plain(0.01, "measured", "median of three runs"))
    assert "at most" not in measured
    seconds = sum(sum(step.seconds.values()) for step in made.steps)
    tokens = sum(len(step.committed) for step in made.steps)
    assert f"{0.01 * tokens / seconds:.2f}× the speed of plain decoding" in measured
    shortest = min(step.seconds["verify"] for step in made.steps)
    assert metrics_chart.modelled_plain(made.steps).seconds_per_token == shortest


def test_without_times_nothing_is_invented():
    step = replace(five_nodes(), seconds={})
    made = replace(trace(1), steps=(step,))
    svg = metrics_chart.metrics_svg(made)
    check_svg(svg)
    assert "plain decoding was not measured" in svg
    assert metrics_chart.modelled_plain([step]) is None


def test_round_numbers_and_durations():
    assert [metrics_chart.nice(v) for v in (0, 0.3, 1, 3, 4, 5, 7, 9, 11, 16.4, 81)] == [
        1,
        0.4,
        1,
        4,
        4,
        6,
        8,
        10,
        20,
        20,
        100,
    ]
    assert [metrics_chart.duration(v) for v in (0.0042, 1.384)] == ["4.2 ms", "1.38 s"]


def test_summary():
    assert metrics_chart.summary(trace(3), 0) == "Metrics: no iteration yet."
    made = trace(12)
    assert metrics_chart.summary(made, 12) == (
        f"Metrics after 12 iterations: {made.metrics.tokens_per_iteration:.2f} tokens per iteration, "
        f"{made.metrics.acceptance_rate:.0%} of drafted tokens accepted, {made.metrics.throughput:.0f} tokens/s."
    )
