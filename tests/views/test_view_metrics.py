"""Timeline, metrics and race: what the cursor shows, where a click goes, what is measured and what is modelled."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from draft_samples import stopped, typical
from view_samples import drafted_root, five_nodes, odd_tokens, one_node, parse, trace, words

from speclab.trace.metrics import Metrics
from speclab.views import iterations, metrics_chart, race_chart
from speclab.views.figures import figure
from speclab.views.metrics_chart import Plain

RUN = trace(12)
UNTIMED = replace(RUN, steps=tuple([replace(step, seconds={}) for step in RUN.steps]))


def figures_in(drawn):
    for part in [drawn] if isinstance(drawn, dict) else drawn:
        if isinstance(part, dict):
            assert part["layout"]["meta"]["label"]
            yield figure(part)
        else:
            parse(part)


def size(drawn) -> int:
    return len(json.dumps(drawn, separators=(",", ":"), ensure_ascii=False))


def told(made) -> str:
    """All words that stand in a figure."""
    notes = [note.text for note in made.layout.annotations]
    return " ".join([*notes, *[str(text) for one in made.data if (one.text is not None) for text in one.text]])


@pytest.mark.parametrize(
    ("count", "cursor"), [(0, 0), (1, 0), (1, 1), (12, 5), (130, 130), (400, 1), (400, 200), (400, 400)]
)
def test_the_timeline_shows_the_iterations_around_the_cursor_and_a_click_goes_to_each(count, cursor):
    run = trace(count)
    drawn = iterations.timeline_spec(run, cursor, {1: ["accepted < 2"], count + 5: ["never"]})
    assert size(drawn) < 12_000
    made = figure(drawn)
    to_click = [one for one in made.data if one.meta and one.meta.get("click") == "iteration"]
    reached = [place[0] for one in to_click for place in one.customdata if one.type == "bar"]
    assert len(reached) == min(count, iterations.MOST)
    assert cursor == 0 or cursor in reached
    assert reached == [step.index + 1 for step in run.steps if step.index + 1 in reached]
    dots = next(one for one in to_click if one.type == "scatter")
    assert list(dots.customdata) == [place for place in (1,) if place in reached]
    assert made.layout.height == 64
    assert any(shape.x0 == cursor - 0.5 and shape.x1 == cursor + 0.5 for shape in made.layout.shapes) == (cursor > 0)


def test_bars_are_the_tokens_accepted_and_the_targets_own():
    run = replace(RUN, steps=(five_nodes(), drafted_root(accept=False), one_node()))
    reach, accepted, bonus, corrected, *_ = iterations.timeline_spec(run, 3)["data"]
    assert reach["y"] == [3, 5, 1], "what the tree could have given at best"
    assert accepted["y"] == [2, 0, 0]
    assert (bonus["x"], corrected["x"]) == ([1, 3], [2])
    assert (bonus["base"], corrected["base"]) == ([2, 0], [0])
    assert "pattern" in corrected["marker"], "colour is not alone"
    assert "2 shown" in iterations.timeline_sentence(run, 2)


def test_tokens_and_reasons_are_shown_as_they_are():
    run = replace(RUN, steps=(odd_tokens(),))
    drawn = json.dumps(
        [iterations.timeline_spec(run, 1, {1: ["token is <b>x</b>"]}), metrics_chart.metrics_drawing(run)]
    )
    assert "<script" not in drawn
    assert "&lt;b&gt;x" in drawn


@pytest.mark.parametrize(
    ("run", "cursor"), [(RUN, 0), (RUN, 1), (RUN, 5), (RUN, None), (trace(200), 150), (UNTIMED, None)]
)
def test_metrics_are_of_the_iterations_until_the_cursor(run, cursor):
    drawn = metrics_chart.metrics_drawing(run, cursor)
    made = list(figures_in(drawn))
    assert size(drawn) < 30_000
    if cursor == 0:
        assert made == []
        return
    shown = told(made[0])
    figures = metrics_chart.metrics_at(run, cursor)
    assert f"{figures.tokens_per_iteration:.2f} tokens per iteration" in shown
    assert "committed / verification passes" in shown
    assert f"{figures.acceptance_rate:.0%} acceptance rate" in shown
    clicks = next(one for one in made[0].data if one.meta)
    assert [place[0] for place in clicks.customdata] == [
        step.index + 1 for step in iterations.window(run, cursor or len(run.steps))[1]
    ]
    assert ("measured, by phase" in shown) == (run is not UNTIMED)


def test_every_metric_has_a_definition_and_the_sentence_has_the_figures():
    table = metrics_chart.metrics_table(RUN)
    for name in Metrics(RUN.metrics.counts).as_dict():
        assert len(metrics_chart.definition(name)) > 10
        assert name.replace("_", " ") in table
    assert metrics_chart.metrics_at(RUN).as_dict() == {**RUN.metrics.as_dict()}
    assert "no iteration yet" in metrics_chart.summary(RUN, 0)
    for fact in (f"{RUN.metrics.tokens_per_iteration:.2f} tokens", f"{RUN.metrics.acceptance_rate:.0%} of drafted"):
        assert fact in metrics_chart.summary(RUN, 12)


def test_acceptance_by_depth_and_adapted_settings_by_hand():
    run = [five_nodes(), five_nodes(), one_node(), drafted_root()]
    assert metrics_chart.depth_counts(run)[:2] == [(3, 3), (3, 3)]
    assert metrics_chart.depth_counts([one_node()]) == []
    assert metrics_chart.adapted(RUN.steps) == ("base_depth",)
    assert "base depth 7" in told(figure(metrics_chart.metrics_spec(RUN)))
    assert metrics_chart.adapted(()) == ()


def test_plain_decoding_is_measured_or_called_modelled_and_never_invented():
    steps = RUN.steps
    assert "at most" in metrics_chart.clock_sentence(steps)
    assert "modelled" in metrics_chart.clock_sentence(steps)
    assert metrics_chart.modelled_plain(steps).seconds_per_token == min(s.seconds["verify"] for s in steps)
    measured = Plain(0.01, "measured", "median of three runs")
    ratio = 0.01 * sum(len(s.committed) for s in steps) / sum(sum(s.seconds.values()) for s in steps)
    assert f"{ratio:.2f}× the speed of plain decoding" in metrics_chart.clock_sentence(steps, measured)
    assert "at most" not in metrics_chart.clock_sentence(steps, measured)
    assert "was not measured" in metrics_chart.clock_sentence(UNTIMED.steps)
    assert metrics_chart.modelled_plain(UNTIMED.steps) is None
    assert [metrics_chart.duration(v) for v in (0.0042, 1.384)] == ["4.2 ms", "1.38 s"]


@pytest.mark.parametrize("clock", ["measured", "modelled"])
@pytest.mark.parametrize("run", [RUN, UNTIMED, trace(1), replace(RUN, steps=(odd_tokens(),), texts=odd_tokens().texts)])
def test_both_tracks_of_a_race_write_the_same_text_in_the_end(run, clock):
    last = race_chart.beats(run, clock=clock)
    tokens = len(run.token_ids())
    for beat in (0, 1, last // 2, last, last + 9):
        drawn = race_chart.race(run, beat, clock=clock)
        assert len(list(figures_in(drawn))) == 1
        assert size(drawn) < 12_000
    said = words(drawn[0])
    assert said.count(f"{tokens} tokens") == 2
    made = race_chart.race_of(run, clock)
    assert made.ours.written(0) == made.plain.written(0) == 1, "the prefill's token"
    assert made.ours.tokens[-1] == made.plain.tokens[-1] == tokens
    assert all(
        early <= late
        for track in (made.ours, made.plain)
        for early, late in zip(track.seconds, track.seconds[1:], strict=False)
    )


def test_the_race_says_which_seconds_are_modelled_and_whether_the_texts_would_be_the_same():
    assert "plain decoding's are modelled" in words(race_chart.race(RUN, 3)[-1])
    measured = words(race_chart.race(RUN, 3, clock="modelled", plain=Plain(0.01, "measured", "five runs"))[-1])
    assert "This run's seconds are modelled" in measured
    assert "plain decoding's are measured" in measured
    assert "No seconds were recorded" in words(race_chart.race(UNTIMED, 3)[-1])
    assert race_chart.beats(replace(RUN, steps=())) == 0
    for step, said in ((stopped(), "another text of the same distribution"), (typical(), "changes the output")):
        assert said in words(race_chart.race(replace(RUN, steps=(step,)), 1)[-1])
    assert "another text" not in words(race_chart.race(RUN, 1)[-1])
