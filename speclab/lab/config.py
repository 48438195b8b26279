"""What a session is made of: one line that says it, the pickers that it unfolds, and what a change would do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from ipywidgets import HTML, Box, Dropdown, HBox, ToggleButtons, VBox

from speclab.drafters import strategies
from speclab.errors import ModelNotFoundError, SettingsError, SpeclabError
from speclab.lab.form import Fold, Form, main_fields
from speclab.lab.models import ModelPicker, describe_models, drafts_of, has_template
from speclab.lab.prompt_picker import PromptPicker
from speclab.lab.runs import differences
from speclab.lab.state import LabConfig, LabState, ModelChoice, PendingChange, Prompt
from speclab.lab.widgets import button, on_change, set_if_changed, set_visible, toggle
from speclab.settings import SessionSettings
from speclab.trace.records import Step
from speclab.views.explain import plural
from speclab.views.markup import escape, tag
from speclab.views.registry import Frame

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair

CUSTOM = "custom"
REDO, NEXT = "redo this iteration", "from the next iteration"
_SAMPLING = ("top_k", "top_p", "seed")


class ConfigForm(VBox):
    """One line on what runs; "Change" unfolds the pickers, "Export" a line for an engine. `strategy` is in "What if".

    It is read and validated once per change, not at each iteration. What is changed and not yet applied stands in the
    state: `pending` in words, `refused` where it cannot be, `change` as settings.
    `models`: those to begin with where no pair was given. `apply` gets whether to redo the iteration shown. `session`
    gives the one that runs, whose models an export names.
    """

    def __init__(
        self,
        state: LabState,
        pair: ModelPair | None,
        models: ModelChoice | None,
        strategy: Strategy,
        prompt: Prompt | None,
        settings: SessionSettings,
        apply: Callable[[bool], Any],
        session: Callable[[], Session | None],
    ) -> None:
        self._state, self._pair, self._first = state, pair, models
        self._config: LabConfig | SpeclabError | None = None
        self._ready = False
        self.apply = button("apply", "Apply", "", "", lambda: apply(self.when.value == REDO), "primary")
        self.when = ToggleButtons(options=[REDO, NEXT], tooltips=["and show both side by side", "what is shown stays"])
        self.note = HTML().add_class("speclab-note")
        row = HBox([self.when, self.apply]).add_class("speclab-group")
        self.strategy = StrategyPicker(strategy, self._edited, [row, self.note])
        self.prompt = PromptPicker(prompt, pair, self._edited, has_template(self._choice(), pair))
        self.session = Form(SessionSettings, self._edited)
        self.session.write(settings)
        self.models_line, self.sampling_line = HTML(), HTML()
        self.quote = button("quote", "", "change the prompt", "", self.unfold)
        self.toggle = toggle("change", "Change", "models, strategy, prompt, length, temperature", self._fold)
        controls = [self.models_line, self.quote, self.sampling_line, self.toggle]
        self.pickers = VBox().add_class("speclab-pickers")
        super().__init__([HBox(controls).add_class("speclab-setup"), self.pickers])
        set_visible(self.pickers, visible=False)
        state.observe(lambda _: self._show(), names=["applied", "frame"])
        self._ready = True
        self._edited()

    @cached_property
    def models(self) -> ModelPicker:
        """The controls of the models; made when they are first asked for."""
        return ModelPicker(self._pair, self._first, self._edited)

    def unfold(self) -> None:
        """Shows the pickers, the cursor in the prompt."""
        self.toggle.value = True
        self.prompt.text.focus()

    def read(self) -> LabConfig:
        """The configuration as it stands; raises SpeclabError where its parts contradict each other."""
        if self._config is None:
            try:
                settings = self.session.read().model_dump()
                self._config = LabConfig(self._choice(), self.strategy.read(), self.prompt.read(), settings)
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

    def close(self) -> None:
        """Ends what looks up sizes of models."""
        if "models" in vars(self):
            self.models.memory.close()
        super().close()

    def _choice(self) -> ModelChoice | None:
        if "models" in vars(self):
            return self.models.read()
        return self._first

    def _fold(self, wanted: bool) -> None:
        if wanted and not self.pickers.children:
            length, temperature = (self.session.controls[name] for name in ("max_new_tokens", "temperature"))
            set_if_changed(length, description="length")
            row = Box([self.models, self.strategy.choice, self.strategy.preset, length, temperature])
            row.add_class("speclab-inputs")
            self.pickers.children = [row, self.prompt, Fold("advanced", "Advanced", self._advanced)]
            self.models.look()
            self._fit()
        set_visible(self.pickers, wanted)

    def _advanced(self) -> list[Any]:
        names = [name for name in SessionSettings.model_fields if name not in {"max_new_tokens", "temperature"}]
        rows = [self.models.device, self.models.dtype, *(self.session.controls[name] for name in names)]
        self._fit()
        return rows

    def _edited(self) -> None:
        self._config = None
        if self._ready:
            with suppress(ModelNotFoundError):  # no target named yet
                self.prompt.offer(has_template(self._choice(), self._pair))
            self._fit()
            self._show_line()
            self._show()

    def _fit(self) -> None:
        """Disables what has no effect as things stand, and says why."""
        try:
            settings = self.session.read()
        except SettingsError:  # half-way through a change
            return
        why = {name: "temperature 0 is greedy: nothing is sampled" for name in _SAMPLING if not settings.temperature}
        for name, widget in self.session.controls.items():
            set_if_changed(widget, disabled=name in why)
            said = why.get(name, SessionSettings.model_fields[name].description)
            set_if_changed(getattr(widget, "slider", widget), tooltip=said)  # a box with a tooltip cannot be shown

    def _show(self) -> None:
        """What has changed, and what a Step would do with it."""
        change, changed, refused = self._pending()
        self._state.update(change=change, pending=changed, refused=refused)
        note = tag("span", escape(refused), class_="sl-bad") if refused else escape(changed)
        set_if_changed(self.note, value=note)
        set_if_changed(self.apply, disabled=not changed, tooltip=changed or refused or "nothing has changed")

    def _show_line(self) -> None:
        """What a Step would run; as it was while what is set cannot be."""
        try:
            config, sampled = self.read(), self.session.read()
        except SpeclabError:  # half-way through a change
            return
        words = " · ".join([*describe_models(config.models, self._pair), self.strategy.choice.value, ""])
        way = f"temperature {sampled.temperature:g}" if sampled.temperature else "greedy"
        set_if_changed(self.models_line, value=tag("span", escape(words), title=escape(words)))
        set_if_changed(self.quote, description=self.prompt.caption)
        set_if_changed(self.sampling_line, value=tag("span", f"· {way}"))

    def _pending(self) -> tuple[PendingChange | None, str, str]:
        """The change of the strategy; all that a Step would apply; or why what is written cannot be."""
        applied: LabConfig | None = self._state.applied
        try:
            config = self.read()
        except SpeclabError as error:
            return None, "", str(error)
        change = config.change_from(applied) if applied else None
        if lacks := _lacks(config.strategy, drafts_of(config.models, self._pair)):
            return change, "", lacks
        if applied is None or applied == config:
            return change, "", ""
        forks = config.forks_from(applied)
        does = f"It forks at iteration {self._state.cursor}." if forks else "It starts a new run."
        return change, f"Changed: {'; '.join(differences(applied, config))}. {does}", ""


def _lacks(strategy: Strategy, drafts: tuple[bool, int]) -> str:
    """What the models lack that a strategy drafts with; `drafts` as of `drafts_of`."""
    name, (_, heads), wanted = type(strategy).__name__, drafts, strategy.heads_needed
    if wanted > heads:
        what, have = plural(wanted, "draft head"), f"have {heads}" if heads else "have none"
        return f"{name} needs {what} and these models {have}: name as many, or choose another strategy."
    if strategy.needs_draft and not any(drafts):
        what = "a draft model or a draft head"
        return f"{name} needs {what} and these models have none: name one, or choose another strategy."
    return ""


class StrategyPicker(VBox):
    """The settings of the strategy chosen, the main ones first; `choice` and `preset` stand elsewhere.

    Controls are made when the panel is first seen. A strategy that is not registered, such as one of a notebook cell,
    joins the list when it is first written.
    """

    def __init__(self, strategy: Strategy, changed: Callable[[], None], below: list[Any]) -> None:
        self._changed, self._seen = changed, False
        self._kinds = dict(strategies())
        self._forms: dict[type[Strategy], Form] = {}
        self._grids: dict[type[Strategy], tuple[Box, Fold]] = {}
        self._step: Step | None = None
        self.choice = Dropdown(options=list(self._kinds), description="strategy", tooltip="how candidates are drafted")
        self.preset = Dropdown(options=[CUSTOM], description="preset", tooltip="named settings, the paper's among them")
        self.choice.add_class("speclab-strategy")
        self.preset.add_class("speclab-preset")
        self.about, self._grid, self._more = HTML(), VBox(), VBox()
        self.reset = button(
            "reset", "Reset", "back to the defaults of the strategy", "", lambda: self.form.write(self.kind())
        )
        head = HBox([self.about, self.reset]).add_class("speclab-settings-head")
        super().__init__([head, self._grid, *below, self._more], _dom_classes=["speclab-settings"])
        self.write(strategy)
        on_change(self.choice, lambda _: self._follow())
        on_change(self.preset, self._preset)

    @property
    def kind(self) -> type[Strategy]:
        """The strategy chosen."""
        return self._kinds[self.choice.value]

    @property
    def form(self) -> Form:
        """The settings of the strategy chosen."""
        if self.kind not in self._forms:
            self._forms[self.kind] = Form(self.kind, self._edited)
        return self._forms[self.kind]

    def read(self) -> Strategy:
        """The strategy as it stands; raises SettingsError where its settings contradict each other."""
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

    def set_visible(self, visible: bool) -> None:
        """Says whether the panel is on the screen."""
        self._seen = visible
        self._show()

    def update(self, frame: Frame) -> None:
        """Shows below the sliders where the values of the iteration lie, if this strategy decoded it."""
        own = frame.step is not None and frame.step.settings.get("strategy") == self.choice.value
        self._step = frame.step if own else None
        if self._seen:
            self.form.show_values(self._step)

    def _show(self) -> None:
        """The controls of the strategy chosen, if the panel is seen."""
        kind, form = self.kind, self.form
        if not self._seen:
            return
        if kind not in self._grids:
            rest = [name for name in kind.model_fields if name not in main_fields(kind)]
            more = Fold("more-settings", "More settings", lambda: form.cells(rest))
            set_visible(more, visible=bool(rest))
            self._grids[kind] = Box(form.cells(main_fields(kind))).add_class("speclab-fold"), more
        about = (kind.__doc__ or "").strip().partition("\n")[0]
        words = tag("b", escape(self.choice.value)) + " " + tag("span", escape(about), class_="sl-muted")
        set_if_changed(self.about, value=words)
        for place, widget in zip((self._grid, self._more), self._grids[kind], strict=True):
            set_if_changed(place, children=(widget,))
        needs = any(field.is_required() for field in kind.model_fields.values())
        set_visible(self.reset, visible=bool(kind.model_fields) and not needs)
        form.show_values(self._step)

    def _follow(self) -> None:
        self.preset.options = [CUSTOM, *_presets(self.kind)]
        set_visible(self.preset, visible=len(self.preset.options) > 1)
        self._show()
        self._edited()

    def _preset(self, name: str | None) -> None:
        chosen = _presets(self.kind).get(name or CUSTOM)
        if chosen is not None and chosen != self._current():
            self.form.write(chosen)

    def _edited(self) -> None:
        current = self._current()
        named = [name for name, settings in _presets(self.kind).items() if settings == current]
        set_if_changed(self.preset, value=named[0] if named else CUSTOM)
        self._changed()

    def _current(self) -> Strategy | None:
        try:
            return self.read()
        except ValueError:  # half-way through a change
            return None


@cache
def _presets(kind: type[Strategy]) -> dict[str, Strategy]:
    return dict(kind.presets())
