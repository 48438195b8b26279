"""The draft tree: SVG at first, then a figure that zooms and can be clicked."""

from __future__ import annotations

import logging
import os
from typing import Any

from ipywidgets import HTML, Box

from speclab.lab.commands import Commands
from speclab.lab.figure_stage import FigureStage
from speclab.lab.ghost import Ghost
from speclab.lab.picture import empty
from speclab.lab.state import Frame, LabState
from speclab.lab.sync import assign, show
from speclab.views.tree import tree_svg

_log = logging.getLogger(__name__)


class TreePanel(Box):
    """Shows the tree of the frame. The figure costs a second and five megabytes, so it is made when it is wanted.

    Till a browser has drawn it, and where none ever does, the SVG stands in its place; while settings are changed and
    not applied, the ghost.
    """

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._state = state
        self._wanted = False
        self._drawn: tuple[Any, ...] = ()
        self.still = HTML()
        self.stage = FigureStage(commands.select, self._swap)
        self.ghost = Ghost(state, self._swap)
        super().__init__([self.ghost, self.still, self.stage])
        self.add_class("speclab-tree-panel")

    @property
    def figure(self) -> Any:
        """The FigureWidget; None until there is one."""
        return self.stage.figure

    def update(self, frame: Frame) -> None:
        """Draws the frame, if its tree differs from the one shown."""
        key = (frame.step, frame.moment, frame.selected)
        if self._drawn and key[0] is self._drawn[0] and key[1:] == self._drawn[1:]:
            return
        self._drawn = key
        if self._wanted and frame.step is not None:
            self._draw_figure(frame)
        if frame.step is None:
            assign(self.still, value=empty("No iteration yet. Step decodes the first: its draft tree appears here."))
        elif not self.stage.alive:
            assign(self.still, value=tree_svg(frame.step, frame.selected, moment=frame.moment))
        self._swap()

    def want_figure(self) -> None:
        """Makes the figure now, or with the first iteration there is; under Voilà the SVG stays.

        Voilà builds widgets anew from their state, which holds no data of a plotly figure: it would come out blank.
        """
        self._wanted, self._drawn = "VOILA_BASE_URL" not in os.environ, ()
        self.update(self._state.frame)

    def _draw_figure(self, frame: Frame) -> None:
        assert frame.step is not None
        try:
            self.stage.draw(frame, frame.step)
        except ImportError as error:
            self._wanted = False
            _log.warning("the tree stays a still picture: %s", error)

    def _swap(self) -> None:
        figure, covered = self.stage.alive and self._state.step is not None, self.ghost.covering
        show(self.stage, visible=self.stage.figure is not None and self._state.step is not None and not covered)
        show(self.still, visible=not figure and not covered)
