"""Metrics over a run: what the cursor shows, acceptance by depth, plain decoding measured or called modelled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from view_samples import drafted_root, five_nodes, one_node, parse, trace, words

from speclab.trace.metrics import Metrics
from speclab.views import metrics_chart
from speclab.views.charts import points_sentence, points_svg, points_table
from speclab.views.metrics_chart import Plain


@pytest.mark.parametrize(("iterations", "cursor"), [(12, 0), (12, 1), (12, 5), (12, None), (200, None)])
def test_the_cursor_decides_what_is_drawn_and_a_long_run_shows_its_newest(iterations, cursor):
    made = trace(iterations)
    svg = metrics_chart.metrics_svg(made, cursor)
    drawn = [int(mark.get("data-iteration")) for mark in parse(svg).iter() if mark.get("data-iteration")]
    assert drawn == [step.index + 1 for step in made.steps[:cursor]][-metrics_chart.MOST :]
    if cursor is None:
        assert f"{made.metrics.tokens_per_iteration:.2f} tokens per iteration" in words(svg), "of all iterations"


def test_every_metric_has_a_definition_and_the_sentence_has_the_figures():
    made = trace(12)
    table = metrics_chart.metrics_table(made)
    for name in Metrics(made.metrics.counts).as_dict():
        assert len(metrics_chart.definition(name)) > 10
        assert name.replace("_", " ") in table
    assert "no iteration yet" in metrics_chart.summary(made, 0)
    for figure in (f"{made.metrics.tokens_per_iteration:.2f} tokens", f"{made.metrics.acceptance_rate:.0%} of drafted"):
        assert figure in metrics_chart.summary(made, 12)


def test_acceptance_by_depth_by_hand():
    run = [five_nodes(), five_nodes(), one_node(), drafted_root()]
    assert metrics_chart.depth_counts(run) == [(3, 3), (3, 3), (1, 0), (1, 0)]
    assert metrics_chart.depth_counts([one_node()]) == []


def test_adapted_settings_are_the_ones_that_changed():
    assert metrics_chart.adapted(trace(12).steps) == ("base_depth",)
    assert "base depth 7" in metrics_chart.metrics_svg(trace(12))
    assert metrics_chart.adapted(()) == ()


def test_plain_decoding_is_measured_or_called_modelled_and_never_invented():
    made = trace(12)
    modelled = metrics_chart.metrics_svg(made)
    assert "plain decoding, modelled" in modelled
    assert "at most" in modelled
    assert metrics_chart.modelled_plain(made.steps).seconds_per_token == min(s.seconds["verify"] for s in made.steps)
    measured = metrics_chart.metrics_svg(made, plain=Plain(0.01, "measured", "median of three runs"))
    assert "at most" not in measured
    seconds = sum(sum(step.seconds.values()) for step in made.steps)
    tokens = sum(len(step.committed) for step in made.steps)
    assert f"{0.01 * tokens / seconds:.2f}× the speed of plain decoding" in measured
    untimed = replace(made, steps=(replace(five_nodes(), seconds={}),))
    assert "plain decoding was not measured" in metrics_chart.metrics_svg(untimed)
    assert metrics_chart.modelled_plain(untimed.steps) is None


def test_round_numbers_and_durations():
    values = {0: 1, 0.3: 0.4, 1: 1, 3: 4, 5: 6, 7: 8, 9: 10, 11: 20, 81: 100}
    assert {value: metrics_chart.nice(value) for value in values} == values
    assert [metrics_chart.duration(v) for v in (0.0042, 1.384)] == ["4.2 ms", "1.38 s"]


@settings(max_examples=20)
@given(st.dictionaries(st.text("a<>&'\"é", min_size=1), st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1))
def test_any_figures_and_names_give_a_picture_and_a_table(rows):
    parse(points_svg("<b>", ["</svg>", "&"], rows) + points_table("<b>", ["</svg>", "&"], rows))
    assert f"{len(rows)} row" in points_sentence("Shares", rows)
