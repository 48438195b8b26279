"""The draft tree: SVG at first, then one plotly FigureWidget that is made once and changed in place."""

from __future__ import annotations

from typing import Any

from ipywidgets import HTML, Box

from speclab.lab.commands import Commands
from speclab.lab.picture import empty
from speclab.lab.state import Frame, LabState
from speclab.lab.sync import assign, show
from speclab.lab.theme import figure_style
from speclab.trace import Step
from speclab.views.tree import tree_figure, tree_svg, update_tree


class TreePanel(Box):
    """Shows the tree of the frame. `figure` is None until it is wanted: it costs a second and five megabytes."""

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._state, self._commands = state, commands
        self.figure: Any = None
        self._wanted = False
        self._drawn: tuple[Any, ...] = ()
        self.still, self.stage = HTML(), Box()
        super().__init__([self.still, self.stage])
        self.add_class("speclab-tree-panel")
        self.stage.add_class("speclab-tree-panel")

    def update(self, frame: Frame) -> None:
        """Draws the frame, if its tree differs from the one shown."""
        key = (frame.step, frame.moment, frame.selected)
        if self._drawn and key[0] is self._drawn[0] and key[1:] == self._drawn[1:]:
            return
        self._drawn = key
        if self._wanted and self.figure is None and frame.step is not None:
            self._make_figure(frame, frame.step)
        elif self.figure is None or frame.step is None:
            self._still(frame)
        else:
            update_tree(self.figure, frame.step, selected=frame.selected, moment=frame.moment)
        if self.figure is not None:
            show(self.stage, visible=frame.step is not None)
            show(self.still, visible=frame.step is None)

    def want_figure(self) -> None:
        """From the next tree on, draws a figure that zooms and can be clicked."""
        self._wanted, self._drawn = True, ()
        self.update(self._state.frame)

    def _make_figure(self, frame: Frame, step: Step) -> None:
        import plotly.graph_objects as go

        figure = go.FigureWidget()
        figure._config = {"displaylogo": False, "displayModeBar": False, "scrollZoom": False}
        tree_figure(step, selected=frame.selected, moment=frame.moment, figure=figure)
        figure.add_class("speclab-tree")
        for trace in figure.data:
            trace.on_click(self._clicked)
        self.figure = figure
        self.stage.children = [HTML(f"<style>{figure_style(figure)}</style>"), figure]
        assign(self.still, value="")

    def _clicked(self, trace: Any, points: Any, _: Any) -> None:
        if not points.point_inds or trace.customdata is None:
            return
        node = trace.customdata[points.point_inds[0]]
        if node is not None and node >= 0:
            self._commands.select(int(node))

    def _still(self, frame: Frame) -> None:
        if frame.step is None:
            assign(
                self.still, value=empty("No iteration yet. Step decodes the first one: its draft tree appears here.")
            )
        else:
            assign(self.still, value=tree_svg(frame.step, frame.selected, moment=frame.moment))
