"""DynaTree's historical adjustment: thresholds follow recent acceptance.

The paper gives the statistic (section 3.3: the mean share of drafted nodes committed, over a window W) and defers the
schedule; the numbers below are those of its published code.
"""

from __future__ import annotations

from typing import Protocol

from speclab.trace import Value

Window = tuple[float, ...]

WINDOW = 10
FEWEST = 5
TARGET = 0.7
DEAD_BAND = 0.1


class Thresholds(Protocol):
    """The settings that history reads and moves."""

    @property
    def base_depth(self) -> int: ...
    @property
    def max_depth(self) -> int: ...
    @property
    def low_confidence(self) -> float: ...
    @property
    def high_confidence(self) -> float: ...
    @property
    def stop_probability(self) -> float: ...
    @property
    def deep_probability(self) -> float: ...


def remember(window: Window, share: float) -> Window:
    """The window with one more iteration's share of drafted nodes committed (a_r), the oldest dropped."""
    return (*window, share)[-WINDOW:]


def adjustment(now: Thresholds, window: Window) -> tuple[dict[str, Value], str]:
    """The thresholds to change, by setting, and why.

    Above the band the next tree is bolder (deeper, narrower sooner), below it more careful; a bound never moves a
    threshold the other way.
    """
    if len(window) < FEWEST:
        return {}, f"{len(window)} of the {FEWEST} iterations that history needs"
    mean = sum(window) / len(window)
    low, high = TARGET - DEAD_BAND, TARGET + DEAD_BAND
    told = f"mean acceptance {mean:.2f} over {len(window)} iterations"
    if mean > high:
        wanted = _bolder(now)
        reason = f"{told} > {high:.1f}: bolder"
    elif mean < low:
        wanted = _more_careful(now)
        reason = f"{told} < {low:.1f}: more careful"
    else:
        return {}, f"{told} lies within {low:.1f} to {high:.1f}"
    changes: dict[str, Value] = {name: value for name, value in wanted.items() if value != getattr(now, name)}
    return changes, reason if changes else f"{reason}, but every threshold is at its bound"


def _bolder(now: Thresholds) -> dict[str, float]:
    return {
        "base_depth": max(now.base_depth, min(now.base_depth + 1, now.max_depth - 1)),
        "high_confidence": min(now.high_confidence, max(round(now.high_confidence - 0.05, 4), 0.5, now.low_confidence)),
        "deep_probability": min(
            now.deep_probability, max(round(now.deep_probability - 0.05, 4), 0.3, now.stop_probability)
        ),
    }


def _more_careful(now: Thresholds) -> dict[str, float]:
    return {
        "base_depth": min(now.base_depth, max(now.base_depth - 1, 2)),
        "high_confidence": max(now.high_confidence, min(round(now.high_confidence + 0.05, 4), 0.95)),
        "deep_probability": max(now.deep_probability, min(round(now.deep_probability + 0.05, 4), 0.8)),
    }
