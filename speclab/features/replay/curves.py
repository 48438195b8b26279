"""Replay one text over the range of a setting.

replayer = Replayer(session)
*_, curve = curves.sweep(replayer, session.strategy, "node_budget")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from speclab.drafters.base import Strategy
from speclab.drafters.chain import Autoregressive
from speclab.drafters.ranges import Setting, span, variable
from speclab.errors import CancelledError, NotRecordedError, SpeclabError

if TYPE_CHECKING:
    from speclab.features.replay.replayer import Replayer

__all__ = ["Curve", "Point", "span", "sweep", "variable"]


@dataclass(frozen=True)
class Point:
    """One replay: `value` of the varied setting, the replayed `strategy`, `rows` of all target
    passes.

    `tokens_per_second`: modelled from the measured costs of passes. `inexact`: why a real run might
    differ. `refused`: why the replay failed; `strategy` is None if the value contradicts another
    setting.
    """

    value: Setting
    strategy: Strategy | None = None
    iterations: int = 0
    tokens_per_iteration: float = 0.0
    tokens_per_second: float = field(default=0.0, repr=False)
    draft_calls: int = 0
    rows: int = 0
    inexact: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Curve:
    """The replays so far, of all `values` of the setting `name`.

    `strategy` has the current settings, `plain` is plain decoding of the same text.
    """

    strategy: Strategy
    name: str
    values: tuple[Setting, ...]
    plain: Point
    points: tuple[Point, ...] = field(default=(), repr=False)

    def data(self) -> dict[str, Any]:
        """The curve as the page draws it."""
        points = []
        for point in (self.plain, *self.points):
            points.append(asdict(replace(point, strategy=None)))
        plain, *others = points
        here = getattr(self.strategy, self.name)
        return {
            "name": self.name,
            "values": list(self.values),
            "points": others,
            "plain": plain,
            "here": here,
        }


def sweep(
    replayer: Replayer,
    strategy: Strategy,
    name: str,
    values: Sequence[Setting] = (),
    check: Callable[[], None] = lambda: None,
) -> Iterator[Curve]:
    """Yield the curve after each replay; the last one has a point for each of `values`, by default
    those of `span`.

    `check` is called often; an error that it raises ends the sweep.
    """
    plain = _point(replayer, Autoregressive(), {}, check)
    if plain.refused:  # then this text cannot be replayed at all
        raise NotRecordedError(plain.refused)
    curve = Curve(strategy, name, tuple(values) or span(strategy, name), plain)
    for value in curve.values:
        check()
        point = _point(replayer, strategy, {name: value}, check)
        curve = replace(curve, points=(*curve.points, point))
        yield curve


def _point(
    replayer: Replayer,
    strategy: Strategy,
    changes: Mapping[str, Setting],
    check: Callable[[], None],
) -> Point:
    value = next(iter(changes.values()), "")
    changed = None
    try:
        changed = strategy.changed(**changes)
        replay = replayer.replay(changed, check)
    except CancelledError:
        raise
    except SpeclabError as error:
        return Point(value, changed, refused=str(error))
    return Point(
        value, changed, replay.iterations, replay.tokens_per_iteration, replay.tokens_per_second, replay.draft_calls,
        sum(iteration.nodes for iteration in replay.passes), replay.inexact,
    )  # fmt: skip


def __dir__() -> list[str]:
    return __all__
