"""The trees that stood for choice, and a button that verifies those that were not."""

from __future__ import annotations

from ipywidgets import HBox, VBox

from speclab.analysis.routing import Regret
from speclab.lab.commands import Commands
from speclab.lab.picture import Picture, empty
from speclab.lab.state import Frame, LabState
from speclab.lab.sync import show
from speclab.lab.transport import button
from speclab.views.drafts_page import drafts_html
from speclab.views.routes import routing_html


class DraftsPanel(VBox):
    """Follows the frame; the button is there where an iteration of this session had several trees."""

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._state = state
        self.picture = Picture("drafts", self._draw, lambda frame: (frame.step, self._regret(frame)))
        self.routes = Picture("routes", _routes, lambda frame: (frame.trace, frame.cursor))
        self.verify = button(
            "verify", "Verify the other too", "verifies each tree of this iteration; the session stays as it is",
            "check-square-o", commands.regret,
        )  # fmt: skip
        bar = HBox([self.verify])
        bar.add_class("speclab-bar")
        super().__init__([self.picture.widget, bar, self.routes.widget])
        self.add_class("speclab-drafts-panel")
        state.observe(lambda _: self.update(state.frame), names="regret")

    def see(self, seen: bool) -> None:  # reads as `see(True)`
        """Says whether the panel is on the screen."""
        self.picture.see(seen)
        self.routes.see(seen)

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the panel is seen and would differ."""
        show(self.verify, frame.live and frame.step is not None and bool(frame.step.proposals))
        self.picture.update(frame)
        self.routes.update(frame)

    def _regret(self, frame: Frame) -> Regret | None:
        """Of the iteration shown, once asked for."""
        found: Regret | None = self._state.regret
        same = found is not None and frame.live and frame.cursor and found.steps[0].index == frame.cursor - 1
        return found if same else None

    def _draw(self, frame: Frame) -> str:
        if frame.step is None or not frame.step.proposals:
            return empty("One tree was drafted here. Where two stand for choice (DualDraft), both are shown.")
        return drafts_html(frame.step, self._regret(frame))


def _routes(frame: Frame) -> str:
    return routing_html(frame.trace, frame.cursor)
