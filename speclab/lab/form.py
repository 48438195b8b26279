"""Settings as controls: each made from its field (bounds, choices, symbol, help), together a form that reads back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import log10
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from ipywidgets import HTML, Box, Checkbox, DOMWidget, Dropdown, FloatText, HBox, IntSlider, IntText, Text, VBox
from pydantic.fields import FieldInfo
from traitlets import Any as AnyTrait
from traitlets import Bool, dlink

from speclab.drafters.measures import measure_of, small_matters
from speclab.errors import SettingsError
from speclab.lab.widgets import on_change, set_if_changed, set_visible, toggle
from speclab.settings import Settings, bounds
from speclab.trace.records import Step
from speclab.views.markup import escape, tag
from speclab.views.whatif_tree import strip

WIDEST_SLIDER = 1024
"""Whole numbers with more values than this are typed, not slid."""
NOTCHES = 200
SMALLEST = 0.001
"""The smallest probability that a slider gives, and how far a slider of probabilities stays from an open bound."""
MAIN = 3
"""Settings that are seen at once; the others are folded."""


class Probability(HBox):
    """A slider of probabilities, and a box to type one in; `value` is a number, or a text that is none.

    A logarithmic one has .005 as far from .05 as that from .5, and its first notch is 0 where 0 is allowed.
    """

    value = AnyTrait(0.0)
    disabled = Bool()

    def __init__(self, low: float, high: float, *, logarithmic: bool, description: str, tooltip: str) -> None:
        self.min, self.max, self._logarithmic = low, high, logarithmic
        self._zero = 0 if low else 1  # a notch of its own: no logarithm has it
        self.slider = IntSlider(
            min=0, max=NOTCHES, readout=False, description=description, tooltip=tooltip, description_allow_html=True
        )
        self.box = Text(value="0", tooltip=f"{tooltip}; type any value")
        super().__init__([self.slider, self.box], _dom_classes=["speclab-probability"])
        on_change(self.slider, self._slid)
        on_change(self.box, self._typed)
        on_change(self, self._written)
        for part in (self.slider, self.box):
            dlink((self, "disabled"), (part, "disabled"))

    def place(self, value: float) -> float:
        """How far from the left end a value lies, 0 to 1."""
        if not self._logarithmic:
            return (value - self.min) / (self.max - self.min)
        if value < SMALLEST:
            return 0.0
        return 1 - (1 - self._zero / NOTCHES) * log10(value) / log10(SMALLEST)

    def _at(self, notch: int) -> float:
        """The value of a notch, three significant digits."""
        if not self._logarithmic:
            value = self.min + (self.max - self.min) * notch / NOTCHES
        else:
            value = SMALLEST ** ((NOTCHES - notch) / (NOTCHES - self._zero)) if notch >= self._zero else 0.0
        return min(max(float(f"{value:.3g}"), self.min), self.max)

    def _notch(self) -> int | None:
        return round(NOTCHES * min(max(self.place(self.value), 0), 1)) if isinstance(self.value, float | int) else None

    def _slid(self, notch: int) -> None:
        if notch != self._notch():
            self.value = self._at(notch)

    def _typed(self, text: str) -> None:
        if text != _written(self.value):
            self.value = _number(text)

    def _written(self, value: Any) -> None:
        if _number(self.box.value) != value:  # else it was typed there
            set_if_changed(self.box, value=_written(value))
        notch = self._notch()
        if notch is not None:
            set_if_changed(self.slider, value=notch)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | int) else str(value)


def control(name: str, field: FieldInfo) -> DOMWidget:
    """A widget whose `value` is the field's; it starts at the default."""
    shared: dict[str, Any] = {"description": title(name, field), "tooltip": field.description or ""}
    made = _plain(field, shared)
    if not isinstance(made, Probability):
        made.description_allow_html = True
    if field.default is not None and not field.is_required():
        made.value = shown(made, field.default)
    made.add_class(f"speclab-setting-{name}")
    return made


def _plain(field: FieldInfo, shared: dict[str, Any]) -> DOMWidget:
    kind = field.annotation
    if get_origin(kind) is Literal:
        return Dropdown(options=get_args(kind), **shared)
    if kind is bool:
        return Checkbox(indent=False, **shared)
    if kind is int:
        low, high = bounds(field)
        slid = low is not None and high is not None and high - low < WIDEST_SLIDER
        return IntSlider(min=int(low or 0), max=int(high or 0), **shared) if slid else IntText(**shared)
    if kind is float:
        low, high = bounds(field, SMALLEST)
        if low is not None and high is not None and low >= 0 and high <= 1:
            return Probability(low, high, logarithmic=small_matters(field), **shared)
        return FloatText(step=0.1, **shared)
    return Text(placeholder="not set" if _optional(field) else "", **shared)


def _optional(field: FieldInfo) -> bool:
    """Whether the field may be None, which is written as nothing."""
    return NoneType in get_args(field.annotation)


