"""Which strategy, which of its presets, and its settings."""

from __future__ import annotations

from collections.abc import Callable

from ipywidgets import HTML, Button, Dropdown, HBox, VBox

from speclab.drafters import strategies
from speclab.drafters.base import Strategy
from speclab.lab.form import Form
from speclab.lab.sync import assign, on_change, show
from speclab.trace.records import Step
from speclab.views.markup import tag
from speclab.views.tokens import escape

CUSTOM = "custom"


class StrategyPicker:
    """`choice` and `preset` stand in the header, `panel` holds the settings of the strategy chosen."""

    def __init__(self, strategy: Strategy, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._forms: dict[str, Form] = {}
        self._step: Step | None = None
        self.choice = Dropdown(options=list(strategies()), description="Strategy", tooltip="how candidates are drafted")
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
        return strategies()[self.choice.value]

    @property
    def form(self) -> Form:
        """The controls of the strategy chosen; made when it is first chosen."""
        name = self.choice.value
        if name not in self._forms:
            self._forms[name] = Form(self.kind, self._edited)
        return self._forms[name]

    def show(self, step: Step | None) -> None:
        """Shows where the values of an iteration lie, below the sliders of the strategy that decoded it."""
        self._step = step
        own = step is not None and step.settings.get("strategy") == self.choice.value
        self.form.show(step if own else None)

    def read(self) -> Strategy:
        """The strategy as it stands.

        Raises:
            SettingsError: its settings contradict each other.
        """
        return self.form.read()  # type: ignore[no-any-return]

    def write(self, strategy: Strategy) -> None:
        """Shows this strategy."""
        assign(self.choice, value=type(strategy).__name__)
        self._follow()
        self.form.write(strategy)

    def _follow(self) -> None:
        form, said = self.form, (self.kind.__doc__ or "").strip().splitlines()[0]
        self.about.value = tag("b", escape(self.choice.value)) + " " + tag("span", escape(said), class_="sl-muted")
        self.grid.children = [form]
        show(self.reset, visible=bool(form.controls))
        self.preset.options = [CUSTOM, *self.kind.presets()]
        show(self.preset, visible=bool(self.kind.presets()))
        self.show(self._step)
        self._edited()

    def _preset(self, name: str | None) -> None:
        chosen = self.kind.presets().get(name or CUSTOM)
        if chosen is not None and chosen != self._current():
            self.form.write(chosen)

    def _edited(self) -> None:
        current = self._current()
        named = [name for name, settings in self.kind.presets().items() if settings == current]
        assign(self.preset, value=named[0] if named else CUSTOM)
        self._changed()

    def _current(self) -> Strategy | None:
        try:
            return self.read()
        except ValueError:  # half-way through a change
            return None
