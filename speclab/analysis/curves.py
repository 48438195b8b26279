"""One setting over its range, two as a grid, and every strategy: what each would have come to on one text.

Each point is a replay: a `Replayer` holds the text and what the draft said of it, so no target runs, and a point takes
a small part of the time that decoding the text would. Tokens per second are modelled from the measured cost curves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Literal, get_args, get_origin

from speclab.drafters import strategies
from speclab.drafters.base import Strategy
from speclab.drafters.chain import Autoregressive
from speclab.drafters.measures import small_matters
from speclab.errors import CancelledError, NotRecordedError, SettingsError, SpeclabError
from speclab.settings import bounds

if TYPE_CHECKING:
    from speclab.analysis.replay import Replayer

Setting = int | float | str
"""A value of a setting that can be drawn over a range; yes and no are whole numbers to Python."""
Check = Callable[[], None]
COUNT, GRID, MOST = 11, 8, 64
"""Values of one setting by default, of each of two, and at most."""
WIDE = 10
"""A range whose ends are so many times apart is divided by ratios, not by differences."""
SMALLEST = 0.001
"""The least probability above 0 in a range, and how far a range stays from an open bound."""


@dataclass(frozen=True, slots=True)
class Point:
    """What came of one replay, or why there is none.

    `values`: of the settings varied, or the name of a strategy. `strategy`: what was replayed; None where these values
    contradict another setting. `rows`: rows of all target passes. `tokens_per_second`: modelled. `inexact`: why a real
    run might differ; empty where it would not. `refused`: why there is no replay, a sentence; empty where there is one.
    """

    values: tuple[Setting, ...]
    strategy: Strategy | None = None
    iterations: int = 0
    tokens_per_iteration: float = 0.0
    tokens_per_second: float = 0.0
    draft_calls: int = 0
    rows: int = 0
    inexact: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """Replays of one text, as far as they have come.

    `strategy`: the settings in force. `ranges`: the values of each setting varied, one or two of them; or, under the
    name "strategy", the names of strategies. `plain`: plain decoding of the same text, whose iterations are its tokens
    without the first. `ended`: why there are fewer points than the ranges have, if they were cut short.
    """

    strategy: Strategy
    ranges: Mapping[str, tuple[Setting, ...]]
    plain: Point
    points: tuple[Point, ...] = field(default=(), repr=False)
    ended: str = ""

    @property
    def total(self) -> int:
        """Points when it is complete."""
        return prod(map(len, self.ranges.values()))

    @property
    def replayed(self) -> tuple[Point, ...]:
        """The points that were not refused."""
        return tuple([point for point in self.points if not point.refused])

    @property
    def here(self) -> Point | None:
        """The point of the settings in force; None where it has not come yet."""
        return next((point for point in self.points if point.strategy == self.strategy), None)

    @property
    def best(self) -> Point | None:
        """The most tokens per second; the settings in force where nothing is better than they, else the first."""
        first = sorted(self.replayed, key=lambda point: point is not self.here)
        return max(first, key=lambda point: point.tokens_per_second, default=None)


def variable(strategy: Strategy) -> list[str]:
    """The settings that have a range: numbers, choices, and yes or no."""
    kinds = {name: own.annotation for name, own in type(strategy).model_fields.items()}
    return [name for name, kind in kinds.items() if kind in {int, float, bool} or get_origin(kind) is Literal]


def span(
    strategy: Strategy, name: str, low: float | None = None, high: float | None = None, count: int = COUNT
) -> tuple[Setting, ...]:
    """Values of a setting to replay, in order, the one in force among them.

    Args:
        low, high: of a number; by default as far as its bounds and the other settings let it go.
        count: values, if there are so many; of a choice it is all.

    Raises:
        SettingsError: there is no such setting, an end lies outside its bounds, or there is one value only.
    """
    kind = type(strategy).__name__
    if name not in variable(strategy):
        raise SettingsError(
            f"{kind} has no setting {name!r} with a range: choose one of {', '.join(variable(strategy)) or 'none'}."
        )
    own, now = type(strategy).model_fields[name], getattr(strategy, name)
    choices = (False, True) if own.annotation is bool else get_args(own.annotation)
    if choices and (low is not None or high is not None):
        raise SettingsError(f"{kind}: {name} is a choice of {', '.join(map(str, choices))}: leave low and high out.")
    if not choices:
        if not 2 <= count <= MOST:
            raise SettingsError(f"A range of {count} values cannot be drawn: choose 2 to {MOST} of them.")
        choices = _numbers(strategy, name, low, high, count)
    if len(choices) < 2:
        raise SettingsError(f"{kind}: {name} would be {now} only: choose a range with two values or more.")
    return choices


def sweep(
    replayer: Replayer, strategy: Strategy, ranges: Mapping[str, Sequence[Setting]], check: Check = lambda: None
) -> Iterator[Curve]:
    """The curve after each replay; the last one holds all points.

    Args:
        strategy: the settings in force; all but those varied stay.
        ranges: values by setting, such as `{"node_budget": span(strategy, "node_budget")}`.
        check: called often; what it raises ends the sweep, and the curve yielded last stays.
    """
    names = tuple(ranges)
    makers = [
        (values, lambda values=values: strategy.changed(**dict(zip(names, values, strict=True))))
        for values in product(*ranges.values())
    ]
    yield from _grown(replayer, strategy, {name: tuple(values) for name, values in ranges.items()}, makers, check)


def every_strategy(replayer: Replayer, strategy: Strategy, check: Check = lambda: None) -> Iterator[Curve]:
    """Every strategy with its default settings, and the one in force if it is none of them; as `sweep` yields."""
    makers: list[tuple[tuple[Setting, ...], Callable[[], Strategy]]] = [
        ((name,), kind) for name, kind in strategies(by_hand=False).items()
    ]
    if strategy != _made(type(strategy)):
        makers.insert(0, ((f"{type(strategy).__name__}, as set",), lambda: strategy))
    yield from _grown(replayer, strategy, {"strategy": tuple([values[0] for values, _ in makers])}, makers, check)


def _grown(
    replayer: Replayer,
    strategy: Strategy,
    ranges: Mapping[str, tuple[Setting, ...]],
    makers: Sequence[tuple[tuple[Setting, ...], Callable[[], Strategy]]],
    check: Check,
) -> Iterator[Curve]:
    found = Curve(strategy, ranges, _point(replayer, (), Autoregressive, check))
    if found.plain.refused:  # then nothing can be replayed on this text
        raise NotRecordedError(found.plain.refused)
    for values, make in makers:
        check()
        found = replace(found, points=(*found.points, _point(replayer, values, make, check)))
        yield found


def _point(replayer: Replayer, values: tuple[Setting, ...], make: Callable[[], Strategy], check: Check) -> Point:
    strategy = None
    try:
        strategy = make()
        came = replayer.replay(strategy, check)
        return Point(
            values, strategy, came.iterations, came.tokens_per_iteration, came.tokens_per_second, came.draft_calls,
            sum([one.nodes for one in came.passes]), came.inexact,
        )  # fmt: skip
    except CancelledError:
        raise
    except SpeclabError as error:
        return Point(values, strategy, refused=str(error))


def _numbers(strategy: Strategy, name: str, low: float | None, high: float | None, count: int) -> tuple[Setting, ...]:
    own, now = type(strategy).model_fields[name], getattr(strategy, name)
    whole, kind = own.annotation is int, type(strategy).__name__
    least, most = bounds(own, None if whole else SMALLEST)
    for end in (low, high):
        if end is not None and ((least is not None and end < least) or (most is not None and end > most)):
            raise SettingsError(f"{kind}: {name} goes from {least} to {most}, and {end:g} lies outside.")
        if end is not None and whole and end != int(end):
            raise SettingsError(f"{kind}: {name} is a whole number, and {end:g} is none.")
    if low is None:
        low = _reach(strategy, name, now / 8 if least is None else least)
    if high is None:
        high = _reach(strategy, name, 8 * now + 8 if most is None else most)
    if low >= high:
        raise SettingsError(f"{kind}: a range of {name} from {low:g} to {high:g} has no two values: widen it.")
    start = low or (1 if whole else SMALLEST)
    share = not whole and low >= 0 and high <= 1
    ratios = start > 0 and (small_matters(own) if share else high / start >= WIDE)
    zero = [0.0] if ratios and low == 0 else []
    steps = [i / max(count - len(zero) - 1, 1) for i in range(count - len(zero))]
    spread = [start * (high / start) ** step if ratios else low + (high - low) * step for step in steps]
    inner = [round(value) if whole else float(f"{value:.2g}") for value in [*zero, *spread][1:-1]]
    ends = (round(low), round(high)) if whole else (float(low), float(high))
    values = sorted({*ends, *(value for value in inner if low < value < high)})
    return _with(values, now, replaces=len(values) >= count, ratios=ratios)


def _with(values: list[float], now: float, *, replaces: bool, ratios: bool) -> tuple[float, ...]:
    """The values with `now` among them: in the place of the nearest one, if that is no end, or besides."""
    if now in values:
        return tuple(values)
    at = bisect_left(values, now)
    if replaces and 0 < at < len(values):
        below, above = values[at - 1], values[at]
        nearer_below = now * now < below * above if ratios else now - below < above - now
        near = at - 1 if nearer_below else at
        if 0 < near < len(values) - 1:
            return (*values[:near], now, *values[near + 1 :])
    return (*values[:at], now, *values[at:])


def _reach(strategy: Strategy, name: str, end: float) -> float:
    """How far towards `end` the setting goes before another one forbids it."""
    good = getattr(strategy, name)
    whole = isinstance(good, int)
    bad = end = round(end) if whole else end

    def taken(value: float) -> bool:
        return _made(lambda: strategy.changed(**{name: value})) is not None

    if taken(end):
        return end
    for _ in range(20):
        middle = (good + bad) // 2 if whole else (good + bad) / 2
        if middle in {good, bad}:
            break
        good, bad = (middle, bad) if taken(middle) else (good, middle)
    return good if whole else float(f"{good:.2g}")


def _made(make: Callable[[], Strategy]) -> Strategy | None:
    try:
        return make()
    except SettingsError:
        return None
