"""All settings of one model as controls in a grid, with presets, reset, and one settings object out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ipywidgets import HTML, Box, DOMWidget, VBox

from speclab.drafters.measures import measure_of
from speclab.lab.controls import FINE, control, slides
from speclab.lab.sync import assign, on_change
from speclab.settings import Settings
from speclab.trace.records import Step
from speclab.views.markup import tag
from speclab.views.strip import strip
from speclab.views.tokens import escape


class Form(Box):
    """The settings of `kind`; `read` gives them back, checked.

    Args:
        kind: a settings model.
        changed: called after a person changed anything.
        helps: whether each control says below it what it does; else its tooltip does.
    """

    def __init__(self, kind: type[Settings], changed: Callable[[], None], *, helps: bool = True) -> None:
        self.kind = kind
        self.controls: dict[str, DOMWidget] = {name: control(name, field) for name, field in kind.model_fields.items()}
        self._set: dict[str, tuple[Any, Any]] = {}
        """What was set last, and what the control made of it."""
        self._remember({name: field.default for name, field in kind.model_fields.items()})
        self._quiet = False
        self._step: Step | None = None
        self._changed = changed
        self.said: dict[str, HTML] = {}
        """Below each control: where the values of the iteration shown lie, and what the setting does."""
        for widget in self.controls.values():
            on_change(widget, lambda _: self._edited())
        cells = [self._cell(name) for name in self.controls] if helps else list(self.controls.values())
        super().__init__(cells)
        self.add_class("speclab-form")

    def read(self) -> Any:
        """The settings as they stand.

        Raises:
            SettingsError: they contradict each other.
        """
        return self.kind(**{name: self._value(name) for name in self.controls})

    def write(self, settings: Settings | Mapping[str, Any]) -> None:
        """Shows these settings."""
        values = settings.model_dump() if isinstance(settings, Settings) else dict(settings)
        self._quiet = True
        try:
            for name, value in values.items():
                assign(self.controls[name], value=value)
            self._remember(values)
        finally:
            self._quiet = False
        self._say()
        self._changed()

    def show(self, step: Step | None) -> None:
        """Shows below the sliders where the values of this iteration lie; None shows none."""
        self._step = step
        self._say()

    def _edited(self) -> None:
        if not self._quiet:
            self._say()
            self._changed()

    def _remember(self, values: Mapping[str, Any]) -> None:
        self._set.update({name: (value, self.controls[name].value) for name, value in values.items()})

    def _value(self, name: str) -> Any:
        """What a control says; what was set stands while the control does, give or take a browser's rounding."""
        value, (written, shown) = self.controls[name].value, self._set[name]
        if value == shown:
            return written
        if not isinstance(value, float):
            return value
        near = isinstance(written, float) and abs(value - written) <= FINE / 2
        return written if near and slides(self.controls[name]) else round(value, 9)

    def _cell(self, name: str) -> DOMWidget:
        self.said[name] = HTML(self._words(name))
        return VBox([self.controls[name], self.said[name]])

    def _say(self) -> None:
        for name, widget in self.said.items():
            assign(widget, value=self._words(name))

    def _words(self, name: str) -> str:
        """The strip of dots of a threshold, and the help of any setting."""
        field, widget = self.kind.model_fields[name], self.controls[name]
        says = tag("span", escape(field.description or ""), class_="sl-help")
        measure = measure_of(field)
        if self._step is None or measure is None or not hasattr(widget, "readout"):
            return says
        return strip(self._step, measure, widget.value, widget.min, widget.max) + says
