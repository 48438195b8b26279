"""The views of the lab, linked by the iteration and the selected node."""

from __future__ import annotations

from ipywidgets import Box, Dropdown, HBox, Tab, VBox, Widget

from speclab.lab.commands import Commands
from speclab.lab.compare_panel import ComparePanel
from speclab.lab.drafts_panel import DraftsPanel
from speclab.lab.lookup_panel import LookupPanel
from speclab.lab.picture import Picture, empty, heading, said
from speclab.lab.recent import Recent
from speclab.lab.runs_panel import RunsPanel
from speclab.lab.state import Frame, LabState
from speclab.lab.strategy_panel import StrategyPanel
from speclab.lab.sync import assign, on_change, show
from speclab.lab.text_panel import TextPanel
from speclab.lab.transport import Phases, button
from speclab.lab.tree_panel import TreePanel
from speclab.trace.records import Step
from speclab.views import cache, explain, lossy, mask, metrics, residual, tree
from speclab.views.beside import kept_html
from speclab.views.drafts_page import nodes_table
from speclab.views.markup import tag
from speclab.views.summary import table
from speclab.views.text import table as text_table
from speclab.views.tokens import clip, escape, label

View = Picture | StrategyPanel | LookupPanel | DraftsPanel | RunsPanel | ComparePanel
NONE = -1
"""No node, in the list of nodes: a list cannot show an option whose value is None."""


class Panels(VBox):
    """Settings, tree and mask side by side, the text below, and tabs for the rest; only what is seen is drawn.

    `settings` stands beside the tree, so that a slider and what it would change are on the screen together.
    """

    def __init__(self, state: LabState, commands: Commands, settings: Widget) -> None:
        self._state = state
        self.tree = TreePanel(state, commands)
        self.mask_mode = Dropdown(
            options=[("prefix folded", "folded"), ("whole", "full"), ("expected against given", "compare")],
            tooltip="how the attention mask is drawn", description="show",
        )  # fmt: skip
        self.mask = Picture("mask", self._mask, lambda frame: (frame.step, frame.selected), Recent())
        on_change(self.mask_mode, lambda _: self.mask.redraw())
        self.node = Nodes(state, commands)
        self.pin = button("pin", "Pin", "keep this iteration beside those to come", "thumb-tack", commands.pin)
        self.pinned = Picture("pinned", _pinned, _pinned_key)
        self.text = TextPanel()
        self.tabs = Tabs(state, commands)
        self.phases = Phases(state, commands)
        bar = HBox([self.phases])
        bar.add_class("speclab-bar")
        self.why = Picture("why", _why, lambda frame: (frame.step, frame.selected))
        left = VBox([heading("Draft tree", self.node, self.tree.zoom, self.pin), self.tree, self.why.widget])
        right = VBox([heading("Attention mask", self.mask_mode), self.mask.widget])
        left.add_class("speclab-left")
        right.add_class("speclab-right")
        main = Box([left, right])
        main.add_class("speclab-main")
        bench = Box([settings, main])
        bench.add_class("speclab-bench")
        super().__init__([bar, bench, self.pinned.widget, self.text, self.tabs])
        self.add_class("speclab-panels")
        state.observe(lambda _: self.update(), names="frame")
        self.update()

    def update(self) -> None:
        """Draws the frame wherever it differs from what is drawn."""
        frame = self._state.frame
        kept = frame.pinned is not None or frame.beside is not None
        show(self.pinned.widget, kept)
        self.pinned.see(kept)
        same = frame.pinned is not None and frame.pinned is frame.step
        assign(self.pin, description="Unpin" if same else "Pin")
        for part in (self.tree, self.mask, self.node, self.why, self.pinned, self.text, self.tabs):
            part.update(frame)

    def _mask(self, frame: Frame) -> str:
        if frame.step is None:
            return empty("The tree attention mask of an iteration appears here.")
        return mask.mask_svg(frame.step, frame.selected, self.mask_mode.value) + said(mask.summary(frame.step))


class Nodes(Dropdown):
    """Selects a node without a mouse."""

    def __init__(self, state: LabState, commands: Commands) -> None:
        self._frame, self._step, self._commands = state.frame, object(), commands
        super().__init__(options=[("none", NONE)], description="node", tooltip="the node that all views mark")
        self.add_class("speclab-node")
        on_change(self, self._chosen)

    def update(self, frame: Frame) -> None:
        """Offers the nodes of the iteration shown."""
        self._frame = frame
        with self.hold_sync():
            if frame.step is not self._step:
                self._step = frame.step
                assign(self, options=(("none", NONE), *_node_names(frame.step)))
            assign(self, value=NONE if frame.selected is None else frame.selected)

    def _chosen(self, chosen: int) -> None:
        node = None if chosen == NONE else chosen
        if node != self._frame.selected:
            self._commands.select(node)


