"""Timeline, metrics and race: what the cursor shows, where a click goes, what is measured and what is modelled."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from draft_samples import stopped, typical
from drawn import figures, said
from view_samples import drafted_root, five_nodes, odd_tokens, one_node, trace, words

from speclab.trace.metrics import Metrics
from speclab.trace.records import depth_counts
from speclab.views import metrics_chart, race_chart
from speclab.views.figures import figure

RUN = trace(12)
UNTIMED = replace(RUN, steps=tuple([replace(step, seconds={}) for step in RUN.steps]))


def size(drawn) -> int:
    return len(json.dumps(drawn, separators=(",", ":"), ensure_ascii=False))


@pytest.mark.parametrize(
    ("count", "cursor"), [(0, 0), (1, 0), (1, 1), (12, 5), (130, 130), (400, 1), (400, 200), (400, 400)]
)
def test_the_timeline_shows_the_iterations_around_the_cursor_and_a_click_goes_to_each(count, cursor):
    run = trace(count)
    drawn = metrics_chart.timeline_spec(run, cursor, (1, count + 5))
    assert size(drawn) < 12_000
    made = figure(drawn)
    to_click = [one for one in made.data if one.meta and one.meta.get("click") == "iteration"]
    reached = [place[0] for one in to_click for place in one.customdata if one.type == "bar"]
    assert len(reached) == min(count, metrics_chart.MOST)
    assert cursor == 0 or cursor in reached
    assert reached == [step.index + 1 for step in run.steps if step.index + 1 in reached]
    dots = next(one for one in to_click if one.type == "scatter")
    assert list(dots.customdata) == [place for place in (1,) if place in reached]
    assert made.layout.height == 64
    assert any(shape.x0 == cursor - 0.5 and shape.x1 == cursor + 0.5 for shape in made.layout.shapes) == (cursor > 0)


def test_bars_are_the_tokens_accepted_and_the_targets_own():
    run = replace(RUN, steps=(five_nodes(), drafted_root(accept=False), one_node()))
    reach, accepted, bonus, corrected, *_ = metrics_chart.timeline_spec(run, 3)["data"]
    assert reach["y"] == [3, 5, 1], "what the tree could have given at best"
    assert accepted["y"] == [2, 0, 0]
    assert (bonus["x"], corrected["x"]) == ([1, 3], [2])
    assert (bonus["base"], corrected["base"]) == ([2, 0], [0])
    assert bonus["width"] == corrected["width"] < 1, "plotly would make bars as wide as their distance"
    assert "pattern" in corrected["marker"], "colour is not alone"
    assert "2 shown" in metrics_chart.timeline_sentence(run, 2)


@pytest.mark.parametrize(
    ("run", "cursor"), [(RUN, 0), (RUN, 1), (RUN, 5), (RUN, None), (trace(200), 150), (UNTIMED, None)]
)
def test_metrics_are_of_the_iterations_until_the_cursor(run, cursor):
    drawn = metrics_chart.metrics_drawing(run, cursor)
    assert size(drawn) < 30_000
    assert len(figures(drawn)) == (0 if cursor == 0 else 2)
    if cursor == 0:
        return
    shown, made = said(drawn), metrics_chart.metrics_at(run, cursor)
    assert f"<b>{made.tokens_per_iteration:.2f} tokens per iteration</b><br>committed / verification passes" in shown
    assert f"{made.acceptance_rate:.0%} acceptance rate" in shown
    clicks = next(one["customdata"] for one in drawn[0]["data"] if one.get("meta") == {"click": "iteration"})
    known = metrics_chart.window(run, len(run.steps) if cursor is None else cursor)[1]
    assert [place[0] for place in clicks] == [step.index + 1 for step in known]
    assert ("measured, by phase" in shown) == (run is not UNTIMED)


def test_every_metric_has_a_definition_and_the_sentence_has_the_figures():
    table = metrics_chart.metrics_table(RUN)
    for name in Metrics(RUN.metrics.counts).as_dict():
        assert len(metrics_chart.definition(name)) > 10
        assert name.replace("_", " ") in table
    assert metrics_chart.metrics_at(RUN).as_dict() == {**RUN.metrics.as_dict()}
    assert "no iteration yet" in metrics_chart.summary(RUN, 0)
    assert f"{RUN.metrics.tokens_per_iteration:.2f} tokens" in metrics_chart.summary(RUN, 12)


def test_acceptance_by_depth_and_adapted_settings_by_hand():
    run = [five_nodes(), five_nodes(), one_node(), drafted_root()]
    assert depth_counts(run)[:2] == [(3, 3), (3, 3)]
    assert depth_counts([one_node()]) == []
    assert metrics_chart.adapted(RUN.steps) == ("base_depth",)
    assert "base depth 7" in said(metrics_chart.metrics_spec(RUN))


def test_plain_decoding_is_called_modelled_and_never_invented():
    steps = RUN.steps
    plain = min(step.seconds["verify"] for step in steps)
    assert metrics_chart.modelled_plain(steps) == plain
    ratio = plain * sum(len(s.committed) for s in steps) / sum(sum(s.seconds.values()) for s in steps)
    assert f"at most {ratio:.2f}× the speed of plain decoding (modelled" in metrics_chart.clock_sentence(steps)
    assert "was not measured" in metrics_chart.clock_sentence(UNTIMED.steps)
    assert metrics_chart.modelled_plain(UNTIMED.steps) is None
    assert [metrics_chart.duration(v) for v in (0.0042, 1.384)] == ["4.2 ms", "1.38 s"]


@pytest.mark.parametrize("run", [RUN, UNTIMED, trace(1), replace(RUN, steps=(odd_tokens(),), texts=odd_tokens().texts)])
def test_both_tracks_of_a_race_write_the_same_text_in_the_end(run):
    last, tokens = race_chart.beats(run), len(run.token_ids())
    for beat in (0, 1, last // 2, last, last + 9):
        drawn = race_chart.race(run, beat)
        assert len(figures(drawn)) == 1
        assert "<script" not in json.dumps(drawn)
        assert size(drawn) < 12_000
    assert words(drawn[0]).count(f"{tokens} tokens") == 2
    made = race_chart.race_of(run)
    for track in (made.ours, made.plain):
        assert track.written(0) == 1, "the prefill's token"
        assert track.tokens[-1] == tokens
        assert sorted(track.seconds) == [*track.seconds]


def test_the_race_says_which_seconds_are_modelled_and_whether_the_texts_would_be_the_same():
    assert "plain decoding's are modelled" in words(race_chart.race(RUN, 3)[-1])
    assert "No seconds were recorded" in words(race_chart.race(UNTIMED, 3)[-1])
    assert race_chart.beats(replace(RUN, steps=())) == 0
    for step, fact in ((stopped(), "another text of the same distribution"), (typical(), "changes the output")):
        assert fact in words(race_chart.race(replace(RUN, steps=(step,)), 1)[-1])
    assert "another text" not in words(race_chart.race(RUN, 1)[-1])
