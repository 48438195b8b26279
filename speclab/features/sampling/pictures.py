"""The picture of a draw from the residual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.errors import NotRecordedError
from speclab.trace.records import Step, step_of
from speclab.views.drawing import ThemeName, figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def residual(step: Step, *, theme: ThemeName = "light") -> Figure:
    """Where sampling stopped: the target's and the draft's distribution, and the residual that the
    target drew from.

    Raises:
        NotRecordedError: the iteration drew nothing, as at temperature 0.
    """
    if step_of(step).residual is None:
        raise NotRecordedError(
            "This iteration drew from no residual: decode at a temperature above 0."
        )
    return figure(theme, "residualFigure", step)