def _node_names(step: Step | None) -> list[tuple[str, int]]:
    if step is None:
        return []
    return [
        (f"{node.index}  {clip(label(node.token, step.texts), 16)}  {node.verdict}", node.index) for node in step.nodes
    ]


class Tabs(Tab):
    """Caches, metrics, strategy, what it learned, trees for choice, the selected node, decisions, tables, runs."""

    def __init__(self, state: LabState, commands: Commands) -> None:
        self.pictures = (
            Picture("caches", _caches, _caches_key, Recent()),
            Picture("metrics", _metrics, lambda frame: (frame.trace, frame.cursor)),
            Picture("details", _details, lambda frame: (frame.step, frame.selected)),
            Picture("decisions", _decisions, lambda frame: (frame.step,)),
            Picture("tables", _tables, lambda frame: (frame.trace, frame.cursor)),
        )
        self.strategy, self.lookup = StrategyPanel(state, commands), LookupPanel(state, commands)
        self.drafts = DraftsPanel(state, commands)
        self.runs, self.compare = RunsPanel(state, commands), ComparePanel(state, commands)
        caches, metrics, *others = self.pictures
        panels = (self.strategy, self.lookup, self.drafts)
        self._views: tuple[View, ...] = (caches, metrics, *panels, *others, self.runs, self.compare)
        pages = [view.widget if isinstance(view, Picture) else view for view in self._views]
        super().__init__(pages, selected_index=0)
        names = "Caches Metrics Strategy Successors Drafts Node Decisions Tables Runs Compare"
        self.titles = tuple(names.split())
        self.add_class("speclab-tabs")
        on_change(self, lambda _: self._look(), "selected_index")
        self._look()

    def _look(self) -> None:
        for i, view in enumerate(self._views):
            view.see(i == self.selected_index)

    def update(self, frame: Frame) -> None:
        """Draws the tab that is open."""
        for view in self._views:
            view.update(frame)


def _caches_key(frame: Frame) -> tuple[object, ...]:
    return frame.step, frame.selected, frame.moment.phase, len(frame.trace.prompt_ids)


def _caches(frame: Frame) -> str:
    if frame.step is None:
        return empty("What the KV caches hold appears here.")
    prompt = len(frame.trace.prompt_ids)
    return cache.cache_svg(frame.step, frame.selected, prompt=prompt, moment=frame.moment)


def _metrics(frame: Frame) -> str:
    if frame.step is None:
        return empty("Figures over the iterations appear here.")
    warned = lossy.run_words(frame.trace, frame.cursor)
    return (
        (tag("p", lossy.warning(warned)) if warned else "")
        + metrics.metrics_svg(frame.trace, frame.cursor)
        + _folded("definitions", metrics.metrics_table(frame.trace, frame.cursor))
    )


def _why(frame: Frame) -> str:
    step = frame.step
    if step is None or frame.selected is None:
        return ""
    drawn = residual.residual_html(step) if step.residual and step.residual.node == frame.selected else ""
    return tag("div", escape(explain.why(step, frame.selected)), drawn, class_="sl-why")


def _details(frame: Frame) -> str:
    if frame.step is None or frame.selected is None:
        return empty("Select a node, in the tree or in the list above it, to read why it stands where it stands.")
    return explain.node_table(frame.step, frame.selected)


def _decisions(frame: Frame) -> str:
    if frame.step is None:
        return empty("The decisions of the drafter, in their order, and where a sampled walk stopped appear here.")
    return residual.residual_html(frame.step) + explain.events_table(frame.step)


def _tables(frame: Frame) -> str:
    step = frame.step
    parts = [table(frame.trace, frame.cursor), text_table(frame.trace, frame.cursor)]
    if step is not None:
        parts = [tree.table(step), nodes_table(step), residual.table(step), mask.table(step), cache.table(step), *parts]
    return "".join(tag("div", part, class_="sl-scroll") for part in parts if part)


def _pinned_key(frame: Frame) -> tuple[object, ...]:
    kept = frame.pinned is not None or frame.beside is not None
    return frame.pinned, frame.beside, *((frame.step, frame.cursor) if kept else ())


def _pinned(frame: Frame) -> str:
    return kept_html(frame.trace, frame.cursor, frame.beside, frame.pinned)


def _folded(name: str, body: str) -> str:
    return tag("details", tag("summary", name), body)
