"""Replay one text over the range of a setting.

replayer = Replayer(session)
*_, curve = curves.sweep(replayer, session.strategy, "node_budget")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from speclab.drafters.base import Strategy
from speclab.drafters.chain import Autoregressive
from speclab.drafters.ranges import Setting, span, variable
from speclab.errors import CancelledError, NotRecordedError, SpeclabError

if TYPE_CHECKING:
    import pandas as pd

    from speclab.analysis.replay import Replayer

__all__ = ["Curve", "Point", "by_rows", "span", "sweep", "variable"]


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Curve:
    """The replays so far, of all `values` of the setting `name`.

    `strategy` has the current settings, `plain` is plain decoding of the same text.
    """

    strategy: Strategy
    name: str
    values: tuple[Setting, ...]
    plain: Point
    points: tuple[Point, ...] = field(default=(), repr=False)

    @property
    def replayed(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if not point.refused)

    @property
    def here(self) -> Point | None:
        return next((point for point in self.points if point.strategy == self.strategy), None)

    @property
    def best(self) -> Point | None:
        """The point with the most tokens per second; among equals the current settings, else the first."""
        first = sorted(self.replayed, key=lambda point: point is not self.here)
        return max(first, key=lambda point: point.tokens_per_second, default=None)


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


def by_rows(
    replayers: Sequence[Replayer], strategies: Mapping[str, Sequence[Strategy]]
) -> pd.DataFrame:
    """Several ways to draft over the rows of a verification pass, on the same texts, as a pandas
    DataFrame.

    One row per strategy of each list, in order: `name`, `strategy`, `rows` (mean of the target's
    passes), `tokens_per_iteration`, and `tokens_per_second` (modelled, as `Replay.seconds`).

    Raises:
        NotRecordedError: a text does not say what a strategy would have done.
        SpeclabError: a strategy does not fit the pair.
    """
    import pandas as pd

    found = []
    for name, strategy in [(name, each) for name, every in strategies.items() for each in every]:
        replays = [replayer.replay(strategy) for replayer in replayers]
        passes = [each for replay in replays for each in replay.passes]
        tokens = sum(len(each.committed) for each in passes)
        found.append(
            {
                "name": name,
                "strategy": strategy,
                "rows": sum(each.nodes for each in passes) / len(passes),
                "tokens_per_iteration": tokens / len(passes),
                "tokens_per_second": tokens / sum(replay.seconds for replay in replays),
            }
        )
    return pd.DataFrame(found)


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
        sum(each.nodes for each in replay.passes), replay.inexact,
    )  # fmt: skip


def __dir__() -> list[str]:
    return __all__
