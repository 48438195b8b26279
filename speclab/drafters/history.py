"""DynaTree's historical adjustment: thresholds follow recent acceptance.

Section 3.3 gives a statistic (the share of drafted nodes committed) and its mean over a window, and defers the
schedule. The schedule below is that of the published code, which has another statistic; the setting
`history_statistic` chooses. Algorithm 1 (line 7) moves τ_ℓ, τ_h and D_0; the code moves ρ_deep in place of τ_ℓ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from speclab.trace import Value

if TYPE_CHECKING:
    from speclab.drafters.base import Outcome, Root

Window = tuple[float, ...]

WINDOW = 10
FEWEST = 5
TARGET = 0.7
DEAD_BAND = 0.1


Statistic = Literal["path", "depth", "nodes"]
STATISTIC_HELP = (
    "what history looks at: committed tokens over those that the longest drafted path would give (ours) or that a "
    "path of base_depth + 1 would (the published code), or accepted over drafted nodes (section 3.3)"
)


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


def reached(statistic: Statistic, outcome: Outcome, root: Root, base_depth: int) -> tuple[int, int]:
    """What an iteration reached, and what it is held against; a_r is their ratio.

    A path is held against the longest one of the tree, as if the whole of it had been committed with the token after
    it. The published code holds it against D_0 + 2, its D_0 being `base_depth` + 1 as it was set, wherever history has
    moved it since; deep paths take that ratio above 1. A verified root was committed beforehand and does not count.
    """
    verified = root == "verified"
    if statistic == "nodes":
        return len(outcome.accepted), len(outcome.tree) - verified
    levels = base_depth + 1 if statistic == "depth" else int(outcome.tree.depth[-1])
    return len(outcome.committed), levels + (1 if verified else 2)


def remember(window: Window, share: float) -> Window:
    """The window with one more entry (a_r), the oldest dropped."""
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
