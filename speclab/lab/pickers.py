"""The header: models, strategy, prompt and session settings, and the button that applies what has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ipywidgets import HTML, Box, Button, HBox, ToggleButton, VBox

from speclab.analysis.whatif import in_force
from speclab.errors import SpeclabError
from speclab.lab.choices import Change, Choices, Prompt
from speclab.lab.form import Form
from speclab.lab.model_picker import ModelPicker
from speclab.lab.prompt_picker import PromptPicker
from speclab.lab.state import LabState
from speclab.lab.strategy_picker import StrategyPicker
from speclab.lab.sync import assign, on_change, show
from speclab.settings import SessionSettings
from speclab.views.lossy import CHANGES, warning
from speclab.views.markup import tag
from speclab.views.tokens import clip, escape

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.models.pair import ModelPair


class Pickers(VBox):
    """Everything a session is made of; `strategy.panel` and `pending`, what Apply would do, stand beside the views.

    Args:
        state: `applied` says what the session shown was made of.
        pair: models given to the lab.
        strategy, prompt, settings: what to begin with.
        apply: called by the button.
    """

    def __init__(
        self,
        state: LabState,
        pair: ModelPair | None,
        strategy: Strategy,
        prompt: Prompt | None,
        settings: SessionSettings,
        apply: Callable[[], Any],
    ) -> None:
        self._state = state
        self._ready, self._begun = False, strategy
        self.models = ModelPicker(pair, self._draw)
        self.strategy = StrategyPicker(strategy, self._draw)
        self.prompt = PromptPicker(prompt, pair, self._draw)
        self.session = Form(SessionSettings, self._draw, helps=False)
        self.session.add_class("speclab-session")
        self.session.write(settings)
        self.toggle = ToggleButton(description="Settings", icon="sliders", tooltip="show the settings of the strategy")
        self.toggle.add_class("speclab-toggle")
        self.apply = Button(description="Apply", button_style="primary")
        self.apply.add_class("speclab-apply")
        self.apply.on_click(lambda _: apply())
        self.lossy = HTML(tag("span", warning(f"Typical acceptance {CHANGES}."), role="note"))
        self.lossy.add_class("speclab-lossy")
        self._of_lossy = [control for name, control in self.session.controls.items() if name.startswith("typical_")]
        self.note = HTML()
        self.note.add_class("speclab-note")
        super().__init__(self._rows())
        self.add_class("speclab-pickers")
        on_change(self.toggle, lambda _: self._open())
        self._open()
        state.observe(lambda _: self._open(), names="frame")
        state.observe(lambda _: self._draw(), names=["applied", "frame"])
        self._ready = True
        self._draw()

    def read(self) -> Choices:
        """The choices as they stand.

        Raises:
            SpeclabError: they contradict each other.
        """
        return Choices(self.models.read(), self.strategy.read(), self.prompt.read(), self.session.read().model_dump())

    def follow(self, strategy: Strategy, settings: dict[str, Any]) -> None:
        """Shows what a fork has put in force."""
        self.strategy.write(strategy)
        self.session.write(settings)

    def _rows(self) -> list[Any]:
        title = HTML(tag("span", "speclab", class_="sl-title"))
        left = HBox([title, self.models])
        right = HBox([self.strategy.choice, self.strategy.preset, self.toggle])
        for row in (left, right):
            row.add_class("speclab-head")
        grid = Box([left, right, self.prompt, self.session])
        grid.add_class("speclab-inputs")
        self.pending = HBox([self.apply, self.note])
        self.pending.add_class("speclab-pending")
        return [grid, self.lossy]

    def _open(self) -> None:
        """The settings of the strategy, where they are wanted; what is not seen is not drawn."""
        show(self.strategy.panel, visible=self.toggle.value)
        if self.toggle.value:
            self.strategy.show(self._state.step)

    def _draw(self) -> None:
        if not self._ready:
            return
        lossy = self._is_lossy()
        for part in (self.lossy, *self._of_lossy):
            show(part, visible=lossy)
        note, possible = self._say()
        self._state.change = self._change()
        show(self.pending, visible=bool(note))
        assign(self.note, value=note)
        assign(
            self.apply,
            disabled=not possible,
            tooltip="decode with what has changed" if possible else "see why beside it",
        )

    def _is_lossy(self) -> bool:
        """Whether the session settings change the output; half-way through a change they say nothing."""
        try:
            return not self.session.read().lossless
        except SpeclabError:
            return False

    def _change(self) -> Change | None:
        """What Apply would change of the strategy; on the recorded run, of the one it was recorded with."""
        try:
            chosen = self.read()
            if self._state.frame.live and self._state.applied is not None:
                return chosen.change_from(self._state.applied)
            step, begun = self._state.step, replace(chosen, strategy=self._begun)
            recorded = step is not None and in_force(step) == self._begun
        except SpeclabError:  # half-way through a change
            return None
        return chosen.change_from(begun) if recorded else None

    def _say(self) -> tuple[str, bool]:
        """What has changed and what Apply would do, as HTML; whether it can."""
        try:
            chosen = self.read()
        except SpeclabError as error:
            return tag("span", escape(error), class_="sl-bad"), False
        if chosen.strategy.needs_draft and not self.models.has_draft:
            name = type(chosen.strategy).__name__
            said = f"{name} needs a draft model and these models have none: name a draft, or choose another strategy."
            return tag("span", escape(said), class_="sl-bad"), False
        applied = self._state.applied
        changes = differences(applied, chosen) if applied is not None else []
        if not changes:
            return "", False
        forks = self._state.frame.live and applied is not None and chosen.forks_from(applied)
        does = f"Apply forks at iteration {self._state.cursor}." if forks else "Apply starts a new run."
        return tag("b", "Changed: ") + escape("; ".join(changes)) + ". " + tag("b", does), True


def differences(old: Choices, new: Choices) -> list[str]:
    """What differs, in words."""
    found = [] if old.models == new.models else ["models"]
    found += [] if old.prompt == new.prompt else ["prompt"]
    before, after = {**old.strategy.describe(), **old.settings}, {**new.strategy.describe(), **new.settings}
    if type(old.strategy) is not type(new.strategy):
        before, after = (
            {**old.settings, "strategy": before["strategy"]},
            {**new.settings, "strategy": after["strategy"]},
        )
    for name, value in after.items():
        if before[name] != value:
            found.append(f"{name.replace('_', ' ')} {_short(before[name])} → {_short(value)}")
    return found


def _short(value: Any) -> str:
    if value is None:
        return "off"
    return f"{value:g}" if isinstance(value, float) else clip(str(value), 24)
