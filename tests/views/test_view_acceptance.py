"""Acceptance as cells, as bars, and against stated probability: what is drawn, said and clicked."""

from __future__ import annotations

import numpy as np
import pytest
from made_run import made_run
from plotly.graph_objects import Figure

from speclab import views
from speclab.analysis.aggregate import aggregate
from speclab.errors import NotRecordedError
from speclab.views.acceptance_chart import FEW, acceptance_drawing, calibration_drawing, cells_spec

RUNS = aggregate([made_run(40, 30), made_run(6, 12, seed=1)])


def test_a_cell_shows_its_rate_and_one_with_few_tries_its_counts_and_a_hatch():
    cells = RUNS.group("depth", "kind")
    (bars,) = cells_spec(cells, 100)["data"]
    places = [divmod(cell - 100, len(cells.names[1])) for cell in bars["customdata"]]
    assert sorted(places) == [tuple(place) for place in np.argwhere(cells.tried > 0).tolist()]
    kinds = set()
    for at, words, shape, x, base in zip(
        places, bars["text"], bars["marker"]["pattern"]["shape"], bars["x"], bars["base"], strict=True
    ):
        few = cells.tried[at] < FEW
        kinds.add(bool(few))
        assert (shape == "/", "%" in words) == (few, not few), "the colour is not alone"
        assert f"{cells.accepted[at]} of {cells.tried[at]}" in words
        assert (round(base + 0.47), x) == at
    assert kinds == {True, False}
    assert bars["meta"] == {"click": "group"}


def test_bars_of_one_dimension_have_their_intervals():
    cells = RUNS.group("rank")
    bars, _ = cells_spec(cells)["data"]
    low, high = cells.interval
    np.testing.assert_allclose(np.add(bars["x"], bars["error_x"]["array"]), high[bars["y"], 0], atol=1e-4)
    np.testing.assert_allclose(np.subtract(bars["x"], bars["error_x"]["arrayminus"]), low[bars["y"], 0], atol=1e-4)
    assert bars["customdata"] == bars["y"]


def test_every_cell_is_in_the_table_and_the_sentence_says_the_extremes():
    drawn, words = acceptance_drawing(RUNS, "depth", "source")
    cells = RUNS.group("depth", "source")
    assert words.count("<tr") == 1 + (cells.tried > 0).sum()
    sure = cells.rate[cells.tried >= FEW]
    label = drawn["layout"]["meta"]["label"]
    assert f"{sure.min():.0%}" in label
    assert f"{sure.max():.0%}" in label


def test_calibration_has_the_diagonal_and_a_point_per_bin_that_holds_any():
    drawn, words = calibration_drawing(RUNS, (10, 20))
    diagonal, every, first = drawn["data"]
    assert diagonal["x"] == diagonal["y"] == [0, 1]
    for points, start, made in ((first, 10, RUNS.calibration()), (every, 20, RUNS.calibration(first=False))):
        tried = made.cells.tried[:, 0]
        assert points["customdata"] == (start + np.flatnonzero(tried)).tolist()
        np.testing.assert_allclose(points["x"], made.stated[tried > 0])
        assert [symbol.endswith("open") for symbol in points["marker"]["symbol"]] == (tried[tried > 0] < FEW).tolist()
        assert f"{made.error:.2f}" in str(drawn["layout"]["annotations"])
    assert "argmax" in words or "most probable" in words, "what calibration means at temperature 0"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_they_are_figures_and_empty_ones_are_one_sentence(theme):
    for by2 in (None, "entropy", "draft_prob"):
        assert isinstance(views.acceptance(RUNS, "kind", by2, theme=theme), Figure)
    assert isinstance(views.calibration(RUNS, theme=theme), Figure)
    for draw in (views.acceptance, views.calibration):
        with pytest.raises(NotRecordedError, match="tried"):
            draw(aggregate([]))
