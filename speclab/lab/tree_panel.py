"""The draft tree: an SVG that follows at once, and on request a figure to zoom in."""

from __future__ import annotations

import logging
from typing import Any

from ipywidgets import Box, ToggleButton

from speclab.lab.commands import Commands
from speclab.lab.figure_stage import FigureStage
from speclab.lab.ghost import Ghost
from speclab.lab.picture import Picture, empty
from speclab.lab.pointer import Pointer
from speclab.lab.recent import Recent
from speclab.lab.state import Frame, LabState
from speclab.lab.sync import assign, on_change, show
from speclab.views.tree import tree_svg

_log = logging.getLogger(__name__)


class TreePanel(Box):
    """Shows the tree of the frame: its SVG, or with `zoom` switched on a figure; while settings are changed and not
    applied, the ghost.

    The figure costs five megabytes once, and then three times the SVG's time at every change: so it is made when it is
    asked for, and what is not on the screen is sent nothing. Till a browser has drawn it, and where none ever does, the
    SVG stands in its place.
    """

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._state = state
        self._drawn: tuple[Any, ...] = ()
        self.svg = Picture("still", _still, lambda frame: (frame.step, frame.moment, frame.selected), Recent())
        self.stage = FigureStage(commands.select, self._swap)
        self.ghost = Ghost(state, self._swap)
        self.zoom = _zoom()
        self._ask = commands.ask
        on_change(self.zoom, self._switched)
        super().__init__([self.ghost, self.svg.widget, self.stage, Pointer(commands.select)])
        self.add_class("speclab-tree-panel")

    @property
    def figure(self) -> Any:
        """The FigureWidget; None until there is one."""
        return self.stage.figure

    @property
    def still(self) -> Any:
        """The widget of the SVG."""
        return self.svg.widget

    def update(self, frame: Frame) -> None:
        """Draws the frame, if its tree differs from the one shown."""
        key = (frame.step, frame.moment, frame.selected)
        same = bool(self._drawn) and key[0] is self._drawn[0] and key[1:] == self._drawn[1:]
        if self.zoom.value and frame.step is not None and not same:
            self._drawn = key
            self._draw_figure(frame, frame.step)
        self.svg.update(frame)
        self._swap()

    def want_figure(self) -> None:
        """Switches to the figure."""
        assign(self.zoom, value=not self.zoom.disabled)

    def _switched(self, _: bool) -> None:
        self._drawn = ()
        self._ask(lambda: self.update(self._state.frame))

    def _draw_figure(self, frame: Frame, step: Any) -> None:
        try:
            self.stage.draw(frame, step)
        except ImportError as error:
            assign(self.zoom, value=False, disabled=True)
            _log.warning("the tree stays a still picture: %s", error)

    def _swap(self) -> None:
        wanted, covered = self.zoom.value and self._state.step is not None, self.ghost.covering
        show(self.stage, visible=wanted and self.stage.figure is not None and not covered)
        shown = not (wanted and self.stage.alive)
        self.svg.see(shown)
        show(self.still, visible=shown and not covered)


def _zoom() -> ToggleButton:
    made = ToggleButton(
        description="Zoom",
        icon="search-plus",
        tooltip="a figure to zoom and pan in; it takes longer to follow",
    )
    made.add_class("speclab-zoom")
    return made


def _still(frame: Frame) -> str:
    if frame.step is None:
        return empty("No iteration yet. Step decodes the first: its draft tree appears here.")
    return tree_svg(frame.step, frame.selected, moment=frame.moment)
