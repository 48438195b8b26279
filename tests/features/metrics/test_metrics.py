"""The numbers over iterations."""

from __future__ import annotations

import pytest
from support.pictures import said
from support.view_samples import trace

from speclab import views


def test_metrics_are_of_the_iterations_until_the_cursor():
    steps = trace().steps[:4]
    figure = views.metrics(trace(), 4)
    tokens = [*map(sum, zip(figure.data[0].y, figure.data[1].y, strict=True))]
    assert tokens == [len(step.committed) for step in steps]
    seconds = sum(sum(bar.y) for bar in figure.data[2:]) / 1000
    assert seconds == pytest.approx(sum(sum(step.seconds.values()) for step in steps), abs=1e-4)
    assert f"{sum(tokens) / 4:.2f} tokens per pass" in said(figure)
