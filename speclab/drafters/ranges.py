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
FINE = 100
"""Values that are tried."""
SMALLEST = 0.001
"""The smallest probability above 0 in a range, and the distance from an open bound."""


def variable(strategy: Strategy) -> list[str]:
    """The settings with a range: numbers, choices and booleans."""
    names = []
    for name, field in type(strategy).model_fields.items():
        if _choices(strategy, name) or number_kind(field):
            names.append(name)
    return names


def span(strategy: Strategy, name: str) -> tuple[Setting, ...]:
    """About `COUNT` values of a setting within its bounds and those of the other settings, with the
    current value.

    A choice has all its values.

    Raises:
        SettingsError: the setting does not exist.
    """
    names = variable(strategy)
    if name not in names:
        kind = type(strategy).__name__
        raise SettingsError(
            f"{kind} has no setting {name!r} with a range: choose one of "
            f"{', '.join(names) or 'none'}."
        )
    choices = _choices(strategy, name)
    if choices:
        return choices
    field = type(strategy).model_fields[name]
    number = number_kind(field) or int
    now = getattr(strategy, name)
    middle: float = 16
    if not isinstance(now, str):
        middle = number(now)
    if number is int:
        start, stop = bounds(field, 1)
    else:
        start, stop = bounds(field, SMALLEST)
    if start is None:
        start = middle / 8
    if stop is None:
        stop = 8 * middle + 8
    if start >= 0 and stop >= WIDE * (start or SMALLEST):
        spread = np.geomspace(start or SMALLEST, stop, FINE)
    else:
        spread = np.linspace(start, stop, FINE)
    fine = {start, middle}
    fine.update(float(f"{value:.2g}") for value in spread)
    allowed = [value for value in sorted(map(number, fine)) if _accepts(strategy, name, value)]
    picked = np.linspace(0, len(allowed) - 1, COUNT).round().astype(int)
    shown: list[Setting] = sorted({allowed[index] for index in picked} | {middle})
    if isinstance(now, str):
        shown.append(now)
    return tuple(shown)


def _choices(strategy: Strategy, name: str) -> tuple[Any, ...]:
    annotation = type(strategy).model_fields[name].annotation
    if annotation is bool:
        return (False, True)
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return ()


def _accepts(strategy: Strategy, name: str, value: float) -> bool:
    """Whether the other settings allow a value."""
    try:
        strategy.changed(**{name: value})
    except SettingsError:
        return False
    return True
