"""The range of a setting: the values that it may have beside a strategy's other settings."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import numpy as np

from speclab.drafters.base import Strategy
from speclab.errors import SettingsError
from speclab.settings import bounds, number_kind

Setting = int | float | str
"""A value of a setting."""
COUNT = 11
"""Number of values of a setting."""
WIDE = 10
"""A range whose ends have at least this ratio is divided by ratios, not by differences."""
SMALLEST = 0.001
"""The smallest probability above 0 in a range, and the distance from an open bound."""


def variable(strategy: Strategy) -> list[str]:
    """The settings with a range: numbers, choices and booleans."""
    return [
        name
        for name in type(strategy).model_fields
        if _choices(strategy, name) or number_kind(type(strategy).model_fields[name])
    ]


def span(strategy: Strategy, name: str) -> tuple[Setting, ...]:
    """About `COUNT` values of a setting within its bounds and those of the other settings, with the
    current value.

    A choice has all its values.

    Raises:
        SettingsError: the setting does not exist, or has only one value.
    """
    if name not in (names := variable(strategy)):
        kind = type(strategy).__name__
        raise SettingsError(
            f"{kind} has no setting {name!r} with a range: choose one of "
            f"{', '.join(names) or 'none'}."
        )
    if choices := _choices(strategy, name):
        return choices
    number = number_kind(type(strategy).model_fields[name]) or int
    now = getattr(strategy, name)
    smallest = 1 if number is int else SMALLEST
    low, high = bounds(type(strategy).model_fields[name], smallest)
    middle = number(16 if isinstance(now, str) else now)
    start = _allowed(strategy, name, middle / 8 if low is None else low, middle)
    stop = _allowed(strategy, name, 8 * middle + 8 if high is None else high, middle)
    if start == stop:
        raise SettingsError(
            f"{type(strategy).__name__}: the other settings leave {name} no value but {now}."
        )
    by_ratio = start >= 0 and stop / (start or smallest) >= WIDE
    spread = (
        np.geomspace(start or smallest, stop, COUNT - 1)
        if by_ratio
        else np.linspace(start, stop, COUNT)
    )
    values = {round(value) if number is int else float(f"{value:.2g}") for value in spread.tolist()}
    ordered = sorted({start, *[value for value in values if start < value < stop], stop, middle})
    return (*ordered, now) if isinstance(now, str) else tuple(ordered)


def _choices(strategy: Strategy, name: str) -> tuple[Any, ...]:
    annotation = type(strategy).model_fields[name].annotation
    if annotation is bool:
        return (False, True)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _allowed(strategy: Strategy, name: str, end: float, now: float) -> float:
    """The end, or the nearest value to it that the other settings allow, found by halving the distance from `now`."""
    step = end - now
    while abs(step) >= (1 if isinstance(now, int) else SMALLEST):
        value = now + (int(step) if isinstance(now, int) else step)
        try:
            strategy.changed(**{name: value})
        except SettingsError:
            step /= 2
        else:
            return value
    return now
