"""All settings of one model as controls in a grid, with presets, reset, and one settings object out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ipywidgets import HTML, Box, DOMWidget, VBox

from speclab.lab.controls import FINE, control, slides
from speclab.lab.sync import assign, on_change
from speclab.settings import Settings
from speclab.views.markup import tag
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
        self._changed = changed
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
        self._changed()

    def _edited(self) -> None:
        if not self._quiet:
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
        said = self.kind.model_fields[name].description or ""
        return VBox([self.controls[name], HTML(tag("span", escape(said), class_="sl-help"))])
