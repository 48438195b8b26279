"""A widget for a field of a settings model: bounds, choices, symbol and help are read from the field."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from ipywidgets import (
    BoundedFloatText,
    BoundedIntText,
    Checkbox,
    DOMWidget,
    Dropdown,
    FloatSlider,
    HBox,
    IntSlider,
    Text,
)
from pydantic.fields import FieldInfo
from traitlets import Any as AnyTrait

from speclab.lab.sync import assign, on_change
from speclab.views.tokens import escape

WIDEST_SLIDER = 1024
"""Whole numbers with more values than this are typed, not slid."""
LARGEST = 2**53 - 1
"""The largest whole number that a browser holds exactly."""
FINE, COARSE = 0.01, 0.05


def control(name: str, field: FieldInfo) -> DOMWidget:
    """A widget whose `value` is the field's; it starts at the default."""
    kind, optional = _kind(field.annotation)
    words: dict[str, Any] = {
        "description": title(name, field),
        "tooltip": field.description or "",
        "description_allow_html": True,
    }
    made = Optional_(_plain(kind, field, words), **words) if optional else _plain(kind, field, words)
    if field.default is not None:
        made.value = field.default
    made.add_class(f"speclab-setting-{name}")
    return made


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

    def __init__(self, inner: DOMWidget, description: str, tooltip: str, **words: Any) -> None:
        self.inner = inner
        self.tick = Checkbox(value=False, description=description, tooltip=tooltip, indent=False, **words)
        inner.disabled = True
        super().__init__([self.tick, inner])
        on_change(self.tick, lambda _: self._read())
        on_change(inner, lambda _: self._read())
        on_change(self, self._write)
        self.add_class("speclab-optional")

    def _read(self) -> None:
        assign(self.inner, disabled=not self.tick.value)
        self.value = self.inner.value if self.tick.value else None

    def _write(self, value: Any) -> None:
        if value is not None:
            assign(self.inner, value=value)
        assign(self.tick, value=value is not None)


def _kind(annotation: Any) -> tuple[Any, bool]:
    """The type without None, and whether None is allowed."""
    if get_origin(annotation) not in {Union, UnionType}:
        return annotation, False
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0], len(kinds) < len(get_args(annotation))


def _plain(kind: Any, field: FieldInfo, words: dict[str, Any]) -> DOMWidget:
    if get_origin(kind) is Literal:
        return Dropdown(options=get_args(kind), **words)
    makers = {bool: _flag, int: _whole, float: _real}
    return makers.get(kind, _words)(field, words)


def _flag(_: FieldInfo, words: dict[str, Any]) -> DOMWidget:
    return Checkbox(indent=False, **words)


def _whole(field: FieldInfo, words: dict[str, Any]) -> DOMWidget:
    low, high = bounds(field, 1)
    if low is not None and high is not None and high - low < WIDEST_SLIDER:
        return IntSlider(min=int(low), max=int(high), **words)
    return BoundedIntText(min=_or(low, -LARGEST), max=min(_or(high, LARGEST), LARGEST), **words)


def _real(field: FieldInfo, words: dict[str, Any]) -> DOMWidget:
    low, high = bounds(field, FINE)
    if low is not None and high is not None and high - low <= 1:
        return FloatSlider(min=low, max=high, step=FINE, readout_format=".2f", **words)
    return BoundedFloatText(min=_or(low, -LARGEST), max=_or(high, LARGEST), step=COARSE, **words)


def _words(_: FieldInfo, words: dict[str, Any]) -> DOMWidget:
    return Text(**words)


def bounds(field: FieldInfo, step: float) -> tuple[float | None, float | None]:
    """The smallest and the largest value a widget may take; an open bound moves in by one step."""
    low = high = None
    for rule in field.metadata:
        low = getattr(rule, "ge", low)
        high = getattr(rule, "le", high)
        low = rule.gt + step if hasattr(rule, "gt") else low
        high = rule.lt - step if hasattr(rule, "lt") else high
    return low, high


def _or(bound: float | None, otherwise: int) -> float:
    return otherwise if bound is None else bound
