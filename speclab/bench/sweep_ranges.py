"""What a sweep varies: `max_depth=3:8`, read as an Optuna distribution within the bounds of the strategy's field."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import product
from typing import Any, Literal, cast, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, SettingsError
from speclab.settings import bounds, parse_value

try:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
except ImportError:
    raise MeasurementError("A sweep needs optuna, which is not installed: pip install 'speclab[bench]'.") from None

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
Value = bool | int | float | str | None
Asked = str | Iterable[Value] | None
"""`low:high`, `low:high:step` or `v1,v2` as text; values; None for all that the field itself allows."""

LARGEST_GRID = 10_000
"""Settings of a grid; so that a forgotten step is noticed before the sweep and not days later."""

_NUMBER = r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*"
_RANGE = re.compile(f"{_NUMBER}:{_NUMBER}(?::{_NUMBER})?")
_PARTS = re.compile(r"""(?:"[^"]*"|'[^']*'|\([^()]*\)|\[[^\[\]]*\]|[^,])+""")  # commas in quotes and brackets stay


def read_over(kind: type[Strategy], over: Mapping[str, Asked] | Sequence[str]) -> dict[str, Distribution]:
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
        raise SettingsError(
            f"Nothing to sweep over: name a setting of {kind.__name__} ({', '.join(kind.model_fields)})."
        )
    return {name: _distribution(kind, name, asked) for name, asked in over.items()}


def grid(kind: type[Strategy], over: Mapping[str, Distribution]) -> list[dict[str, Value]]:
    """Every combination except the default settings, which a sweep measures anyhow.

    Raises:
        SettingsError: there are too many, or a range has no step.
    """
    for name, own in over.items():
        if isinstance(own, FloatDistribution) and own.step is None:
            raise SettingsError(
                f"A grid over {name} needs a step, as in {name}={own.low}:{own.high}:0.1, or a list of values; "
                "or take --study optuna"
            )
    listed = [_values(own) for own in over.values()]
    size = math.prod(map(len, listed))
    if size > LARGEST_GRID:
        raise SettingsError(
            f"That grid has {size:,} settings: give wider steps or fewer values, or --study optuna with --trials"
        )
    default = kind().model_dump(include=set(over))
    points = (dict(zip(over, values, strict=True)) for values in product(*listed))
    return [point for point in points if point != default]


def short(own: Distribution, value: Any) -> Value:
    """A float of a continuous range with four digits, so that it can be pasted as code; any other value as it is."""
    if not isinstance(own, FloatDistribution):
        return cast("Value", value)
    rounded = float(f"{value:.{4 if own.step is None else 12}g}")  # 0.007036 and 0.8, not 0.7999999999999999
    return rounded if own.low <= rounded <= own.high else cast("Value", value)


def takes(field: FieldInfo) -> str:
    """What a field takes, in words: `0 to 1`, or its choices."""
    if choices := _choices(field):
        return ", ".join(map(str, choices))
    low, high = bounds(field)
    return "any" if low is None and high is None else f"{float(low or 0):.6g} to {float(high or math.inf):.6g}"


def _choices(field: FieldInfo) -> tuple[Any, ...]:
    if get_origin(field.annotation) is Literal:
        return get_args(field.annotation)
    return (False, True) if field.annotation is bool else ()


def _distribution(kind: type[Strategy], name: str, asked: Asked) -> Distribution:
    if name not in kind.model_fields:
        kind(**{name: asked})  # raises, and names the settings that there are
    field = kind.model_fields[name]
    kinds = {field.annotation, *get_args(field.annotation)}  # of a number that may also be None, too
    whole = int in kinds
    if asked is None:
        if choices := _choices(field):
            return CategoricalDistribution(choices)
        low, high = bounds(field)
        if low is None or high is None:
            raise SettingsError(f"{kind.__name__}: {name} has no range of its own: list its values, {name}=v1,v2")
        return _numbers(low, high, 1 if whole else None, whole=whole)
    ends = _RANGE.fullmatch(asked) if isinstance(asked, str) and kinds & {int, float} else None
    if ends is not None:
        first, last = (Decimal(str(_checked(kind, name, parse_value(text)))) for text in ends.groups()[:2])
        step = Decimal(ends[3]) if ends[3] else Decimal(1) if whole else None
        if first > last or (step is not None and (step <= 0 or (whole and step % 1))):
            raise SettingsError(f"{name}={asked} is no range: low:high, or low:high:step")
        if step is not None:
            last = first + (last - first) // step * step
        return _numbers(float(first), float(last), float(step) if step else None, whole=whole)
    given = [parse_value(part.strip()) for part in _PARTS.findall(asked)] if isinstance(asked, str) else list(asked)
    values = list(dict.fromkeys(_checked(kind, name, value) for value in given))
    if not values:
        raise SettingsError(f"{name} has no values: write {name}=v1,v2 or {name}=low:high:step")
    return CategoricalDistribution(values)


def _numbers(low: float, high: float, step: float | None, *, whole: bool) -> Distribution:
    """A positive range over two to nine orders of magnitude is searched on a logarithmic scale."""
    log = step in {None, 1} and low > 0 and 100 <= high / low <= 1e9
    if whole:
        return IntDistribution(int(low), int(high), step=int(step or 1), log=log)
    return FloatDistribution(low, high, step=step, log=log and step is None)


def _values(own: Distribution) -> Sequence[Value]:
    """Every value of a distribution that has so many; `0.3`, and not `0.30000000000000004`."""
    if isinstance(own, CategoricalDistribution):
        return cast("Sequence[Value]", own.choices)
    if isinstance(own, IntDistribution):
        return range(own.low, own.high + 1, own.step)
    low, high, step = (Decimal(str(number)) for number in (own.low, own.high, own.step))
    return [float(low + place * step) for place in range(int((high - low) / step) + 1)]


def _checked(kind: type[Strategy], name: str, value: Any) -> Value:
    """The value as the field keeps it; one that only contradicts another field's default may be tried."""
    try:
        return cast("Value", kind(**{name: value}).model_dump()[name])
    except SettingsError as error:
        reason = error.__context__
        if isinstance(reason, ValidationError) and not reason.errors()[0]["loc"]:
            return float(value) if kind.model_fields[name].annotation is float else cast("Value", value)
        raise SettingsError(f"{error}; it takes {takes(kind.model_fields[name])}") from None
