"""Settings to sweep, read from texts such as `max_depth=3:8` and checked against the fields' own bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from speclab.bench.sweeping.space import Axis, Span, Value, Values, bounds, words
from speclab.drafters.base import Strategy
from speclab.errors import SettingsError

Asked = str | Iterable[Value] | None
"""`low:high`, `low:high:step` or `v1,v2` as text; values; None for all that the field itself allows."""

_NUMBER = r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*"
_RANGE = re.compile(f"{_NUMBER}:{_NUMBER}(?::{_NUMBER})?")


def axes(kind: type[Strategy], over: Mapping[str, Asked] | Sequence[str]) -> tuple[Axis, ...]:
    """The fields to sweep, from texts such as `high_confidence=0.7:0.9:0.1`, or from values by name.

    Raises:
        SettingsError: there is no such field, or it does not take such a value.
    """
    if not isinstance(over, Mapping):
        parted = [text.partition("=") for text in over]
        over = {name.strip(): rest if equals else None for name, equals, rest in parted}
        if len(over) < len(parted):
            raise SettingsError("A setting is swept over twice: give all its values in one --over.")
    if not over:
        raise SettingsError(f"Nothing to sweep over: name a setting of {kind.__name__} ({_names(kind)}).")
    return tuple(_axis(kind, name, asked) for name, asked in over.items())


def _axis(kind: type[Strategy], name: str, asked: Asked) -> Axis:
    field = kind.model_fields.get(name)
    if field is None:
        raise SettingsError(f"{kind.__name__} has no setting {name!r}; its settings are: {_names(kind, name)}")
    if asked is None:
        return _own(kind, name, field)
    span = _RANGE.fullmatch(asked) if isinstance(asked, str) and field.annotation in {int, float} else None
    if span is not None:
        return _span(kind, name, *span.groups())
    given = [_value(part) for part in _split(asked)] if isinstance(asked, str) else list(asked)
    values = tuple(dict.fromkeys(_checked(kind, name, value) for value in given))
    if not values:
        raise SettingsError(f"{name} has no values: write {name}=v1,v2 or {name}=low:high:step")
    return Values(name, values)


def _own(kind: type[Strategy], name: str, field: FieldInfo) -> Axis:
    if get_origin(field.annotation) is Literal:
        return Values(name, get_args(field.annotation))
    if field.annotation is bool:
        return Values(name, (False, True))
    low, high = bounds(field)
    if low is None or high is None:
        raise SettingsError(f"{kind.__name__}: {name} has no range of its own: list its values, {name}=v1,v2")
    whole = field.annotation is int
    return Span(name, low, high, Decimal(1) if whole else None, whole)


def _span(kind: type[Strategy], name: str, low: str, high: str, step: str | None) -> Span:
    ends = [_checked(kind, name, _value(text)) for text in (low, high)]
    whole = kind.model_fields[name].annotation is int
    apart = Decimal(step) if step is not None else Decimal(1) if whole else None
    first, last = (Decimal(str(end)) for end in ends)
    if first > last or (apart is not None and (apart <= 0 or (whole and apart % 1))):
        raise SettingsError(f"{name}={low}:{high}{f':{step}' if step else ''} is no range: low:high, or low:high:step")
    return Span(name, first, last, apart, whole)


def _checked(kind: type[Strategy], name: str, value: Any) -> Value:
    """The value as the field keeps it; one that only contradicts another field's default may be tried."""
    try:
        kept: Value = kind(**{name: value}).model_dump()[name]
    except SettingsError as error:
        reason = error.__context__
        if isinstance(reason, ValidationError) and not reason.errors()[0]["loc"]:
            return float(value) if kind.model_fields[name].annotation is float else value
        raise SettingsError(
            f"{error}; it takes {words(kind.model_fields[name])}; the settings are: {_names(kind, name)}"
        ) from None
    return kept


def _names(kind: type[Strategy], like: str = "") -> str:
    near = get_close_matches(like, kind.model_fields)
    return ", ".join([*near, *(name for name in kind.model_fields if name not in near)]) or "none"


def _split(text: str) -> list[str]:
    """The parts between commas, but for commas inside quotes and brackets: `PromptLookup(),DynaTree(max_depth=3)`."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _value(text: str) -> Any:
    try:
        return {"None": None, "True": True, "False": False}[text]
    except KeyError:
        pass
    try:
        return json.loads(text)
    except ValueError:
        return text
