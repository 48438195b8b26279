"""Bars of a comparison, and curves."""

from __future__ import annotations

from support.view_samples import trace

import speclab
from speclab import views
from speclab.features.compare import ComparedRun, Comparison
from speclab.features.replay.curves import Curve, Point


def test_every_run_has_a_bar_and_a_curve_marks_the_current_value():
    figure = views.compare(
        Comparison((ComparedRun("plain <b>", trace()), ComparedRun("head", None)))
    )
    assert figure.data[0].text[1] == "did not run"
    best, _ = figure.layout.yaxis.ticktext
    assert best == "<b>plain &lt;b&gt;</b>", "the best is bold, a name no markup"
    now = speclab.FixedTree(depth=2)
    points = (Point(1, None, 10, 1.25), Point(2, now, 10, 1.5), Point(3, None, refused="deep"))
    figure = views.curve(Curve(now, "depth", (1, 2, 3), Point("", iterations=40), points))
    assert figure.data[0].y == (1.25, 1.5), "what was refused has no point"
    assert (figure.data[1].x, figure.data[1].y) == ((2,), (1.5,))
