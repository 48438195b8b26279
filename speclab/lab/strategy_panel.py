"""What the drafter knew and decided, and a button that measures its baselines over the same text."""

from __future__ import annotations

from ipywidgets import HBox, VBox

from speclab.lab.commands import Commands
from speclab.lab.picture import Picture, empty
from speclab.lab.state import Frame, LabState
from speclab.lab.sync import show
from speclab.lab.transport import button
from speclab.views.strategy import strategy_html


class StrategyPanel(VBox):
    """Follows the frame; the button is there where the strategy names baselines."""

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._state, self._commands = state, commands
        self.picture = Picture("strategy-view", self._draw, lambda frame: (frame.trace, frame.cursor, state.comparison))
        self.measure = button(
            "measure", "Measure baselines", "decodes the same text with each source alone, to compare with",
            "balance-scale", commands.measure,
        )  # fmt: skip
        bar = HBox([self.measure])
        bar.add_class("speclab-bar")
        super().__init__([self.picture.widget, bar])
        state.observe(lambda _: self.picture.update(state.frame), names="comparison")

    def see(self, seen: bool) -> None:  # reads as `see(True)`
        """Says whether the panel is on the screen."""
        self.picture.see(seen)

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the panel is seen and would differ."""
        show(self.measure, frame.live and self._commands.has_baselines)
        self.picture.update(frame)

    def _draw(self, frame: Frame) -> str:
        if frame.step is None:
            return empty("What the drafter knew and decided in an iteration appears here.")
        return strategy_html(frame.trace, frame.cursor, self._state.comparison)
