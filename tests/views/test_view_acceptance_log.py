"""Logs of acceptance as pictures: steps with their mean, rates over time, depths of several logs, and what differs."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import figures, html, said
from plotly.graph_objects import Figure
from view_samples import parse

from speclab import AcceptanceLog, views
from speclab.errors import NotRecordedError, SettingsError
from speclab.serving.accepted import AcceptedStep, LogComparison, Logged
from speclab.views.acceptance_log import FEW, MOST, WINDOW, depths_drawing, timeline_drawing

NASTY = "<b>a</b> & $x$.log"


def steps(count: int, seed: int = 0) -> list[AcceptedStep]:
    numbers = np.random.default_rng(seed)
    return [AcceptedStep(4, int(numbers.integers(0, 5))) for _ in range(count)]


def log_of(*counts: int, source: str = NASTY) -> AcceptanceLog:
    return AcceptanceLog("vllm", tuple(Logged.of_steps(steps(count, count), name="one") for count in counts), source)


def rates(*values: float, seconds: float | None = 60.0) -> AcceptanceLog:
    entries = [
        Logged(tokens_per_iteration=1 + 4 * value, acceptance_rate=value, seconds=seconds and at * seconds)
        for at, value in enumerate(values)
    ]
    return AcceptanceLog("sglang", tuple(entries), "server.log", notes=("These are rates.",))


def test_every_step_has_its_bar_and_the_mean_is_that_of_the_newest():
    log = log_of(30, 20)
    (drawn,) = figures(timeline_drawing(log))
    drafted, accepted, mean = drawn["data"]
    assert accepted["y"] == [step.accepted for step in log.steps]
    assert drafted["y"] == [4] * 50
    own = [np.mean(accepted["y"][max(0, at + 1 - WINDOW) : at + 1]) for at in range(50)]
    np.testing.assert_allclose(mean["y"], own, atol=1e-4)
    assert [shape["x0"] for shape in drawn["layout"]["shapes"]] == [30.5]
    assert len(accepted["hovertext"]) == 50


def test_of_more_steps_a_bar_is_the_mean_of_several_and_says_so():
    log = log_of(MOST * 3 - 1)
    (drawn,) = figures(timeline_drawing(log))
    accepted = drawn["data"][1]
    assert len(accepted["y"]) == MOST
    assert accepted["y"][1] == pytest.approx(np.mean([step.accepted for step in log.steps[3:6]]), abs=1e-4)
    assert "mean of 3 steps" in said(drawn)
    assert accepted["x0"] == 2, "in the middle of the steps 1, 2, 3"


def test_rates_stand_over_the_logs_clock_and_else_one_after_another():
    (drawn,) = figures(timeline_drawing(rates(0.5, 0.25, 0.75)))
    tokens, rate = drawn["data"]
    assert tokens["y"] == [3.0, 2.0, 4.0]
    assert rate["y"] == [0.5, 0.25, 0.75]
    assert tokens["x"] == [0, 60, 120]
    assert "seconds" in said(drawn)
    (longer,) = figures(timeline_drawing(rates(0.5, 0.25, seconds=600)))
    assert longer["data"][0]["x"] == [0, 10]
    assert "minutes" in said(longer)
    (unknown,) = figures(timeline_drawing(rates(0.5, 0.25, seconds=None)))
    assert unknown["data"][0]["x"] == [1, 2]
    assert "These are rates." in said(timeline_drawing(rates(0.5)))


def test_of_more_entries_a_point_is_the_mean_of_several():
    values = np.random.default_rng(0).random(2 * MOST).tolist()
    (drawn,) = figures(timeline_drawing(rates(*values)))
    np.testing.assert_allclose(drawn["data"][1]["y"], np.reshape(values, (MOST, 2)).mean(1))
    assert "mean of 2" in drawn["data"][1]["hovertext"][0]


def test_depths_of_several_logs_are_told_apart_by_mark_and_dash_with_counts_behind_them():
    logs = [log_of(40), log_of(30, source="b"), log_of(12, source="c")]
    (drawn,) = figures(depths_drawing(*logs))
    shares, alphas = drawn["data"][::2], drawn["data"][1::2]
    for log, share, alpha in zip(logs, shares, alphas, strict=True):
        depths = log.acceptance_by_depth
        np.testing.assert_allclose(share["y"], [one.share for one in depths], atol=1e-4)
        np.testing.assert_allclose(alpha["y"], [one.conditional for one in depths], atol=1e-4)
        open_marks = [symbol.endswith("-open") for symbol in alpha["marker"]["symbol"]]
        assert open_marks == [one.tried < FEW for one in depths]
        assert f"{depths[0].accepted} of {depths[0].iterations} iterations" in share["hovertext"][0]
    assert len({(trace["line"]["dash"], trace["marker"]["symbol"][0].removesuffix("-open")) for trace in shares}) == 3
    table = html(depths_drawing(*logs))
    parse(table)
    assert table.count("<tr") == 1 + sum(len(log.acceptance_by_depth) for log in logs)


def test_a_comparison_shows_both_and_says_what_differs():
    compared = LogComparison(log_of(40), log_of(30, source="ours"), ("Ours is <replayed>.",))
    shown = depths_drawing(compared)
    assert len(figures(shown)[0]["data"]) == 4
    assert "Ours is <replayed>." in said(shown)
    parse(html(shown))
    alone = depths_drawing(LogComparison(rates(0.5), rates(0.25), ("It has no counts.",)))
    assert figures(alone) == []
    assert "no counts" in said(alone)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_they_are_figures_and_what_has_none_is_one_sentence(theme):
    for log in (log_of(20), rates(0.5, 0.6)):
        assert isinstance(views.logged(log, theme=theme), Figure)
    assert isinstance(views.depths(log_of(20), theme=theme), Figure)
    with pytest.raises(NotRecordedError, match="no counts by depth"):
        views.depths(rates(0.5), theme=theme)
    with pytest.raises(SettingsError, match="told apart"):
        views.depths(*[log_of(5)] * 7)
