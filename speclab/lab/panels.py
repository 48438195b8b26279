"""The views of the lab, linked by the iteration and the selected node, as `speclab.views.registry` declares them."""

from __future__ import annotations

import logging
from dataclasses import replace
from threading import RLock
from typing import Any

from ipywidgets import Box, Dropdown, HBox, Tab, VBox, Widget

from speclab.analysis.whatif import in_force, what_if
from speclab.drafters.base import Strategy
from speclab.errors import NotRecordedError, SpeclabError
from speclab.lab.actions import Actions
from speclab.lab.editing import TreeEditor
from speclab.lab.node_panel import AttentionPanel, DrawBar, LookupPanel
from speclab.lab.predict_panel import PredictPanel
from speclab.lab.runs_panel import ComparePanel, RunsPanel
from speclab.lab.screen import Screen, Slot, caption_html
from speclab.lab.state import LabState, PendingChange
from speclab.lab.widgets import button, on_change, set_if_changed, set_visible
from speclab.settings import SessionSettings
from speclab.trace.records import Step
from speclab.views import token_text
from speclab.views.figures import Drawing
from speclab.views.playback import PlaybackPosition
from speclab.views.registry import VIEWS, Frame, View, placed
from speclab.views.whatif_tree import whatif_sentence, whatif_spec

_MASKS = {"mask": "prefix folded", "mask-whole": "whole", "mask-check": "expected against given"}
_log = logging.getLogger(__name__)


class Panels(VBox):
    """The timeline, the stage with tree and mask, what is said of them, the text, and tabs; only what is seen is drawn.

    `status`: the line between stage and text. `settings`: the controls of the strategy, for the tab "What if". `views`:
    the slot of every view that is not in a tab, by its name.
    """

    def __init__(
        self,
        state: LabState,
        actions: Actions,
        screen: Screen,
        preview: WhatIfPreview,
        status: Widget,
        settings: Widget,
    ) -> None:
        self._state, self.preview, self._lock = state, preview, RLock()
        self.views = {view.name: _slot(screen, view) for view in placed("above", "stage", "below")}
        self.views["tree"] = Slot(screen, "tree", self._draw_tree, self._tree_key, cached=True)
        self.views["mask"] = Slot(screen, "mask", self._draw_mask, self._mask_key, cached=True)
        self.masks = Dropdown(
            options=[(label, name) for name, label in _MASKS.items()],
            tooltip="how the attention mask is drawn", description="mask",
        ).add_class("speclab-masks")  # fmt: skip
        on_change(self.masks, lambda _: self.update())
        self.text = TextPanel(screen)
        self.tabs = Tabs(state, actions, screen, settings)
        stage = Box([self.views[view.name] for view in placed("stage")]).add_class("speclab-stage")
        self.editor = TreeEditor(state, actions)
        self.predict = PredictPanel(actions)
        controls = HBox([self.predict.toggle, self.editor.toggle, self.masks])
        legend = HBox([*([self.views["legend"]] if "legend" in self.views else []), controls])
        legend.add_class("speclab-under")
        above, below = ([self.views[view.name] for view in placed(place)] for place in ("above", "below"))
        below = [slot for slot in below if slot is not self.views.get("legend")]
        rows = [*above, self.predict, stage, legend, self.editor, status, *below, self.text, self.tabs]
        super().__init__(rows, _dom_classes=["speclab-panels"])
        state.observe(lambda _: self.update(), names=["frame", "change"])
        self.update()

    def update(self) -> None:
        """Draws the frame wherever it differs from what is drawn; threads take turns, so the newest stays."""
        with self._lock:
            frame = self._state.frame
            for slot in self.views.values():
                slot.update(frame)
            self.editor.update(frame)
            self.predict.update(frame)
            self.text.update(frame)
            self.tabs.update(frame)

    def _tree_key(self, frame: Frame) -> tuple[Any, ...]:
        return self.preview.change_of(frame), *VIEWS["tree"].key(frame)

    def _draw_tree(self, frame: Frame) -> Drawing:
        """The tree; while a change is pending, what it would have been, where the record suffices."""
        return self.preview.draw(frame) or VIEWS["tree"].render(frame)

    def _mask_key(self, frame: Frame) -> tuple[Any, ...]:
        return self.masks.value, frame.edited is None, *VIEWS["mask"].key(frame)

    def _draw_mask(self, frame: Frame) -> Drawing:
        """The mask; while a tree is edited, the one that Verify would give, whose cells can be clicked."""
        if frame.edited is None or frame.asked:
            return VIEWS[self.masks.value].render(frame)
        drawn = VIEWS[self.masks.value].render(replace(frame, position=PlaybackPosition("verify")))
        for trace in drawn["data"] if isinstance(drawn, dict) else ():
            if "words" in trace.get("meta", {}):
                trace["meta"] |= {"click": "cell"}
        return drawn


