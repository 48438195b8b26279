"""The configuration form: models, prompt, strategy and settings, and the button that applies what has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ipywidgets import HTML, Box, Button, Dropdown, HBox, Textarea, ToggleButton, VBox

from speclab.analysis.whatif import in_force
from speclab.drafters import strategies
from speclab.errors import SpeclabError
from speclab.lab.form import Form
from speclab.lab.models import ModelPicker
from speclab.lab.runs import differences
from speclab.lab.state import LabConfig, LabState, PendingChange, Prompt
from speclab.lab.widgets import on_change, set_if_changed, set_visible
from speclab.prompts import examples
from speclab.settings import SessionSettings
from speclab.trace.records import Step
from speclab.views.explain import CHANGES, warning
from speclab.views.markup import escape, tag

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.models.pair import ModelPair

CUSTOM = "custom"


class ConfigForm(VBox):
    """Everything a session is made of; `strategy.panel` and `pending`, what Apply would do, stand beside the views.

    It is read and validated once per change, not at each iteration.

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
        self._state, self._begun = state, strategy
        self._ready = False
        self._config: LabConfig | SpeclabError | None = None
        self.models = ModelPicker(pair, self._edited)
        self.strategy = StrategyPicker(strategy, self._edited)
        self.prompt = PromptPicker(prompt, pair, self._edited)
        self.session = Form(SessionSettings, self._edited, helps=False)
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
        on_change(self.toggle, lambda _: self._show_settings())
        self._show_settings()
        state.observe(lambda _: self._follow_frame(), names=["applied", "frame"])
        self._ready = True
        self._edited()

    def read(self) -> LabConfig:
        """The configuration as it stands.

        Raises:
            SpeclabError: its parts contradict each other.
        """
        if self._config is None:
            try:
                settings = self.session.read().model_dump()
                self._config = LabConfig(self.models.read(), self.strategy.read(), self.prompt.read(), settings)
            except SpeclabError as error:
                self._config = error
        if isinstance(self._config, SpeclabError):
            raise self._config
        return self._config

    def write(self, config: LabConfig) -> None:
        """Shows this configuration; its models are those chosen."""
        self.prompt.write(config.prompt)
        self.write_settings(config.strategy, dict(config.settings))

    def write_settings(self, strategy: Strategy, settings: dict[str, Any]) -> None:
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

    def _edited(self) -> None:
        self._config = None
        if self._ready:
            lossy = self._is_lossy()
            for part in (self.lossy, *self._of_lossy):
                set_visible(part, visible=lossy)
            self._show_pending()

    def _follow_frame(self) -> None:
        self._show_settings()
        self._show_pending()

    def _show_settings(self) -> None:
        """The settings of the strategy, where they are wanted; what is not seen is not drawn."""
        set_visible(self.strategy.panel, visible=self.toggle.value)
        if self.toggle.value:
            self.strategy.show_values(self._state.step)

    def _show_pending(self) -> None:
        note, possible = self._pending()
        self._state.change = self._change()
        set_visible(self.pending, visible=bool(note))
        tooltip = "decode with what has changed" if possible else "see why beside it"
        set_if_changed(self.note, value=note)
        set_if_changed(self.apply, disabled=not possible, tooltip=tooltip)

    def _is_lossy(self) -> bool:
        """Whether the session settings change the output; half-way through a change they say nothing."""
        try:
            return not self.session.read().lossless
        except SpeclabError:
            return False

    def _change(self) -> PendingChange | None:
        """What Apply would change of the strategy; on the recorded run, of the one it was recorded with."""
        try:
            config = self.read()
            if self._state.frame.live and self._state.applied is not None:
                return config.change_from(self._state.applied)
            step, begun = self._state.step, replace(config, strategy=self._begun)
            recorded = step is not None and in_force(step) == self._begun
        except SpeclabError:  # half-way through a change
            return None
        return config.change_from(begun) if recorded else None

    def _pending(self) -> tuple[str, bool]:
        """What has changed and what Apply would do, as HTML; whether it can."""
        try:
            config = self.read()
        except SpeclabError as error:
            return tag("span", escape(str(error)), class_="sl-bad"), False
        if config.strategy.needs_draft and not self.models.has_draft:
            name = type(config.strategy).__name__
            why = f"{name} needs a draft model and these models have none: name a draft, or choose another strategy."
            return tag("span", escape(why), class_="sl-bad"), False
        applied = self._state.applied
        changes = differences(applied, config) if applied is not None and applied != config else []
        if not changes:
            return "", False
        forks = self._state.frame.live and applied is not None and config.forks_from(applied)
        does = f"Apply forks at iteration {self._state.cursor}." if forks else "Apply starts a new run."
        return tag("b", "Changed: ") + escape("; ".join(changes)) + ". " + tag("b", does), True


