"""The tree of forks as a picture, and a list to move between them, keep one beside, or let one go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipywidgets import HTML, BoundedIntText, Box, Checkbox, HBox, Select

from speclab.drafters import strategies
from speclab.lab.actions import Actions
from speclab.lab.runs import CURRENT
from speclab.lab.screen import Screen, Slot, TabPanel, caption_html, placeholder
from speclab.lab.state import LabState, Progress
from speclab.lab.widgets import button, heading, on_change, set_if_changed, set_visible
from speclab.views.figures import Drawing
from speclab.views.markup import escape, tag
from speclab.views.registry import Frame
from speclab.views.runs import compared_drawing, forks_spec, forks_table, summary


class RunsPanel(TabPanel):
    """Follows the runs; the list shows them by name, the present one by the word "shown"."""

    def __init__(self, state: LabState, actions: Actions, screen: Screen) -> None:
        self._state, self._actions = state, actions
        self.picture = Slot(screen, "runs-view", self._draw, lambda frame: (frame.trace, state.forks))
        self.choice = Select(options=[], rows=5, description="", tooltip="the runs of this lab: arrows, then a button")
        self.choice.add_class("speclab-run-choice")
        do, marked = actions.controller, self._marked
        self.switch = button(
            "switch", "Switch", "go on with the run marked; no model runs", "code-fork", marked(do.switch)
        )
        self.beside = button(
            "beside", "Compare side by side", "show the run marked beside this one, at the same iteration", "columns",
            marked(do.pin),
        )  # fmt: skip
        self.drop = button("drop", "Delete run", "let the run marked go, its caches with it", "trash", marked(do.drop))
        self.bar = HBox([self.switch, self.beside, self.drop]).add_class("speclab-group")
        super().__init__([heading("Runs and forks"), self.picture, self.choice, self.bar])
        self.add_class("speclab-runs-panel")
        on_change(self.choice, lambda _: self._name())
        state.observe(lambda _: self._list(), names="forks")
        self._list()

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the panel is seen and would differ."""
        super().update(frame)
        self._name()

    def _draw(self, _: Frame) -> Drawing:
        runs = self._actions.controller.runs
        forks = runs.describe()
        if not forks:
            return placeholder("Runs and their forks appear here. Step decodes the first iteration.")
        table = tag("details", tag("summary", "as a table"), forks_table(forks))
        return [forks_spec(forks), caption_html(summary(forks)) + table, *compared_drawing(runs.comparison(), "run")]

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

    def _marked(self, work: Callable[[int], Any]) -> Callable[[], Any]:
        return lambda: self._actions.ask(work, self.choice.value)

    def _name(self) -> None:
        """What the button beside would do. No button goes off because of the run marked: a quick Tab would skip it."""
        marked, beside = self.choice.value, self._state.frame.beside
        for each in self.bar.children:
            set_if_changed(each, disabled=marked is None)
        kept = beside is not None and beside.number == marked
        set_if_changed(self.beside, description="Close comparison" if kept else "Compare side by side")


FIRST = ("Autoregressive", "LinearSpeculation", "PromptLookup")


class ComparePanel(TabPanel):
    """Boxes to mark; made when the tab is first looked at, for few look at all tabs."""

    def __init__(self, state: LabState, actions: Actions, screen: Screen) -> None:
        self._state, self._visible, ask, do = state, False, actions.ask, actions.controller
        self.marks: dict[str, Checkbox] = {}
        self.grid = Box().add_class("speclab-marks")
        self.tokens = BoundedIntText(64, min=1, max=100_000, description="tokens", tooltip="new tokens of each at most")
        self.tokens.add_class("speclab-compare-tokens")
        self.go = button(
            "compare", "Compare", "run each strategy marked on the prompt above", "bar-chart",
            lambda: ask(do.compare, self.chosen, max_new_tokens=self.tokens.value), "primary",
        )  # fmt: skip
        self.end = button("compare-stop", "Stop", "stop; what has run stays", "stop", actions.stop)
        self.progress = HTML().add_class("speclab-compare-progress")
        self.picture = Slot(screen, "compared", self._draw, lambda _: (state.compared,))
        bar = HBox([self.tokens, self.go, self.end]).add_class("speclab-files")
        parts = [heading("Strategies on the prompt above"), self.grid, bar, self.progress, self.picture]
        super().__init__(parts, _dom_classes=["speclab-compare-panel"])
        state.observe(lambda _: self.update(state.frame), names="compared")
        state.observe(lambda change: self._follow(change["new"]), names="progress")
        self._follow(None)

    @property
    def chosen(self) -> list[str]:
        """The strategies marked: names, or `CURRENT` for the one in the form."""
        return [name for name, mark in self.marks.items() if mark.value]

    def set_visible(self, visible: bool) -> None:
        """Says whether the panel is on the screen."""
        self._visible = visible
        if visible and not self.marks:
            for name in (CURRENT, *strategies(by_hand=False)):
                tooltip = "the strategy and its settings above" if name == CURRENT else "with its default settings"
                self.marks[name] = Checkbox(name in {CURRENT, *FIRST}, description=name, indent=False, tooltip=tooltip)
            self.grid.children = list(self.marks.values())
        super().set_visible(visible)
        self._follow(self._state.progress)

    def _draw(self, _: Frame) -> Drawing:
        if self._state.compared is None:
            return placeholder("Mark strategies and press Compare: each decodes the prompt above, one after another.")
        return compared_drawing(self._state.compared)

    def _follow(self, progress: Progress | None) -> None:
        set_if_changed(self.go, disabled=progress is not None)
        set_visible(self.end, visible=progress is not None)
        if self._visible or progress is None:
            set_if_changed(self.progress, value="" if progress is None else progress_html(progress))


def progress_html(progress: Progress) -> str:
    """One line per strategy: `DynaTree: 24 of 64 tokens, at work`."""
    lines, reached = [], False
    for name, tokens in progress.tokens.items():
        now = name == progress.at_work
        reached = reached or now
        done = tokens if now else 0 if reached else progress.most
        at_work = f"{tokens} of {progress.most} tokens, at work"
        progressed = at_work if now else "waits" if reached else f"{tokens} tokens, done"
        bar = tag("progress", " ", value=done, max=progress.most, aria_hidden="true")
        lines.append(tag("div", bar, " ", tag("b", escape(name)), escape(f": {progressed}")))
    return "".join(lines)
