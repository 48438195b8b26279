"""Predict mode's controls: how many tokens, a show of hands, and the score. Step is called Reveal meanwhile."""

from __future__ import annotations

from typing import Any

from ipywidgets import HTML, HBox, Text, ToggleButtons

from speclab.lab.actions import Actions
from speclab.lab.predicting import most_tokens
from speclab.lab.widgets import on_change, set_if_changed, set_visible, toggle
from speclab.views.explain import linked
from speclab.views.markup import escape, tag
from speclab.views.registry import Frame

_ASK = "Click the last node that will be accepted (the root: none), or say how many tokens:"
_DECISIONS = "› takes the target's decisions one by one."
_NEXT = "Step goes on: what is accepted stays hidden until you Reveal it."


class PredictPanel(HBox):
    """What is asked, and what came of it, above the tree; the button that opens it stands elsewhere: `toggle`."""

    def __init__(self, actions: Actions) -> None:
        self._actions, self._asking, do = actions, actions.controller.asking, actions.controller
        self.toggle = toggle(
            "predict", "Predict", "say what will be accepted before it is shown; a score is kept",
            lambda wanted: actions.ask(do.predicting, wanted) if wanted != self._asking.on else None,
        )  # fmt: skip
        super().__init__(_dom_classes=["speclab-predicting"])
        set_visible(self, visible=False)

    def _build(self) -> None:
        """The controls: made when the mode is first switched on."""
        self.question, self.said, self.score = HTML(_ASK), HTML(), HTML().add_class("speclab-score")
        self.tokens = ToggleButtons(options=[1], value=None, tooltips=[]).add_class("speclab-tokens")
        self.hands = Text(placeholder="4 12 7", description="hands raised", tooltip="for 1, 2, 3, … tokens")
        self.hands.add_class("speclab-hands")
        self._answers = HBox([self.question, self.tokens, self.hands]).add_class("speclab-files")
        on_change(self.tokens, lambda count: self._say(tokens=count) if count else None)
        on_change(self.hands, lambda typed: self._say(hands=_counts(typed)))
        self.children = [self._answers, self.said, self.score]

    def _say(self, **answer: Any) -> None:
        self._actions.ask(self._actions.controller.predict, **answer)

    def update(self, frame: Frame) -> None:
        """Shows what is asked of the iteration, or what was said of it."""
        if not self._asking.on and self.layout.display == "none":
            return
        if not self.children:
            self._build()
        set_if_changed(self.toggle, value=self._asking.on)
        set_visible(self, self._asking.on)
        set_visible(self._answers, frame.asked)
        set_visible(self.said, not frame.asked)
        ended = frame.position.reached("commit")
        said = self._asking.said(frame) or (_NEXT if ended else _DECISIONS)
        set_if_changed(self.said, value="" if frame.asked else tag("span", linked(said), role="status"))
        set_if_changed(self.score, value=tag("b", escape(str(self._asking.score))) if self._asking.score else "")
        set_visible(self.score, ended or frame.asked)
        if frame.asked and frame.step is not None:
            options = tuple(range(1, most_tokens(frame.step) + 1))
            if self.tokens.options != options:
                set_if_changed(self.tokens, options=options)
            answer = self._asking.answer
            set_if_changed(self.tokens, value=answer.tokens)
            if not answer.hands:
                set_if_changed(self.hands, value="")


def _counts(typed: str) -> tuple[int, ...]:
    """`4, 12 7` → 4, 12, 7; what is no number counts as none."""
    return tuple([int(one) if one.isdecimal() else 0 for one in typed.replace(",", " ").split()])
