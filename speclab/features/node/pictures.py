"""The picture of a node: what comes next, for the target and for the draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.trace.records import Step
from speclab.views.drawing import ThemeName, figure, node_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def node(step: Step, selected: int = 0, *, theme: ThemeName = "light") -> Figure:
    """The most probable next tokens after a node, for the target and for the draft, side by side.

    Raises:
        NotRecordedError: there is no such node.
    """
    return figure(theme, "nodeFigure", step, node_of(step, selected))
