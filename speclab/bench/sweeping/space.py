"""What a sweep tries: values and ranges of a strategy's fields, and every combination of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from speclab.drafters.base import Strategy
from speclab.errors import SettingsError

if TYPE_CHECKING:
    from optuna import Trial

Value = bool | int | float | str | None
LARGEST_GRID = 10_000
"""Settings of a grid; a default of ours, so that a step left out is noticed before the sweep and not days later."""

_LOG_FROM = 100
"""A range of positive numbers whose ends are so many times apart is searched by order of magnitude; ours."""


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
        # It is to be pasted as code: 0.007036, and not 0.00703573702872215; 0.8, and not 0.7999999999999999.
        if self.step is None:
            short = float(f"{value:.4g}")
            return short if short in self else value
        return float(self.low + round((Decimal(value) - self.low) / self.step) * self.step)

    def _number(self, number: Decimal) -> int | float:
        return int(number) if self.whole else float(number)

    def __str__(self) -> str:
        return f"{self.low}:{self.high}" + (f":{self.step}" if self.step else "")


Axis = Values | Span


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
