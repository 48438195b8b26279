"""One plotly FigureWidget of the tree: made once, changed in place, shown when a browser has drawn it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

from ipywidgets import HTML, Box

from speclab.lab.state import Frame
from speclab.lab.theme import figure_style
from speclab.trace.records import Step
from speclab.views.tree import tree_figure, update_tree

PATIENCE, TRIES = 10.0, 3
"""A browser gives a figure's five megabytes of code two seconds to start; one that was too busy is asked again."""
_CONFIG = {"displaylogo": False, "displayModeBar": False, "scrollZoom": True}
_log = logging.getLogger(__name__)


class FigureStage(Box):
    """Holds the figure.

    Args:
        clicked: called with the node that a person clicked.
        lives: called when a browser has drawn the figure.

    Attributes:
        figure: the FigureWidget; None until there is one.
        alive: whether a browser has drawn it.
    """

    def __init__(self, clicked: Callable[[int], Any], lives: Callable[[], None]) -> None:
        self.figure: Any = None
        self.alive = False
        self._clicked, self._lives = clicked, lives
        self._made, self._tries = 0.0, 0
        super().__init__()
        self.add_class("speclab-stage")
        self.add_class("speclab-waiting")

    def draw(self, frame: Frame, step: Step) -> None:
        """Draws the frame; makes the figure first, if there is none or no browser has taken it."""
        late = not self.alive and monotonic() - self._made > PATIENCE
        if self.figure is None or (late and self._tries < TRIES):
            self._make(frame, step)
        else:
            update_tree(self.figure, step, selected=frame.selected, moment=frame.moment)

    def _make(self, frame: Frame, step: Step) -> None:
        from speclab.lab.figure_widget import LateFigure

        former, figure = self.figure, LateFigure()
        figure._config = _CONFIG
        tree_figure(step, selected=frame.selected, moment=frame.moment, figure=figure)
        figure.add_class("speclab-tree")
        for trace in figure.data:
            trace.on_click(self._on_click)
        figure.observe(self._on_drawn, "_js2py_traceDeltas")
        self.figure, self._made, self._tries = figure, monotonic(), self._tries + 1
        self.children = [HTML(f"<style>{figure_style(figure)}</style>"), figure]
        if former is not None:
            former.close()

    def _on_drawn(self, _: Any) -> None:
        if not self.alive:
            self.alive = True
            self.remove_class("speclab-waiting")
            self._lives()

    def _on_click(self, trace: Any, points: Any, _: Any) -> None:
        if not points.point_inds or trace.customdata is None:
            return
        node = trace.customdata[points.point_inds[0]]
        if node is not None and node >= 0:
            self._clicked(int(node))
