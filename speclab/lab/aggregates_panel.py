"""Acceptance over all runs of the lab and over decoded example prompts: pictures whose cells open what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ipywidgets import HTML, BoundedIntText, Dropdown, HBox, Select, Text, VBox

from speclab.analysis.aggregate import DIMENSIONS, Aggregate, Cells, aggregate, joined
from speclab.lab.actions import Actions, action
from speclab.lab.screen import Screen, Slot, TabPanel, placeholder
from speclab.lab.state import LabState
from speclab.lab.widgets import button, heading, on_change, set_if_changed, set_visible
from speclab.trace.records import Trace
from speclab.views.acceptance_chart import calibration_drawing, cells_drawing, name_of
from speclab.views.explain import plural
from speclab.views.figures import Drawing
from speclab.views.markup import escape, tag
from speclab.views.registry import Frame

EVERY, NONE = "every strategy", ""
_EMPTY = "Decode the example prompts, or Step: of every drafted node, whether it was accepted is counted here."


@dataclass(frozen=True, slots=True)
class Entry:
    """A run that is counted: `source` is its number among the lab's runs, or itself where it has none."""

    source: int | Trace
    trace: Trace

    @property
    def stamp(self) -> tuple[int, int]:
        """What changes when the run goes on."""
        return self.source if isinstance(self.source, int) else id(self.source), len(self.trace.steps)