def shown(widget: DOMWidget, value: Any) -> Any:
    """A value as the control holds it; a text field holds everything as text, None as nothing."""
    return ("" if value is None else str(value)) if isinstance(widget, Text) else value


def title(name: str, field: FieldInfo) -> str:
    """`high_confidence` with the symbol τ_h: `high confidence <i>τ<b>h</b></i>`; the browser lets no `sub` through."""
    base, _, low = (field.title or "").partition("_")
    symbol = f" <i>{escape(base)}<b>{escape(low)}</b></i>" if low else f" <i>{escape(base)}</i>" if base else ""
    return escape(name.replace("_", " ")) + symbol


def main_fields(kind: type[Settings]) -> list[str]:
    """The settings to show first: a threshold of each measure, then what the paper has a symbol for, then the rest."""
    measures: set[Any] = {None}
    rank = {}
    for name, field in kind.model_fields.items():
        measure = measure_of(field)
        rank[name] = 0 if measure not in measures else 1 if field.title else 2
        measures.add(measure)
    return sorted(sorted(rank, key=rank.__getitem__)[:MAIN], key=list(rank).index)


class Fold(VBox):
    """A button, and below it what it unfolds, which is made when it is first wanted."""

    def __init__(self, name: str, description: str, make: Callable[[], Iterable[DOMWidget]]) -> None:
        self.toggle = toggle(name, description, description, self._show)
        self._make, self.content = make, Box().add_class("speclab-fold")
        super().__init__([self.toggle])

    def _show(self, wanted: bool) -> None:
        if wanted and not self.content.children:
            self.content.children = tuple(self._make())
            self.children = (self.toggle, self.content)
        set_visible(self.content, wanted)


class _Controls(dict[str, DOMWidget]):
    """Controls by name, each made when it is first asked for: a widget that nobody sees costs the browser as much."""

    def __init__(self, make: Callable[[str], DOMWidget]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> DOMWidget:
        self[name] = self._make(name)
        return self[name]


class Form:
    """The settings of `kind` as data and as controls; `read` gives them back, checked."""

    def __init__(self, kind: type[Settings], changed: Callable[[], None]) -> None:
        self.kind = kind
        self.controls = _Controls(self._control)
        self.captions: dict[str, HTML] = {}
        """Below a control: where the values of the iteration shown lie, and what the setting does."""
        self._changed = changed
        self._quiet = False
        self._read: Settings | SettingsError | None = None
        self._step: Step | None = None
        self._values: dict[str, Any] = {}
        required = [name for name, field in kind.model_fields.items() if field.is_required()]
        self._values |= {name: self.controls[name].value for name in required} if required else kind().model_dump()
        for name, field in kind.model_fields.items():
            self._values.setdefault(name, field.default)

    def read(self) -> Any:
        """The settings as they stand, validated once per change; raises SettingsError where they cannot be."""
        if self._read is None:
            try:
                self._read = self.kind(**self._values)
            except SettingsError as error:
                self._read = error
        if isinstance(self._read, SettingsError):
            raise self._read
        return self._read

    def write(self, settings: Settings | Mapping[str, Any]) -> None:
        """Shows these settings."""
        self._values.update(settings.model_dump() if isinstance(settings, Settings) else settings)
        self._quiet = True
        try:
            for name, widget in self.controls.items():
                set_if_changed(widget, value=shown(widget, self._values[name]))
        finally:
            self._quiet = False
        self._edited()

    def cells(self, names: list[str]) -> list[DOMWidget]:
        """Each control with its caption."""
        for name in names:
            self.captions[name] = HTML(self._words(name))
        return [VBox([self.controls[name], self.captions[name]]) for name in names]

    def show_values(self, step: Step | None) -> None:
        """Shows below the sliders where the values of this iteration lie; None shows none."""
        if step is not self._step:
            self._step = step
            self._describe()

    def _control(self, name: str) -> DOMWidget:
        made = control(name, self.kind.model_fields[name])
        if name in self._values:
            made.value = shown(made, self._values[name])
        on_change(made, lambda value: self._set(name, value))
        return made

    def _set(self, name: str, value: Any) -> None:
        if not self._quiet:
            none = value == "" and _optional(self.kind.model_fields[name])
            self._values[name] = None if none else value
            self._edited()

    def _edited(self) -> None:
        self._read = None
        self._describe()
        self._changed()

    def _describe(self) -> None:
        for name, widget in self.captions.items():
            set_if_changed(widget, value=self._words(name))

    def _words(self, name: str) -> str:
        """The strip of dots of a threshold, and the help of any setting."""
        field, widget = self.kind.model_fields[name], self.controls[name]
        says = tag("span", escape(field.description or ""), class_="sl-help")
        measure = measure_of(field)
        low, high = getattr(widget, "min", 0), getattr(widget, "max", 0)
        if self._step is None or measure is None or not high or not isinstance(widget.value, float | int):
            return says
        place = widget.place if isinstance(widget, Probability) else lambda value: (value - low) / (high - low)
        return strip(self._step, measure, widget.value, place) + says
