"""Bad arguments of the theory, each refused in one sentence."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from speclab.errors import SettingsError
from speclab.tree import Floats


def check_rate(name: str, value: float) -> None:
    """Refuses what is not a rate, 0…1."""
    if not 0 <= value <= 1:
        raise SettingsError(f"{name} is {value}, not a rate: give accepted over drafted tokens, between 0 and 1.")


def check_rates(name: str, values: ArrayLike) -> Floats:
    """`[n]` float64 rates by rank, at least one."""
    rates = _row(name, values)
    if not rates.size:
        raise SettingsError(f"{name} is empty: give the acceptance rate of the first child, then of the second, ….")
    for rank, rate in enumerate(rates.tolist()):
        check_rate(f"{name}[{rank}]", rate)
    return rates


def check_amount(name: str, value: float, least: float = 0) -> None:
    """Refuses what is not a finite number of at least `least`."""
    if not (math.isfinite(value) and value >= least):
        raise SettingsError(f"{name} is {value}: give a finite number of at least {least}.")


def check_amounts(name: str, values: ArrayLike) -> Floats:
    """`[n]` float64, each finite and at least 0."""
    amounts = _row(name, values)
    for place in np.flatnonzero(~(np.isfinite(amounts) & (amounts >= 0)))[:1].tolist():
        check_amount(f"{name}[{place}]", float(amounts[place]))
    return amounts


def check_count(name: str, value: int, least: int = 0) -> None:
    """Refuses what is not a whole number of at least `least`."""
    try:
        fits = operator.index(value) >= least
    except TypeError:
        fits = False
    if not fits:
        raise SettingsError(f"{name} is {value}: give a whole number of at least {least}.")


def check_counts(name: str, values: Sequence[int]) -> None:
    """Refuses an empty list, and what `check_count` refuses."""
    if not len(values):
        raise SettingsError(f"{name} is empty: give at least one whole number to choose from.")
    for place, value in enumerate(values):
        check_count(f"{name}[{place}]", value)


def _row(name: str, values: ArrayLike) -> Floats:
    try:
        row = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        row = np.empty((0, 0))
    if row.ndim != 1:
        raise SettingsError(f"{name} is not a row of numbers: give a flat list.")
    return row
