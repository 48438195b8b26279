"""What a sweep tries: values of a strategy's fields, read from texts and checked against the fields' own bounds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from speclab.drafters.base import Strategy
from speclab.errors import SettingsError

if TYPE_CHECKING:
    from optuna import Trial

Value = bool | int | float | str | None
Asked = str | Iterable[Value] | None
"""`low:high`, `low:high:step` or `v1,v2` as text; values; None for all that the field itself allows."""

LARGEST_GRID = 10_000
"""Settings of a grid; a default of ours, so that a step left out is noticed before the sweep and not days later."""

_LOG_FROM = 100
"""A range of positive numbers whose ends are so many times apart is searched by order of magnitude; ours."""

_NUMBER = r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*"
_RANGE = re.compile(f"{_NUMBER}:{_NUMBER}(?::{_NUMBER})?")


@dataclass(frozen=True, slots=True)
class Values:
    """A field, and the values to try."""

    name: str
    values: tuple[Value, ...]

    def listed(self) -> Values:
        """Itself: what a grid takes."""
        return self

    def __contains__(self, value: Value) -> bool:
        return value in self.values

    def suggest(self, trial: Trial) -> Value:
        """The value of this trial."""
        chosen: Value = trial.suggest_categorical(self.name, self.values)
        return chosen

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


@dataclass(frozen=True, slots=True)
class Span:
    """A field, and a range of numbers with both ends; without a step, every number between them."""

    name: str
    low: Decimal
    high: Decimal
    step: Decimal | None
    whole: bool

    def listed(self) -> Values:
        """The numbers of the range one by one.

        Raises:
            SettingsError: there is no step.
        """
        if self.step is None:
            raise SettingsError(
                f"A grid over {self.name} needs a step, as in {self.name}={self.low}:{self.high}:0.1, or a list of "
                "values; or take --study optuna"
            )
        count = int((self.high - self.low) / self.step) + 1
        return Values(self.name, tuple(self._number(self.low + place * self.step) for place in range(count)))

    def __contains__(self, value: Value) -> bool:
        if not isinstance(value, int | float):
            return False
        place = Decimal(repr(value)) - self.low
        return 0 <= place <= self.high - self.low and (self.step is None or place % self.step == 0)

    def suggest(self, trial: Trial) -> Value:
        """The value of this trial."""
        log = self.step in {None, 1} and self.low > 0 and self.high >= _LOG_FROM * self.low
        if self.whole:
            return trial.suggest_int(self.name, int(self.low), int(self.high), step=int(self.step or 1), log=log)
        step = float(self.step) if self.step else None
        value = trial.suggest_float(self.name, float(self.low), float(self.high), step=step, log=log)
        if self.step is None:
            return value
        # 0.8, and not 0.7999999999999999: it is to be pasted as code.
        return float(self.low + round((Decimal(value) - self.low) / self.step) * self.step)

    def _number(self, number: Decimal) -> int | float:
        return int(number) if self.whole else float(number)

    def __str__(self) -> str:
        return f"{self.low}:{self.high}" + (f":{self.step}" if self.step else "")


Axis = Values | Span


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


def grid(kind: type[Strategy], listed: Sequence[Values]) -> list[dict[str, Value]]:
    """Every combination but the default, which a sweep measures anyhow.

    Raises:
        SettingsError: they are too many.
    """
    size = math.prod(len(axis.values) for axis in listed)
    if size > LARGEST_GRID:
        raise SettingsError(
            f"That grid has {size:,} settings: give wider steps or fewer values, or --study optuna with --trials"
        )
    names = [axis.name for axis in listed]
    points = [dict(zip(names, values, strict=True)) for values in product(*(axis.values for axis in listed))]
    default = kind().model_dump()
    return [point for point in points if any(value != default[name] for name, value in point.items())]


def bounds(field: FieldInfo) -> tuple[Decimal | None, Decimal | None]:
    """The smallest and the largest number of a field; an open bound of a float moves in by one rounding."""
    low = high = None
    for mark in field.metadata:
        for name, toward in (("ge", 0), ("gt", 1), ("le", 0), ("lt", -1)):
            bound = getattr(mark, name, None)
            if bound is None:
                continue
            if toward:
                bound = bound + toward if field.annotation is int else math.nextafter(bound, toward * math.inf)
            low, high = (Decimal(repr(bound)), high) if name[0] == "g" else (low, Decimal(repr(bound)))
    return low, high


def words(field: FieldInfo) -> str:
    """What a field takes: `0 to 1`, or its choices."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(map(str, get_args(field.annotation)))
    if field.annotation is bool:
        return "True, False"
    low, high = bounds(field)
    return "any" if low is None and high is None else f"{float(low or 0):.6g} to {float(high or math.inf):.6g}"


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