class PromptPicker(VBox):
    """Examples by kind, and the text itself."""

    def __init__(self, prompt: Prompt | None, pair: ModelPair | None, changed: Callable[[], None]) -> None:
        self._examples = examples()
        first = self._examples[0].text if prompt is None else prompt
        self._given, self._given_text = first, _text(first, pair)
        named = [(f"{example.kind} · {example.name}", i) for i, example in enumerate(self._examples)]
        self.example = Dropdown(
            options=[("your own text", -1), *named], description="Prompt", tooltip="shipped examples"
        )
        self.text = Textarea(
            value=self._given_text, description="", tooltip="the text that the models continue", rows=3
        )
        self.text.placeholder = "a text to continue"
        self.text.add_class("speclab-prompt")
        super().__init__([self.example, self.text])
        self.add_class("speclab-prompts")
        self._fit()
        on_change(self.example, self._chosen)
        on_change(self.text, lambda _: self._fit())
        on_change(self.text, lambda _: changed())

    def read(self) -> Prompt:
        """The prompt: token ids if they were given as such and left alone, else the text."""
        return self._given if self.text.value == self._given_text else str(self.text.value)

    def write(self, prompt: Prompt) -> None:
        """Shows this prompt."""
        own = prompt if isinstance(prompt, str) else _text(prompt, None)
        set_if_changed(self.text, value=self._given_text if prompt == self._given else own)

    def _chosen(self, index: int) -> None:
        if index >= 0:
            set_if_changed(self.text, value=self._examples[index].text)

    def _fit(self) -> None:
        found = [i for i, example in enumerate(self._examples) if example.text == self.text.value]
        set_if_changed(self.example, value=found[0] if found else -1)


def _text(prompt: Prompt, pair: ModelPair | None) -> str:
    if isinstance(prompt, str):
        return prompt
    if pair is not None and pair.tokenizer is not None:
        return pair.decode(prompt)
    return " ".join(str(token) for token in prompt)


class StrategyPicker:
    """`choice` and `preset` stand in the header, `panel` holds the settings of the strategy chosen.

    A strategy that is not registered, such as one of a notebook cell, joins the list when it is first written.
    """

    def __init__(self, strategy: Strategy, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._kinds = dict(strategies())
        self._forms: dict[type[Strategy], Form] = {}
        self._named: dict[type[Strategy], dict[str, Any]] = {}
        self._step: Step | None = None
        self.choice = Dropdown(options=list(self._kinds), description="Strategy", tooltip="how candidates are drafted")
        self.choice.add_class("speclab-strategy")
        self.preset = Dropdown(options=[CUSTOM], description="Preset", tooltip="named settings, the paper's among them")
        self.preset.add_class("speclab-preset")
        self.reset = Button(description="Reset", icon="undo", tooltip="back to the defaults of the strategy")
        self.reset.add_class("speclab-reset")
        self.about = HTML()
        self.grid = VBox()
        head = HBox([self.about, self.reset])
        head.add_class("speclab-settings-head")
        self.panel = VBox([head, self.grid])
        self.panel.add_class("speclab-settings")
        self.write(strategy)
        on_change(self.choice, lambda _: self._follow())
        on_change(self.preset, self._preset)
        self.reset.on_click(lambda _: self.form.write(self.form.kind()))

    @property
    def kind(self) -> type[Strategy]:
        """The strategy chosen."""
        return self._kinds[self.choice.value]

    @property
    def form(self) -> Form:
        """The controls of the strategy chosen; made when it is first chosen."""
        if self.kind not in self._forms:
            self._forms[self.kind] = Form(self.kind, self._edited)
        return self._forms[self.kind]

    @property
    def presets(self) -> dict[str, Any]:
        """Named settings of the strategy chosen."""
        if self.kind not in self._named:
            self._named[self.kind] = dict(self.kind.presets())
        return self._named[self.kind]

    def show_values(self, step: Step | None) -> None:
        """Shows where the values of an iteration lie, below the sliders of the strategy that decoded it."""
        self._step = step
        own = step is not None and step.settings.get("strategy") == self.choice.value
        self.form.show_values(step if own else None)

    def read(self) -> Strategy:
        """The strategy as it stands.

        Raises:
            SettingsError: its settings contradict each other.
        """
        return self.form.read()  # type: ignore[no-any-return]

    def write(self, strategy: Strategy) -> None:
        """Shows this strategy."""
        name = type(strategy).__name__
        self._kinds[name] = type(strategy)
        if name not in self.choice.options:
            self.choice.options = [*self.choice.options, name]
        set_if_changed(self.choice, value=name)
        self._follow()
        self.form.write(strategy)

    def _follow(self) -> None:
        form, about = self.form, (self.kind.__doc__ or "").strip().partition("\n")[0]
        self.about.value = tag("b", escape(self.choice.value)) + " " + tag("span", escape(about), class_="sl-muted")
        self.grid.children = [form]
        fields = self.kind.model_fields.values()
        set_visible(self.reset, visible=bool(form.controls) and not any(field.is_required() for field in fields))
        self.preset.options = [CUSTOM, *self.presets]
        set_visible(self.preset, visible=bool(self.presets))
        self.show_values(self._step)
        self._edited()

    def _preset(self, name: str | None) -> None:
        chosen = self.presets.get(name or CUSTOM)
        if chosen is not None and chosen != self._current():
            self.form.write(chosen)

    def _edited(self) -> None:
        current = self._current()
        named = [name for name, settings in self.presets.items() if settings == current]
        set_if_changed(self.preset, value=named[0] if named else CUSTOM)
        self._changed()

    def _current(self) -> Strategy | None:
        try:
            return self.read()
        except ValueError:  # half-way through a change
            return None
