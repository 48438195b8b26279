"""The tree of a what-if over the tree of its iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.trace.records import Step, step_of
from speclab.views.drawing import ThemeName, figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from speclab.features.whatif import WhatIf


def whatif(step: Step, found: WhatIf, *, theme: ThemeName = "light") -> Figure:
    """The tree that another setting would have drafted (`speclab.what_if`), over the tree of the iteration."""
    return figure(theme, "whatIfFigure", step_of(step), found.data())
