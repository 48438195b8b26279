"""The tree of forks as a picture, and a list to move between them, keep one beside, or let one go."""

from __future__ import annotations

from ipywidgets import HBox, Select, VBox

from speclab.lab.commands import Commands
from speclab.lab.picture import Picture, empty, heading, said
from speclab.lab.state import Frame, LabState
from speclab.lab.sync import assign, on_change
from speclab.lab.transport import button
from speclab.views.compared import runs_html
from speclab.views.fork_tree import forks_svg, forks_table, summary
from speclab.views.markup import tag


class RunsPanel(VBox):
    """Follows the runs; the list shows them by name, the present one by the word "shown"."""

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._state, self._commands = state, commands
        self.picture = Picture("runs-view", self._draw, lambda frame: (frame.trace, state.forks))
        self.choice = Select(options=[], rows=5, description="", tooltip="the runs of this lab: arrows, then a button")
        self.choice.add_class("speclab-run-choice")
        self.switch = button("switch", "Switch", "go on with the run marked; no model runs", "code-fork", self._switch)
        self.beside = button(
            "beside", "Keep beside", "show the run marked beside the one shown, at the same iteration", "columns",
            self._beside,
        )  # fmt: skip
        self.drop = button("drop", "Drop", "let the run marked go, its caches with it", "trash", self._drop)
        bar = HBox([self.switch, self.beside, self.drop])
        bar.add_class("speclab-group")
        super().__init__([heading("Runs and forks"), self.picture.widget, self.choice, bar])
        self.add_class("speclab-runs-panel")
        on_change(self.choice, lambda _: self._name())
        state.observe(lambda _: self._list(), names="forks")
        self._list()

    def see(self, seen: bool) -> None:  # reads as `see(True)`
        """Says whether the panel is on the screen."""
        self.picture.see(seen)

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the panel is seen and would differ."""
        self.picture.update(frame)
        self._name()

    def _draw(self, _: Frame) -> str:
        forks = self._commands.runs.forks
        if not forks:
            return empty("Runs and their forks appear here. Step decodes the first iteration.")
        table = tag("details", tag("summary", "as a table"), forks_table(forks))
        return forks_svg(forks) + said(summary(forks)) + table + runs_html(self._commands.runs.comparison)

    def _list(self) -> None:
        forks = self._state.forks
        options = [(f"{fork.label}{' — shown' if fork.present else ''}", fork.number) for fork in forks]
        chosen = next((fork.number for fork in forks if fork.present), None)
        if tuple(options) != tuple(self.choice.options):
            with self.choice.hold_sync():
                self.choice.options = options
                self.choice.value = chosen
        self.picture.update(self._state.frame)
        self._name()

    def _name(self) -> None:
        """What "Keep beside" would do. No button goes off because of the run marked: a quick Tab would skip it."""
        marked, beside = self.choice.value, self._state.frame.beside
        for each in (self.switch, self.drop, self.beside):
            assign(each, disabled=marked is None)
        kept = beside is not None and beside.number == marked
        assign(self.beside, description="Not beside" if kept else "Keep beside")

    def _switch(self) -> None:
        self._commands.runs.switch(self.choice.value)

    def _beside(self) -> None:
        self._commands.runs.beside(self.choice.value)

    def _drop(self) -> None:
        self._commands.runs.drop(self.choice.value)
