"""The picture of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.views.drawing import ThemeName, figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from speclab.features.compare import Comparison


def compare(comparison: Comparison, *, theme: ThemeName = "light") -> Figure:
    """Tokens per iteration of the runs of `speclab.compare(…)`, one bar each."""
    rates = [run.trace and run.trace.metrics.tokens_per_iteration for run in comparison.runs]
    return figure(theme, "compareFigure", [run.name for run in comparison.runs], rates)
