"""Several strategies on the prompt above: which, how many tokens, how far each is, and what came of it."""

from __future__ import annotations

from ipywidgets import HTML, BoundedIntText, Box, Checkbox, HBox, Text, VBox

from speclab.drafters import strategies
from speclab.lab.commands import Commands
from speclab.lab.comparer import CURRENT
from speclab.lab.picture import Picture, empty, heading
from speclab.lab.state import Frame, LabState, Progress
from speclab.lab.sync import assign, show
from speclab.lab.transport import button
from speclab.views.compared import compared_html
from speclab.views.copying import copy_button
from speclab.views.markup import tag
from speclab.views.tokens import escape

_OTHERWISE = "This browser lets no page copy: save the table as CSV, or mark it and press Ctrl+C."
FIRST = ("Autoregressive", "LinearSpeculation", "PromptLookup")


class ComparePanel(VBox):
    """Boxes to mark; made when the tab is first looked at, for few look at all tabs."""

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._state, self._commands, self._seen = state, commands, False
        self.marks: dict[str, Checkbox] = {}
        self.grid = Box()
        self.grid.add_class("speclab-marks")
        self.tokens = BoundedIntText(64, min=1, max=100_000, description="tokens", tooltip="new tokens of each at most")
        self.tokens.add_class("speclab-compare-tokens")
        self.go = button(
            "compare", "Compare", "run each strategy marked on the prompt above", "bar-chart", self._go, "primary"
        )
        self.end = button("compare-stop", "Stop", "stop; what has run stays", "stop", commands.stop)
        self.path = Text("comparison.csv", tooltip="a path on the machine that runs the notebook")
        self.path.add_class("speclab-path")
        self.save = button(
            "compare-save", "Save as CSV", "write the table as comma-separated values", "save", self._save
        )
        self.progress = HTML()
        self.progress.add_class("speclab-compare-progress")
        self.picture = Picture("compared", self._draw, lambda _: (state.compared,))
        self.copy = Picture("compare-copy", self._copy, lambda _: (state.compared,))
        self.saving = HBox([self.save, self.path, self.copy.widget])
        bar = HBox([self.tokens, self.go, self.end])
        for row in (bar, self.saving):
            row.add_class("speclab-files")
        parts = (self.grid, bar, self.progress, self.picture.widget, self.saving)
        super().__init__([heading("Strategies on the prompt above"), *parts])
        self.add_class("speclab-compare-panel")
        state.observe(lambda _: self.update(state.frame), names="compared")
        state.observe(lambda change: self._follow(change["new"]), names="progress")
        self._follow(None)
        show(self.saving, visible=False)

    @property
    def chosen(self) -> list[str]:
        """The strategies marked: names, or `CURRENT` for the one in the pickers."""
        return [name for name, mark in self.marks.items() if mark.value]

    def see(self, seen: bool) -> None:  # reads as `see(True)`
        """Says whether the panel is on the screen."""
        self._seen = seen
        if seen and not self.marks:
            self._make()
        self.picture.see(seen)
        self.copy.see(seen)
        self._follow(self._state.progress)

    def update(self, frame: Frame) -> None:
        """Draws what was compared, if the panel is seen and it is new."""
        show(self.saving, visible=self._state.compared is not None)
        self.picture.update(frame)
        self.copy.update(frame)

    def _make(self) -> None:
        for name in (CURRENT, *strategies()):
            said = "the strategy with its settings in the pickers" if name == CURRENT else "with its default settings"
            self.marks[name] = Checkbox(name in {CURRENT, *FIRST}, description=name, indent=False, tooltip=said)
        self.grid.children = list(self.marks.values())

    def _draw(self, _: Frame) -> str:
        if self._state.compared is None:
            return empty("Mark strategies and press Compare: each decodes the prompt above, one after another.")
        return compared_html(self._state.compared)

    def _copy(self, _: Frame) -> str:
        found = self._state.compared
        table = "" if found is None else found.to_csv("\t")
        return table and copy_button("Copy", table, _OTHERWISE, "copy the table, tabs between")

    def _follow(self, progress: Progress | None) -> None:
        assign(self.go, disabled=progress is not None)
        show(self.end, visible=progress is not None)
        if self._seen or progress is None:
            assign(self.progress, value="" if progress is None else progress_html(progress))

    def _go(self) -> None:
        self._commands.runs.compare(self.chosen, max_new_tokens=self.tokens.value)

    def _save(self) -> None:
        self._commands.runs.save_comparison(self.path.value.strip())


def progress_html(progress: Progress) -> str:
    """A line a strategy: `DynaTree: 24 of 64 tokens, at work`."""
    lines, reached = [], False
    for name, tokens in progress.tokens.items():
        now = name == progress.at_work
        reached = reached or now
        done = tokens if now else 0 if reached else progress.most
        said = (
            f"{tokens} of {progress.most} tokens, at work" if now else "waits" if reached else f"{tokens} tokens, done"
        )
        bar = tag("progress", " ", value=done, max=progress.most, aria_hidden="true")
        lines.append(tag("div", bar, " ", tag("b", escape(name)), escape(f": {said}")))
    return "".join(lines)
