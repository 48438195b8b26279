"""What the record alone does not hold, read from the session: the transition table, and what a node attends to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipywidgets import HTML, Dropdown, HBox, Text, VBox

from speclab.errors import SpeclabError
from speclab.lab.actions import Actions, action
from speclab.lab.screen import Screen, Slot, caption_html, placeholder
from speclab.lab.state import LabState
from speclab.lab.widgets import button, heading, on_change, set_if_changed, set_visible
from speclab.trace.records import Step
from speclab.views.attention_chart import Weights, attention_drawing
from speclab.views.drafter_state import children_of, lookup_html
from speclab.views.figures import Drawing
from speclab.views.markup import tag
from speclab.views.node_chart import draws
from speclab.views.registry import EDITED, Frame

MEAN = -1
"""All layers, or all heads, in a list: it cannot show an option whose value is None."""


class SessionPanel(VBox):
    """A picture of what the session holds. The session may be at work: it is drawn on the worker's thread, where seen.

    A change of its controls draws it anew.
    """

    def __init__(
        self, state: LabState, actions: Actions, screen: Screen, name: str, title: str, controls: Sequence[Any]
    ) -> None:
        self._state, self._actions, self._visible = state, actions, False
        self.view = Slot(screen, name, self._draw, self._key)
        super().__init__([heading(title, *controls), self.view])
        self.add_class(f"speclab-{name}-panel")
        for control in controls:
            on_change(control, self._catch_up)
        state.observe(self._catch_up, names="busy")

    def set_visible(self, visible: bool) -> None:
        """Says whether the panel is on the screen; coming back, it catches up."""
        self._visible = visible
        self._catch_up()

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the panel is seen and would differ."""
        if self._visible:
            self.view.update(frame)

    def _catch_up(self, _: Any = None) -> None:
        """What runs draws its own frames: nothing is asked of it, for that would end it."""
        if self._visible and not self._state.busy:
            self._actions.ask(self._redraw)

    @action(key="redraw")
    def _redraw(self) -> None:
        self.update(self._state.frame)

    def _key(self, frame: Frame) -> tuple[object, ...]:
        raise NotImplementedError

    def _draw(self, frame: Frame) -> Drawing:
        raise NotImplementedError


class LookupPanel(SessionPanel):
    """The transition table, looked at: the token that was written, else the selected node, else the root."""

    def __init__(self, state: LabState, actions: Actions, screen: Screen) -> None:
        self._selected = state.selected
        self.written = Text(
            description="token",
            placeholder="as in the text, or ids: #17; two for the pair",
            tooltip="a token, or two for what follows the pair; empty: the selected node, else the root",
            continuous_update=False,
        ).add_class("speclab-written")
        super().__init__(state, actions, screen, "lookup", "Successors: what follows a token", [self.written])

    def update(self, frame: Frame) -> None:
        """Draws the frame, if the panel is seen and would differ; a node selected anew takes over."""
        if frame.selected != self._selected:
            self._selected = frame.selected
            if frame.selected is not None:
                set_if_changed(self.written, value="")
        super().update(frame)

    def _key(self, frame: Frame) -> tuple[object, ...]:
        adapted = frame.position.reached("learn")
        return frame.trace, frame.cursor, frame.selected, adapted, frame.live, frame.edited, self.written.value

    def _draw(self, frame: Frame) -> Drawing:
        if frame.edited is not None:
            return placeholder(EDITED)
        if not frame.live:
            return placeholder("A recorded run holds no table. Run live: what was learned can be looked up.")
        try:
            found = self._actions.controller.lookup(frame, self.written.value)
        except SpeclabError as error:
            return placeholder(str(error))
        if found is None:
            return placeholder("This strategy keeps no table of transitions: there is nothing to look up.")
        drafted = {} if self.written.value or frame.step is None else children_of(frame.step, frame.selected or 0)
        return lookup_html(found, drafted)


class AttentionPanel(SessionPanel):
    """What the selected node attends to, of one layer and head or a mean: the target runs it once more."""

    def __init__(self, state: LabState, actions: Actions, screen: Screen) -> None:
        self.layer, self.head = (
            Dropdown(options=[(f"mean of all {name}s", MEAN)], description=name, tooltip=f"the {name} to look at")
            for name in ("layer", "head")
        )
        self._known: tuple[Step, int, Weights] | None = None
        super().__init__(state, actions, screen, "attention", "Attention", [self.layer, self.head])

    def _key(self, frame: Frame) -> tuple[object, ...]:
        return frame.step, frame.selected, frame.live, self.layer.value, self.head.value

    def _draw(self, frame: Frame) -> Drawing:
        step, node = frame.step, frame.selected
        if step is None or node is None:
            return placeholder("Select a node: what the target attends to there appears here.")
        if frame.edited is not None:
            return placeholder(EDITED)
        if not frame.live:
            return placeholder("A recorded run holds no models. Run live: then the attention of a node can be read.")
        try:
            weights = self._weights(frame, step, node)
        except SpeclabError as error:
            return placeholder(str(error))
        layer, head = (None if picker.value == MEAN else picker.value for picker in (self.layer, self.head))
        tokens = (*frame.trace.prompt_ids, *frame.trace.token_ids(frame.cursor - 1))[: step.prefix_length]
        prefix = [frame.trace.texts.get(token, "") for token in tokens]
        drawn, table = attention_drawing(step, node, weights, layer, head, prefix=prefix)
        said = caption_html(drawn["layout"]["meta"]["label"])
        return [drawn, said, tag("details", tag("summary", "as a table"), table)]

    def _weights(self, frame: Frame, step: Step, node: int) -> Weights:
        """The newest are kept: another layer or head of them needs no pass."""
        if self._known is None or self._known[0] is not step or self._known[1] != node:
            weights = self._actions.controller.attention(frame)
            self._known = step, node, weights
            for picker, count in ((self.layer, weights.shape[0]), (self.head, weights.shape[1])):
                mean = picker.options[0]
                set_if_changed(picker, options=(mean, *((str(index), index) for index in range(count))))
        return self._known[2]


class DrawBar(HBox):
    """Steps through the draws where sampling stopped: what was left before and after each."""

    def __init__(self, actions: Actions) -> None:
        ask, do = actions.ask, actions.controller
        self.back = button("draw-back", "", "the draw before", "chevron-left", lambda: ask(do.draw_by, -1))
        self.next = button("draw-next", "", "the next draw", "chevron-right", lambda: ask(do.draw_by, 1))
        self.count = HTML()
        super().__init__([self.back, self.count, self.next], _dom_classes=["speclab-draws"])
        self._visible = False

    def set_visible(self, visible: bool) -> None:
        """Says whether the bar is on the screen."""
        self._visible = visible

    def update(self, frame: Frame) -> None:
        """Shows which draw the bars are of; nothing where the target sampled nothing."""
        sampled = frame.step is not None and frame.step.residual is not None
        set_visible(self, visible=sampled)
        if sampled and self._visible and frame.step is not None:
            total = len(draws(frame.step))
            said = f"after {frame.draw} of {total} draws" if frame.draw is not None else f"all {total} draws"
            set_if_changed(self.count, value=tag("span", said, class_="sl-muted"))
