"""The tab Settings: a strategy's sliders; the settings that decided this iteration come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from html import escape
from itertools import pairwise
from math import log10
from operator import itemgetter
from typing import Annotated, Any, Literal, get_args, get_origin

from ipywidgets import (
    HTML,
    Box,
    Button,
    Checkbox,
    DOMWidget,
    Dropdown,
    FloatSlider,
    FloatText,
    HBox,
    IntSlider,
    IntText,
    SelectionSlider,
    ToggleButton,
    VBox,
)
from pydantic.fields import FieldInfo

from speclab.drafters.base import Strategy, measure_of, small_matters
from speclab.errors import SettingsError
from speclab.lab.state import LabState
from speclab.settings import bounds
from speclab.trace.records import Step
from speclab.views.preview import dots

FIRST = 6
"""Settings that are visible at once; the others are folded."""
WIDE = 64
"""If an integer has more values than this, the slider offers some of them at growing distances."""
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)
SMALL = (
    0.0,
    *(round(digit * 10.0**power, 4) for power in (-3, -2, -1) for digit in (1, 1.5, 2, 3, 4, 5, 7)),
    1.0,
)
"""Path probabilities, which are mostly small."""


def binding(step: Step | None, strategy: Strategy) -> list[str]:
    """The settings of a strategy: first those that decided most often in this iteration, then those with a symbol."""
    fields = type(strategy).model_fields
    counts: Counter[str] = Counter()
    for event in step.events if step is not None else ():
        counts[str(event.values.get("setting"))] += 1
    return sorted(fields, key=lambda name: (-counts[name], not fields[name].title))


def control(name: str, field: FieldInfo, value: Any) -> DOMWidget | None:
    """A widget for a field; None if only Python can set it."""
    title = f"{name.replace('_', ' ')} {field.title or ''}".strip()
    kind = field.annotation
    shared = {"description": title, "tooltip": field.description or ""}
    low, high = bounds(field, 0.001 if kind is float else None)
    parts = [
        get_args(part)[0] if get_origin(part) is Annotated else part for part in get_args(kind)
    ]
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    wide = kind is int and low is not None and high is not None and high - low > WIDE
    if wide or (int in parts and words):  # a number or a word, such as "auto"
        numbers = {one for one in COUNTS if (low or 1) <= one <= (high or COUNTS[-1])}
        numbers |= {value} if isinstance(value, int) else set()
        options = [*((word, word) for word in words), *((str(one), one) for one in sorted(numbers))]
        return SelectionSlider(options=options, value=value, **shared)
    if get_origin(kind) is Literal:
        return Dropdown(options=get_args(kind), value=value, **shared)
    if kind is bool:
        return Checkbox(value=value, indent=False, **shared)
    if kind is int and low is not None and high is not None:
        return IntSlider(value, min=int(low), max=int(high), description_allow_html=True, **shared)
    if kind is int:
        return IntText(value, **shared)
    if kind is float and low is not None and high is not None and low >= 0 and high <= 1:
        if not small_matters(field):
            return FloatSlider(
                value, min=low, max=high, step=0.01, description_allow_html=True, **shared
            )
        inside = [one for one in SMALL if low <= one <= high]
        options = [(f"{one:g}", one) for one in sorted({*inside, value})]
        return SelectionSlider(options=options, value=value, **shared)
    return FloatText(value, step=0.1, **shared) if kind is float else None


def share(widget: DOMWidget, value: float) -> float:
    """The position of a value on a slider, 0 at the left to 1."""
    if not isinstance(widget, SelectionSlider):
        return float((value - widget.min) / max(widget.max - widget.min, 1e-9))
    words = [option[1] for option in widget.options if isinstance(option[1], str)]
    values: list[float] = [option[1] for option in widget.options][len(words) :]
    if value <= values[0]:
        return 0.0
    for at, (below, above) in enumerate(pairwise(values)):
        if value <= above:
            base = max(below, above / 10)  # 0 is one notch away
            part = (log10(max(value, base)) - log10(base)) / max(log10(above) - log10(base), 1e-9)
            return float((at + part) / (len(values) - 1))
    return 1.0


SLIDERS = (IntSlider, FloatSlider, SelectionSlider)


class Sliders(VBox):
    """The sliders of the wanted strategy; Apply decodes the current iteration again with them.

    `edited`: called after a change. `apply`, `curve`: called by the buttons; `curve` receives the
    setting's name.
    """

    def __init__(
        self,
        state: LabState,
        edited: Callable[[], None],
        apply: Callable[[], Any],
        curve: Callable[[str], Any],
    ) -> None:
        super().__init__(_dom_classes=["speclab-settings"])
        self._state = state
        self._edited = edited
        self._curve = curve
        self._apply = apply
        self.controls: dict[str, DOMWidget] = {}
        self._captions: dict[str, HTML] = {}
        self._cells: dict[str, VBox] = {}
        self._kind: type[Strategy] | None = None
        self._writing = False

    def fill(self) -> None:
        """Build the sliders when the tab is first opened; from then on they follow the wanted settings."""
        if not hasattr(self, "apply"):
            self.apply = Button(
                description="Apply", button_style="primary", tooltip="decode this iteration again"
            )
            self.apply.add_class("speclab-apply")
            self.reset = Button(description="Reset", tooltip="back to the applied settings")
            self.more = ToggleButton(
                description="More settings", tooltip="settings that decided nothing here"
            )
            self.note = HTML(_dom_classes=["speclab-form-error"])
            self._grid = Box(_dom_classes=["speclab-sliders"])
            self.children = [self._grid, HBox([self.apply, self.reset, self.more]), self.note]
            self.apply.on_click(lambda _: self._apply())
            self.reset.on_click(lambda _: self._restore())
            self.more.observe(lambda _: self._arrange(), names="value")
            self._state.observe(lambda _: self._write(), names="wanted")
            self._state.observe(lambda _: self._write_error(), names="error")
            self._state.observe(lambda _: self._describe(), names=["trace", "cursor"])
        self._write()

    def free(self) -> None:
        """Close the cells; folded ones are in no box."""
        for cell in self._cells.values():
            close(cell)
        self._cells = {}

    def _write(self) -> None:
        wanted = self._state.wanted
        if self._writing:
            return
        if type(wanted.strategy) is not self._kind:
            self._build(wanted.strategy)
        self._writing = True
        try:
            for name, widget in self.controls.items():
                value = getattr(wanted.strategy, name)
                if isinstance(widget, SelectionSlider) and value not in [
                    option[1] for option in widget.options
                ]:
                    words = [option for option in widget.options if isinstance(option[1], str)]
                    numbers = [
                        option for option in widget.options if not isinstance(option[1], str)
                    ]
                    widget.options = [
                        *words,
                        *sorted([*numbers, (f"{value:g}", value)], key=itemgetter(1)),
                    ]
                widget.value = value
        finally:
            self._writing = False
        self._describe()

    def _build(self, strategy: Strategy) -> None:
        for cell in self._cells.values():
            close(cell)
        self._kind = type(strategy)
        self.controls = {}
        self._captions = {}
        self._cells = {}
        for name, field in self._kind.model_fields.items():
            widget = control(name, field, getattr(strategy, name))
            if widget is None:
                continue
            widget.add_class(f"speclab-setting-{name}")
            widget.observe(lambda change, name=name: self._set(name, change["new"]), names="value")
            self.controls[name] = widget
            self._captions[name] = HTML()
            row: list[DOMWidget] = [widget]
            if not isinstance(widget, Checkbox):
                button = Button(
                    description="curve",
                    tooltip=f"tokens per iteration over {name.replace('_', ' ')}",
                )
                button.add_class("speclab-curve-button")
                button.on_click(lambda _, name=name: self._curve(name))
                row.append(button)
            self._cells[name] = VBox([HBox(row), self._captions[name]])
        self._arrange()

    def _arrange(self) -> None:
        wanted = self._state.wanted
        order = [
            name for name in binding(self._state.step, wanted.strategy) if name in self.controls
        ]
        shown = order if self.more.value else order[:FIRST]
        self._grid.children = [self._cells[name] for name in shown]
        self.more.layout.display = None if len(order) > FIRST else "none"

    def _set(self, name: str, value: Any) -> None:
        if self._writing:
            return
        state = self._state
        try:
            # contradicting ones are both kept
            values = {one: widget.value for one, widget in self.controls.items()}
            wanted = state.wanted.changed(state.wanted.strategy.changed(**values | {name: value}))
        except SettingsError as error:
            state.fail("settings", str(error))
        else:
            if state.where == "settings":
                state.fail("", "")
            self._writing = True  # do not write to the slider being dragged
            try:
                state.wanted = wanted
            finally:
                self._writing = False
            self._describe()
        self._edited()

    def _restore(self) -> None:
        if self._state.applied is not None:
            if self._state.where == "settings":
                self._state.fail("", "")
            self._state.wanted = self._state.wanted.changed(self._state.applied.strategy)
            self._edited()

    def _describe(self) -> None:
        """The iteration's values as dots under each slider, and the setting's help."""
        step = self._state.step
        state = self._state
        kind = type(state.wanted.strategy)
        own = step is not None and step.settings.get("strategy") == kind.__name__
        for name, caption in self._captions.items():
            field = kind.model_fields[name]
            widget = self.controls[name]
            measure = measure_of(field)
            words = f'<div class="speclab-help">{escape(field.description or "")}</div>'
            slid = isinstance(widget, SLIDERS) and not isinstance(widget.value, str)
            if step is not None and own and slid and measure is not None:
                words = dots(step, measure, widget.value, partial(share, widget)) + words
            if caption.value != words:
                caption.value = words
        self.apply.disabled = state.step is None

    def _write_error(self) -> None:
        own = self._state.error if self._state.where == "settings" else ""
        self.note.value = f'<span role="alert">{escape(own)}</span>' if own else ""


def close(widget: DOMWidget) -> None:
    """Close a widget with its children, layouts and styles, which the kernel would keep otherwise."""
    for child in getattr(widget, "children", ()):
        close(child)
    for part in ("style", "layout"):
        if getattr(widget, part, None) is not None:
            getattr(widget, part).close()
    widget.close()
