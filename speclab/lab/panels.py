"""The views of the lab, linked by the iteration and the selected node, as `speclab.views.registry` declares them."""

from __future__ import annotations

import logging
from threading import Lock
from typing import Any

from ipywidgets import HTML, Box, Dropdown, HBox, Tab, Text, VBox, Widget

from speclab.analysis.whatif import in_force, what_if
from speclab.drafters.base import Strategy
from speclab.errors import NotRecordedError, SpeclabError
from speclab.lab.actions import Actions, action
from speclab.lab.runs_panel import ComparePanel, RunsPanel
from speclab.lab.state import LabState, PendingChange
from speclab.lab.transport import Phases
from speclab.lab.widgets import (
    Pointer,
    ViewPanel,
    button,
    caption_html,
    heading,
    on_change,
    placeholder,
    set_if_changed,
    set_visible,
)
from speclab.settings import SessionSettings
from speclab.trace.records import Step
from speclab.views import token_text
from speclab.views.drafter_state import children_of, lookup_html
from speclab.views.markup import escape, labels, tag
from speclab.views.registry import VIEWS, Frame, View, placed
from speclab.views.whatif_tree import ghost_svg, whatif_sentence

Panel = ViewPanel | RunsPanel | ComparePanel | Any
NONE = -1
"""No node, in the list of nodes: a list cannot show an option whose value is None."""
_MASKS = {"mask": "prefix folded", "mask-whole": "whole", "mask-check": "expected against given"}
_log = logging.getLogger(__name__)


class Panels(VBox):
    """Settings, the stage side by side, the text below, and tabs for the rest; only what is seen is drawn.

    `settings` stands beside the tree, so that a slider and what it would change are on the screen together. `views`
    holds the panel of every view that is shown, by its name.
    """

    def __init__(self, state: LabState, actions: Actions, settings: Widget) -> None:
        self._state = state
        self.views = {view.name: _panel(view) for view in placed("stage", "below")}
        self.masks = Dropdown(
            options=[(label, name) for name, label in _MASKS.items()],
            tooltip="how the attention mask is drawn", description="show",
        )  # fmt: skip
        self.views["mask"] = ViewPanel("mask", self._draw_mask, self._mask_key, cached=True)
        on_change(self.masks, lambda _: self.update())
        self.preview = WhatIfPreview(state, self._swap)
        self.node = NodeList(state, actions)
        self.pin = button("pin", "Pin", "keep this iteration beside those to come", "thumb-tack",
                          lambda: actions.ask(actions.controller.pin))  # fmt: skip
        self.text = TextPanel()
        self.tabs = Tabs(state, actions)
        self.phases = Phases(state, actions)
        bar = HBox([self.phases])
        bar.add_class("speclab-bar")
        main = Box([self._stage(view, actions) for view in placed("stage")])
        main.add_class("speclab-main")
        bench = Box([settings, main])
        bench.add_class("speclab-bench")
        below = [self.views[view.name].widget for view in placed("below")]
        super().__init__([bar, bench, *below, self.text, self.tabs])
        self.add_class("speclab-panels")
        state.observe(lambda _: self.update(), names="frame")
        self.update()

    def update(self) -> None:
        """Draws the frame wherever it differs from what is drawn."""
        frame = self._state.frame
        set_if_changed(self.pin, description="Unpin" if frame.pinned is frame.step is not None else "Pin")
        for panel in self.views.values():
            panel.update(frame)
        self.node.update(frame)
        self.text.update(frame)
        self.tabs.update(frame)
        for view in placed("below"):
            panel = self.views[view.name]
            set_visible(panel.widget, bool(panel.widget.value))

    def _stage(self, view: View, actions: Actions) -> VBox:
        drawing, controls = [self.views[view.name].widget], []
        if view.name == "tree":
            drawing = [self.preview, *drawing, Pointer(lambda node: actions.ask(actions.controller.select, node))]
            controls = [self.node, self.pin]
        elif view.name == "mask":
            controls = [self.masks]
        made = VBox([heading(view.heading, *controls), *drawing])
        made.add_class(f"speclab-stage-{view.name}")
        return made

    def _mask_key(self, frame: Frame) -> tuple[Any, ...]:
        return self.masks.value, *VIEWS["mask"].key(frame)

    def _draw_mask(self, frame: Frame) -> str:
        return VIEWS[self.masks.value].render(frame) + caption_html(VIEWS["mask"].describe(frame))

    def _swap(self) -> None:
        """The preview stands in for the tree; what is covered is not drawn."""
        covered = self.preview.covering
        self.views["tree"].set_visible(not covered)
        set_visible(self.views["tree"].widget, not covered)


def _panel(view: View) -> ViewPanel:
    """The panel of a view: its drawing, its sentence, and its table where that is declared to be unfolded."""

    def draw(frame: Frame) -> str:
        return view.render(frame) + caption_html(view.describe(frame)) + table(frame)

    def table(frame: Frame) -> str:
        return view.tabulate(frame) if view.unfolded else ""

    return ViewPanel(view.name, draw, view.key, cached="step" in view.needs and "trace" not in view.needs)