def _slot(screen: Screen, view: View) -> Slot:
    """The slot of a view: its drawing, its sentence, and its table where that is declared to be unfolded."""

    def draw(frame: Frame) -> Drawing:
        drawn = view.render(frame)
        parts = [drawn] if isinstance(drawn, str | dict) else list(drawn)
        return [*parts, caption_html(view.describe(frame)), view.tabulate(frame) if view.unfolded else ""]

    return Slot(screen, view.name, draw, view.key, cached="step" in view.needs and "trace" not in view.needs)


class WhatIfPreview:
    """What the tree shown would have been with the settings of the form, while they are not applied.

    A sentence, and where the record suffices a picture that takes the tree's place. It is worked out where the change
    is made, not on the worker's thread: a slider must not wait for a model.
    """

    def __init__(self, state: LabState) -> None:
        self._state = state
        self._known: tuple[Any, ...] = ()
        self._found: tuple[str, Drawing] = ("", "")

    def change_of(self, frame: Frame) -> PendingChange | None:
        """The change that is pending, where there is an iteration to try it on."""
        return self._state.change if frame.step is not None and frame.edited is None else None

    def sentence(self) -> str:
        """What would have been; empty where nothing is pending."""
        return self._look(self._state.frame)[0]

    def draw(self, frame: Frame) -> Drawing:
        """The tree that would have been; empty where nothing is pending, or the record does not suffice."""
        return self._look(frame)[1]

    def _look(self, frame: Frame) -> tuple[str, Drawing]:
        change, step = self.change_of(frame), frame.step
        if change is None or step is None:
            return "", ""
        known = (change, step, frame.selected, frame.room)
        if len(known) != len(self._known) or any(a is not b for a, b in zip(known, self._known, strict=True)):
            self._known, self._found = known, _preview(step, change, frame)
        return self._found


def _preview(step: Step, change: PendingChange, frame: Frame) -> tuple[str, Drawing]:
    """The sentence, and the picture or nothing."""
    try:
        found = what_if(step, _meant(step, change), SessionSettings(**change.settings))
        room = frame.room
        drawn = whatif_spec(step, found, frame.selected, width=room.tree, height=room.height, scale=room.scale)
        return whatif_sentence(step, found), drawn
    except SpeclabError as error:
        return f"What this iteration's tree would have been is not in its record: {str(error).rstrip('.')}.", ""
    except Exception as error:  # a view that fails must not take the slider along
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


