"""Settings as controls: each made from its field (bounds, choices, symbol, help), together a form that reads back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from ipywidgets import (
    HTML,
    BoundedFloatText,
    BoundedIntText,
    Box,
    Checkbox,
    DOMWidget,
    Dropdown,
    FloatSlider,
    HBox,
    IntSlider,
    Text,
    VBox,
)
from pydantic.fields import FieldInfo
from traitlets import Any as AnyTrait

from speclab.drafters.measures import measure_of
from speclab.errors import SettingsError
from speclab.lab.widgets import on_change, set_if_changed
from speclab.settings import Settings, bounds
from speclab.trace.records import Step
from speclab.views.markup import escape, tag
from speclab.views.whatif_tree import strip

WIDEST_SLIDER = 1024
"""Whole numbers with more values than this are typed, not slid."""
LARGEST = 2**53 - 1
"""The largest whole number that a browser holds exactly."""
FINE, COARSE = 0.01, 0.05


def control(name: str, field: FieldInfo) -> DOMWidget:
    """A widget whose `value` is the field's; it starts at the default."""
    kind, optional = _kind(field.annotation)
    shared: dict[str, Any] = {
        "description": title(name, field),
        "tooltip": field.description or "",
        "description_allow_html": True,
    }
    made = Optional_(_plain(kind, field, shared), **shared) if optional else _plain(kind, field, shared)
    if field.default is not None and not field.is_required():
        made.value = shown(made, field.default)
    made.add_class(f"speclab-setting-{name}")
    return made


def shown(widget: DOMWidget, value: Any) -> Any:
    """A value as the control holds it; a text field holds everything as text."""
    return str(value) if isinstance(widget, Text) else value


def slides(widget: DOMWidget) -> bool:
    """Whether a control is a slider of fractions."""
    return isinstance(getattr(widget, "inner", widget), FloatSlider)


def title(name: str, field: FieldInfo) -> str:
    """`high_confidence` with the symbol τ_h: `high confidence <i>τ<b>h</b></i>`; the browser lets no `sub` through."""
    base, _, low = (field.title or "").partition("_")
    symbol = f" <i>{escape(base)}<b>{escape(low)}</b></i>" if low else f" <i>{escape(base)}</i>" if base else ""
    return escape(name.replace("_", " ")) + symbol


class Optional_(HBox):  # noqa: N801  # typing has the name
    """A tick box and a control, of one name; without the tick the value is None."""

    value = AnyTrait(None, allow_none=True)

    def __init__(self, inner: DOMWidget, description: str, tooltip: str, **shared: Any) -> None:
        self.inner = inner
        self.tick = Checkbox(value=False, description=description, tooltip=tooltip, indent=False, **shared)
        inner.disabled = True
        super().__init__([self.tick, inner])
        on_change(self.tick, lambda _: self._read())
        on_change(inner, lambda _: self._read())
        on_change(self, self._write)
        self.add_class("speclab-optional")

    def _read(self) -> None:
        set_if_changed(self.inner, disabled=not self.tick.value)
        self.value = self.inner.value if self.tick.value else None

    def _write(self, value: Any) -> None:
        if value is not None:
            set_if_changed(self.inner, value=value)
        set_if_changed(self.tick, value=value is not None)


def _kind(annotation: Any) -> tuple[Any, bool]:
    """The type without None, and whether None is allowed."""
    if get_origin(annotation) not in {Union, UnionType}:
        return annotation, False
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0], len(kinds) < len(get_args(annotation))


def _plain(kind: Any, field: FieldInfo, shared: dict[str, Any]) -> DOMWidget:
    if get_origin(kind) is Literal:
        return Dropdown(options=get_args(kind), **shared)
    makers = {bool: _flag, int: _whole, float: _real}
    return makers.get(kind, _words)(field, shared)


def _flag(_: FieldInfo, shared: dict[str, Any]) -> DOMWidget:
    return Checkbox(indent=False, **shared)


def _whole(field: FieldInfo, shared: dict[str, Any]) -> DOMWidget:
    low, high = bounds(field, 1)
    if low is not None and high is not None and high - low < WIDEST_SLIDER:
        return IntSlider(min=int(low), max=int(high), **shared)
    return BoundedIntText(min=_or(low, -LARGEST), max=min(_or(high, LARGEST), LARGEST), **shared)


def _real(field: FieldInfo, shared: dict[str, Any]) -> DOMWidget:
    low, high = bounds(field, FINE)
    if low is not None and high is not None and high - low <= 1:
        return FloatSlider(min=low, max=high, step=FINE, readout_format=".2f", **shared)
    return BoundedFloatText(min=_or(low, -LARGEST), max=_or(high, LARGEST), step=COARSE, **shared)


def _words(_: FieldInfo, shared: dict[str, Any]) -> DOMWidget:
    return Text(**shared)


def _or(bound: float | None, otherwise: int) -> float:
    return otherwise if bound is None else bound


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
        self._remember(
            {
                name: self.controls[name].value if field.is_required() else field.default
                for name, field in kind.model_fields.items()
            }
        )
        self._read: Settings | SettingsError | None = None
        self._quiet = False
        self._step: Step | None = None
        self._changed = changed
        self.captions: dict[str, HTML] = {}
        """Below each control: where the values of the iteration shown lie, and what the setting does."""
        for widget in self.controls.values():
            on_change(widget, lambda _: self._edited())
        cells = [self._cell(name) for name in self.controls] if helps else list(self.controls.values())
        super().__init__(cells)
        self.add_class("speclab-form")

    def read(self) -> Any:
        """The settings as they stand; validated once per change.

        Raises:
            SettingsError: they contradict each other.
        """
        if self._read is None:
            try:
                self._read = self.kind(**{name: self._value(name) for name in self.controls})
            except SettingsError as error:
                self._read = error
        if isinstance(self._read, SettingsError):
            raise self._read
        return self._read

    def write(self, settings: Settings | Mapping[str, Any]) -> None:
        """Shows these settings."""
        values = settings.model_dump() if isinstance(settings, Settings) else dict(settings)
        self._quiet = True
        try:
            for name, value in values.items():
                set_if_changed(self.controls[name], value=shown(self.controls[name], value))
            self._remember(values)
        finally:
            self._quiet = False
        self._edited()

    def show_values(self, step: Step | None) -> None:
        """Shows below the sliders where the values of this iteration lie; None shows none."""
        if step is not self._step:
            self._step = step
            self._describe()

    def _edited(self) -> None:
        if not self._quiet:
            self._read = None
            self._describe()
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
        self.captions[name] = HTML(self._words(name))
        return VBox([self.controls[name], self.captions[name]])

    def _describe(self) -> None:
        for name, widget in self.captions.items():
            set_if_changed(widget, value=self._words(name))

    def _words(self, name: str) -> str:
        """The strip of dots of a threshold, and the help of any setting."""
        field, widget = self.kind.model_fields[name], self.controls[name]
        says = tag("span", escape(field.description or ""), class_="sl-help")
        measure = measure_of(field)
        if self._step is None or measure is None or not hasattr(widget, "readout"):
            return says
        return strip(self._step, measure, widget.value, widget.min, widget.max) + says