class NodeList(Dropdown):
    """Selects a node without a mouse."""

    def __init__(self, state: LabState, actions: Actions) -> None:
        self._frame, self._step, self._actions = state.frame, object(), actions
        super().__init__(options=[("none", NONE)], description="node", tooltip="the node that all views mark")
        self.add_class("speclab-node")
        on_change(self, self._chosen)

    def update(self, frame: Frame) -> None:
        """Offers the nodes of the iteration shown."""
        self._frame = frame
        with self.hold_sync():
            if frame.step is not self._step:
                self._step = frame.step
                set_if_changed(self, options=(("none", NONE), *_node_names(frame.step)))
            set_if_changed(self, value=NONE if frame.selected is None else frame.selected)

    def _chosen(self, chosen: int) -> None:
        node = None if chosen == NONE else chosen
        if node != self._frame.selected:
            self._actions.ask(self._actions.controller.select, node)


def _node_names(step: Step | None) -> list[tuple[str, int]]:
    if step is None:
        return []
    names = labels([node.token for node in step.nodes], step.texts, 16)
    return [(f"{node.index}  {name}  {node.verdict}", node.index) for node, name in zip(step.nodes, names, strict=True)]


class TextPanel(VBox):
    """The prompt and the text up to the cursor, coloured by what the person asks for.

    It is written in chunks, so that a long run rewrites only its end.
    """

    def __init__(self) -> None:
        self._drawn: tuple[Any, ...] = (None,)
        self._frame: Frame | None = None
        self.by = Dropdown(
            options=["verdict", "source", "iteration", "probability"],
            description="colour by",
            tooltip="what colours mean",
        )
        self.legend = HTML()
        self.body = Box()
        self.body.add_class("speclab-text-body")
        page = Box([self.body])
        page.add_class("speclab-text-page")  # scrolled to its end by CSS
        super().__init__([heading("Text", self.by), self.legend, page])
        self.add_class("speclab-text")
        on_change(self.by, lambda _: self.update(self._frame))

    def update(self, frame: Frame | None) -> None:
        """Draws the frame; chunks that stay as they are send nothing."""
        self._frame = frame
        if frame is None:
            return
        way = (self.by.value, token_text.sources_of(frame.trace) if self.by.value == "source" else ())
        key = (frame.trace, frame.committed, *way)
        if key[0] is self._drawn[0] and key[1:] == self._drawn[1:]:
            return
        if way != self._drawn[2:]:
            legend = f"<style>{token_text.STYLE}</style>" + token_text.legend(frame.trace, self.by.value)
            set_if_changed(self.legend, value=legend)
        self._drawn = key
        given = frame.trace, frame.committed, self.by.value
        chunks = [*token_text.closed_chunks(*given), token_text.tail_chunk(*given)]
        held = list(self.body.children)
        widgets = held[: len(chunks)] + [HTML() for _ in chunks[len(held) :]]
        for widget, chunk in zip(widgets, chunks, strict=True):
            if widget.value != chunk:
                set_if_changed(widget, value=chunk)
        if widgets != held:
            set_if_changed(self.body, children=tuple(widgets))
            for widget in held[len(widgets) :]:
                widget.close()


class Tabs(Tab):
    """A tab for every view declared for one, then the table looked at, runs and comparisons."""

    def __init__(self, state: LabState, actions: Actions) -> None:
        self._state, self._controller = state, actions.controller
        self.views = {view.name: _panel(view) for view in placed("tab")}
        ask, do = actions.ask, actions.controller
        self.measure = button(
            "measure", "Measure baselines", "decodes the same text with each source alone, to compare with",
            "balance-scale", lambda: ask(do.measure),
        )  # fmt: skip
        self.verify = button(
            "verify", "Verify the other too", "verifies each tree of this iteration; the session stays as it is",
            "check-square-o", lambda: ask(do.verify_all),
        )  # fmt: skip
        self.lookup = LookupPanel(state, actions)
        self.runs, self.compare = RunsPanel(state, actions), ComparePanel(state, actions)
        below = {"strategy": [self.measure], "drafts": [self.verify]}
        pages = [VBox([panel.widget, HBox(below.get(name, []))]) for name, panel in self.views.items()]
        self._panels: list[Panel] = [*self.views.values(), self.lookup, self.runs, self.compare]
        super().__init__([*pages, self.lookup, self.runs, self.compare], selected_index=0)
        self.titles = (*(view.heading for view in placed("tab")), "Successors", "Runs", "Compare")
        self.add_class("speclab-tabs")
        on_change(self, lambda _: self._show_tab(), "selected_index")
        self._show_tab()

    def show_tab(self, title: str) -> None:
        """Opens the tab of this title."""
        self.selected_index = self.titles.index(title)

    def _show_tab(self) -> None:
        for i, panel in enumerate(self._panels):
            panel.set_visible(i == self.selected_index)

    def update(self, frame: Frame) -> None:
        """Draws the tab that is open."""
        set_visible(self.measure, frame.live and self._controller.has_baselines)
        set_visible(self.verify, frame.live and frame.step is not None and bool(frame.step.proposals))
        for panel in self._panels:
            panel.update(frame)