class TextPanel(VBox):
    """The prompt and the text up to the cursor, coloured by what the person asks for.

    It is written in chunks: what is finished is sent when a chunk is full, its end at each step.
    """

    def __init__(self, screen: Screen) -> None:
        self._frame: Frame | None = None
        self.by = Dropdown(
            options=["verdict", "source", "iteration", "probability"],
            description="colour by",
            tooltip="what colours mean",
        )
        self.legend = Slot(screen, "text-legend", self._legend, lambda frame: (*self._way(frame), frame.trace.messages))
        self.done = Slot(screen, "text-done", self._closed, self._closed_key)
        self.tail = Slot(screen, "text-tail", self._tail, self._key)
        page = Box([Box([self.done, self.tail]).add_class("speclab-text-body")])
        page.add_class("speclab-text-page")  # scrolled to its end by CSS
        super().__init__([page, HBox([self.legend, self.by]).add_class("speclab-text-head")])
        self.add_class("speclab-text")
        on_change(self.by, lambda _: self.update(self._frame))

    def update(self, frame: Frame | None) -> None:
        """Draws the frame."""
        self._frame = frame
        if frame is not None:
            for slot in (self.legend, self.done, self.tail):
                slot.update(frame)

    def _way(self, frame: Frame) -> tuple[Any, ...]:
        return self.by.value, " ".join(token_text.sources_of(frame.trace)) if self.by.value == "source" else ""

    def _key(self, frame: Frame) -> tuple[Any, ...]:
        return frame.trace, frame.committed, *self._way(frame)

    def _legend(self, frame: Frame) -> str:
        return f"<style>{token_text.STYLE}</style>" + token_text.legend(frame.trace, self.by.value)

    def _closed(self, frame: Frame) -> list[str]:
        return list(token_text.closed_chunks(frame.trace, frame.committed, self.by.value))

    def _closed_key(self, frame: Frame) -> tuple[Any, ...]:
        return token_text.closed_key(frame.trace, frame.committed, self.by.value)

    def _tail(self, frame: Frame) -> str:
        return token_text.tail_chunk(frame.trace, frame.committed, self.by.value)


class Tabs(Tab):
    """A tab for every view declared for one, with the controls that belong to it; only the open one is drawn."""

    def __init__(self, state: LabState, actions: Actions, screen: Screen, settings: Widget) -> None:
        self._state, self._controller = state, actions.controller
        self.views = {view.name: _slot(screen, view) for view in placed("tab")}
        ask, do = actions.ask, actions.controller
        self.verify = button(
            "verify", "Verify the other too", "verifies each tree of this iteration; the session stays as it is",
            "check-square-o", lambda: ask(do.verify_all),
        )  # fmt: skip
        self.pin = button("pin", "Pin", "keep this iteration beside those to come", "thumb-tack", lambda: ask(do.pin))
        self.lookup, self.attention = LookupPanel(state, actions, screen), AttentionPanel(state, actions, screen)
        self.runs, self.compare = RunsPanel(state, actions, screen), ComparePanel(state, actions, screen)
        pages: dict[str, list[Any]] = {"Caches": [], "What if": [settings], "Node": []}
        pages |= {
            "Metrics": [],
            "Compare": [HBox([self.pin]), self.runs, self.compare],
            "Strategy": [],
        }
        for view in placed("tab"):
            pages.setdefault(view.tab or view.heading, []).append(self.views[view.name])
        pages["Node"] += [DrawBar(actions), self.attention]
        pages["Strategy"] += [HBox([self.verify]), self.lookup]
        self._pages = [page for page in pages.values() if page]
        super().__init__([VBox(page) for page in self._pages], selected_index=0)
        self.titles = tuple(title for title, page in pages.items() if page)
        self.add_class("speclab-tabs")
        on_change(self, lambda _: self._show_tab(), "selected_index")
        self._show_tab()

    def show_tab(self, title: str) -> None:
        """Opens the tab of this title."""
        self.selected_index = self.titles.index(title)

    def _show_tab(self) -> None:
        self._update(self._state.frame)  # what was drawn elsewhere meanwhile
        for i, page in enumerate(self._pages):
            for panel in page:
                if hasattr(panel, "set_visible"):
                    panel.set_visible(i == self.selected_index)

    def update(self, frame: Frame) -> None:
        """Draws the tab that is open."""
        set_visible(self, not frame.asked)
        set_visible(self.verify, frame.live and frame.step is not None and bool(frame.step.proposals))
        set_if_changed(self.pin, description="Unpin" if frame.pinned is frame.step is not None else "Pin")
        self._update(frame)

    def _update(self, frame: Frame) -> None:
        for panel in self._pages[self.selected_index or 0]:
            if hasattr(panel, "set_visible"):
                panel.update(frame)
