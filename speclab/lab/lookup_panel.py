"""The transition table, looked at: a token, its successors and their scores, at the moment shown."""

from __future__ import annotations

from typing import Any

from ipywidgets import Text, VBox

from speclab.errors import SpeclabError
from speclab.lab.commands import Commands
from speclab.lab.picture import Picture, empty, heading
from speclab.lab.state import Frame, LabState
from speclab.lab.sync import assign, on_change
from speclab.views.lookup import children_of, lookup_html


class LookupPanel(VBox):
    """Shows the token that was written, else the selected node, else the root.

    It reads the session, which may be at work: so it draws on the worker's thread alone, and only when it is seen.
    """

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._state, self._commands = state, commands
        self._seen, self._selected = False, state.selected
        self.written = Text(
            description="token",
            placeholder="as in the text, or ids: #17; two for the pair",
            tooltip="a token, or two for what follows the pair; empty: the selected node, else the root",
            continuous_update=False,
        )
        self.written.add_class("speclab-written")
        self.picture = Picture("lookup", self._draw, self._key)
        super().__init__([heading("What follows a token", self.written), self.picture.widget])
        self.add_class("speclab-lookup-panel")
        on_change(self.written, self._catch_up)
        state.observe(self._catch_up, names="busy")

    def see(self, seen: bool) -> None:  # reads as `see(True)`
        """Says whether the panel is on the screen; coming back, it catches up."""
        self._seen = seen
        self._catch_up()

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the panel is seen and would differ; a node selected anew takes over."""
        if frame.selected != self._selected:
            self._selected = frame.selected
            if frame.selected is not None:
                assign(self.written, value="")
        if self._seen:
            self.picture.update(frame)

    def _catch_up(self, _: Any = None) -> None:
        """What runs draws its own frames: nothing is asked of it, for that would end it."""
        if self._seen and not self._state.busy:
            self._commands.ask(lambda: self.picture.update(self._state.frame), key="lookup")

    def _key(self, frame: Frame) -> tuple[object, ...]:
        return frame.trace, frame.cursor, frame.selected, frame.moment.reached("adapt"), frame.live, self.written.value

    def _draw(self, frame: Frame) -> str:
        if not frame.live:
            return empty("A recorded run holds no table. Step decodes live: what was learned can be looked up then.")
        try:
            found = self._commands.lookup(frame, self.written.value)
        except SpeclabError as error:
            return empty(str(error))
        if found is None:
            return empty("This strategy keeps no table of transitions: there is nothing to look up.")
        drafted = {} if self.written.value or frame.step is None else children_of(frame.step, frame.selected or 0)
        return lookup_html(found, drafted)