class LookupPanel(VBox):
    """The transition table, looked at: the token that was written, else the selected node, else the root.

    It reads the session, which may be at work: so it draws on the worker's thread alone, and only when it is seen.
    """

    def __init__(self, state: LabState, actions: Actions) -> None:
        self._state, self._actions = state, actions
        self._visible, self._selected = False, state.selected
        self.written = Text(
            description="token",
            placeholder="as in the text, or ids: #17; two for the pair",
            tooltip="a token, or two for what follows the pair; empty: the selected node, else the root",
            continuous_update=False,
        )
        self.written.add_class("speclab-written")
        self.view = ViewPanel("lookup", self._draw, self._key)
        super().__init__([heading("What follows a token", self.written), self.view.widget])
        self.add_class("speclab-lookup-panel")
        on_change(self.written, self._catch_up)
        state.observe(self._catch_up, names="busy")

    def set_visible(self, visible: bool) -> None:
        """Says whether the panel is on the screen; coming back, it catches up."""
        self._visible = visible
        self._catch_up()

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the panel is seen and would differ; a node selected anew takes over."""
        if frame.selected != self._selected:
            self._selected = frame.selected
            if frame.selected is not None:
                set_if_changed(self.written, value="")
        if self._visible:
            self.view.update(frame)

    def _catch_up(self, _: Any = None) -> None:
        """What runs draws its own frames: nothing is asked of it, for that would end it."""
        if self._visible and not self._state.busy:
            self._actions.ask(self._redraw)

    @action(key="lookup")
    def _redraw(self) -> None:
        self.view.update(self._state.frame)

    def _key(self, frame: Frame) -> tuple[object, ...]:
        adapted = frame.position.reached("adapt")
        return frame.trace, frame.cursor, frame.selected, adapted, frame.live, self.written.value

    def _draw(self, frame: Frame) -> str:
        if not frame.live:
            return placeholder("A recorded run holds no table. Step decodes live: what was learned can be looked up.")
        try:
            found = self._actions.controller.lookup(frame, self.written.value)
        except SpeclabError as error:
            return placeholder(str(error))
        if found is None:
            return placeholder("This strategy keeps no table of transitions: there is nothing to look up.")
        drafted = {} if self.written.value or frame.step is None else children_of(frame.step, frame.selected or 0)
        return lookup_html(found, drafted)


class WhatIfPreview(HTML):
    """What the tree shown would have been with the settings of the form, while they are not applied.

    A sentence, and where the record suffices a picture that stands in for the tree; empty without a change. It is drawn
    where the change is made, not on the worker's thread: a slider must not wait for a model.

    Args:
        state: `change` and `frame` decide what is drawn.
        covers: called when the picture comes or goes.

    Attributes:
        covering: whether the picture stands in for the tree.
    """

    def __init__(self, state: LabState, covers: Any) -> None:
        super().__init__()
        self.covering = False
        self._state, self._covers, self._lock = state, covers, Lock()
        self.add_class("speclab-ghost")
        set_visible(self, visible=False)
        state.observe(lambda _: self.update(), names=["change", "frame"])

    def update(self) -> None:
        """Draws what the state says by now; threads take turns, so the newest stands."""
        with self._lock:
            change, frame = self._state.change, self._state.frame
            step, selected = frame.step, frame.selected
            sentence, picture = (
                _preview(step, change, selected) if change is not None and step is not None else ("", "")
            )
            if sentence or self.value:
                way = "Apply forks here." if frame.live else "Step decodes with the change."
                words = tag("b", "Not applied. "), escape(f"{sentence} {way}")
                note = tag("p", *words, role="status", class_="sl-ghost")
                set_if_changed(self, value=note + picture if sentence else "")
                set_visible(self, visible=bool(sentence))
            covered, self.covering = self.covering, bool(picture)
        if covered != self.covering:
            self._covers()


def _preview(step: Step, change: PendingChange, selected: int | None) -> tuple[str, str]:
    """The sentence, and the picture or nothing."""
    try:
        found = what_if(step, _meant(step, change), SessionSettings(**change.settings))
        return whatif_sentence(step, found), ghost_svg(step, found, selected)
    except SpeclabError as error:
        return f"What this iteration's tree would have been is not in its record: {str(error).rstrip('.')}.", ""
    except Exception as error:  # noqa: BLE001  # a view that fails must not take the slider along
        _log.exception("the tree could not be grown again")
        return f"What this iteration's tree would have been could not be drawn: {error}.", ""


def _meant(step: Step, change: PendingChange) -> Strategy:
    """The settings in force in this step, history's moves included, with what a person changed."""
    if not change.alone:
        raise NotRecordedError("more than the strategy has changed")
    if type(change.before) is not type(change.after):
        raise NotRecordedError(f"{type(change.after).__name__} drafts in another way")
    before, after = change.before.model_dump(), change.after.model_dump()
    return in_force(step).changed(**{name: value for name, value in after.items() if before[name] != value})