class AggregatesPanel(TabPanel):
    """Made, and counted, when the tab is looked at. Opening a cell once more goes to the next node in it."""

    def __init__(self, state: LabState, actions: Actions, screen: Screen) -> None:
        self._state, self._actions = state, actions
        self.picture = Slot(screen, "acceptance", self._draw, self._key)
        self._entries: tuple[Entry, ...] = ()
        self._known: dict[tuple[int, int], Aggregate] = {}
        self._found = joined([])
        self._recorded: Trace | None = None
        self._places: dict[int, tuple[Cells, int, int]] = {}
        self._opened: tuple[int | None, int] = None, 0
        super().__init__()
        self.add_class("speclab-aggregates")

    def make(self) -> None:
        """The controls."""
        state, ask, do = self._state, self._actions.ask, self._actions.controller
        names = [(dimension.title, name) for name, dimension in DIMENSIONS.items()]
        second = [("none", NONE), *names]
        self.by = Dropdown(options=names, value="depth", description="rows", tooltip="what nodes are grouped by")
        self.by2 = Dropdown(options=second, value="rank", description="columns", tooltip="and within that")
        self.strategy = Dropdown(options=[EVERY], description="of", tooltip="runs of which strategy are counted")
        self.count = BoundedIntText(12, min=1, max=40, description="prompts", tooltip="how many, of all kinds in turn")
        self.tokens = BoundedIntText(48, min=2, max=100_000, description="tokens", tooltip="new tokens of each at most")
        self.go = button(
            "sample", "Decode the example prompts", "each with the strategy and the settings above", "play",
            lambda: ask(do.sample, self.count.value, self.tokens.value), "primary",
        )  # fmt: skip
        self.end = button("sample-stop", "Stop", "stop; prompts that were decoded stay", "stop", self._actions.stop)
        self.progress = HTML().add_class("speclab-compare-progress")
        self.cells = Select(options=[], rows=6, tooltip="the cells of the pictures above: arrows, then Open")
        words = "an iteration in the cell marked; again: the next one"
        self.show = button("open-cell", "Open", words, "search", lambda: self.open_cell(self.cells.value))
        self.path = Text("nodes.parquet", tooltip="a path on the machine that runs the notebook")
        self.path.add_class("speclab-path")
        words = "every drafted node as a row"
        self.save = button("save-nodes", "Save as parquet", words, "save", lambda: ask(self._save))
        self.below = VBox([
            HBox([self.cells, self.show]).add_class("speclab-cells"),
            HBox([self.save, self.path]).add_class("speclab-files"),
        ])  # fmt: skip
        self.children = [
            heading("Acceptance over many prompts"),
            HBox([self.go, self.end, self.count, self.tokens, self.progress]).add_class("speclab-files"),
            HBox([self.by, self.by2, self.strategy]).add_class("speclab-files"), self.picture, self.below,
        ]  # fmt: skip
        for picker in (self.by, self.by2, self.strategy):
            on_change(picker, lambda _: self.update(state.frame))
        state.observe(lambda _: self.update(state.frame), names=["sampled", "forks"])
        state.observe(lambda change: self._follow(change["new"]), names="sampling")
        self._follow(state.sampling)

    def open_cell(self, index: int | None) -> None:
        """Shows the iteration of a node in this cell, the node selected; the same cell again: the next node in it."""
        if index not in self._places:
            return
        cells, *at = self._places[index]
        members = cells.members(*at)
        turn = (self._opened[1] + 1) % len(members) if self._opened[0] == index else 0
        self._opened = index, turn
        set_if_changed(self.cells, value=index)
        place = members[turn]
        entry = self._entries[place.run]
        words = f"Node {turn + 1} of {len(members)} with {name_of(cells, *at)}. "
        self._actions.ask(self._actions.controller.show_node, entry.source, place.iteration, place.node, words)

    def _key(self, frame: Frame) -> tuple[Any, ...]:
        self._entries = tuple(self._counted(frame))
        return tuple([one.stamp for one in self._entries]), self.by.value, self.by2.value, self.strategy.value

    def _counted(self, frame: Frame) -> list[Entry]:
        """The lab's runs, the example prompts decoded with the same models, and the newest other recording shown."""
        shown, records = frame.trace, list(self._state.sampled)
        own = [Entry(*one) for one in self._actions.controller.runs.own()]
        if not frame.live and shown.steps and all(one is not shown for one in records):
            self._recorded = shown
        prompts = {one.trace.prompt_ids for one in own} | {one.prompt_ids for one in records}
        if self._recorded is not None and self._recorded.prompt_ids not in prompts:  # else it would count twice
            records.append(self._recorded)
        alike = [one for one in records if not shown.steps or _models(one) == _models(shown)]
        return own + [Entry(one, one) for one in alike]

    def _draw(self, _: Frame) -> Drawing:
        known = self._known  # only of what went on is anything counted anew
        self._known = {one.stamp: known.get(one.stamp) or aggregate(one.trace) for one in self._entries}
        self._found = joined(list(self._known.values()))
        strategies = sorted(set(self._found.strategy.tolist()))
        set_if_changed(self.strategy, options=(EVERY, *strategies))
        if self.strategy.value != EVERY:
            self._found = self._found.select(self._found.strategy == self.strategy.value)
        second = self.by2.value if self.by2.value not in {NONE, self.by.value} else None
        cells = self._found.group(self.by.value, second)
        made = [self._found.calibration(), self._found.calibration(first=False)]
        groups = [cells, *[one.cells for one in made]]
        starts = self._list(groups)
        set_visible(self.below, visible=bool(self._places))
        if not self._places:
            return placeholder(_EMPTY)
        counted = plural(len(self._entries), "run")
        said = f"{counted}, {plural(len(self._found), 'drafted node')}, {int(self._found.tried.sum())} of them tried."
        return [
            tag("p", escape(said), class_="sl-said"),
            *cells_drawing(cells),
            *calibration_drawing(self._found, starts[1:]),
        ]

    def _list(self, groups: Sequence[Cells]) -> list[int]:
        """Numbers the cells of all pictures, for clicks and for the list; gives each picture's first number."""
        starts, options, at = [], [], 0
        self._places = {}
        for cells, of in zip(groups, ("", "first children, ", "all children, "), strict=True):
            starts.append(at)
            for place in range(cells.tried.size):
                row, column = divmod(place, len(cells.names[1]))
                if cells.tried[row, column]:
                    self._places[at + place] = cells, row, column
                    counts = f"{cells.accepted[row, column]} of {cells.tried[row, column]} accepted"
                    options.append((f"{of}{name_of(cells, row, column)}: {counts}", at + place))
            at += cells.tried.size
        self._opened = None, 0
        if tuple(options) != tuple(self.cells.options):
            with self.cells.hold_sync():
                self.cells.options = options
        return starts

    def _follow(self, sampling: tuple[Any, ...]) -> None:
        """How far the example prompts are."""
        set_if_changed(self.go, disabled=bool(sampling))
        set_visible(self.end, visible=bool(sampling))
        words = ""
        if sampling:
            done, total, name = sampling
            bar = tag("progress", " ", value=done, max=total, aria_hidden="true")
            words = f"{bar} {escape(f'{done} of {total} prompts; at work: {name}')}"
        set_if_changed(self.progress, value=words)

    @action("saving")
    def _save(self) -> None:
        self._state.status = f"Saved {self._found.to_parquet(self.path.value.strip())}: {len(self._found)} nodes."


def _models(trace: Trace) -> tuple[Any, ...]:
    return tuple([trace.models.get(key) for key in ("pair", "target", "draft")])
