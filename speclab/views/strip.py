"""A strip of dots under a slider: where the values of one step lie against its threshold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from speclab.drafters.measures import Measure, measured
from speclab.trace.records import Step
from speclab.views.markup import tag
from speclab.views.palette import css
from speclab.views.tokens import escape

HEIGHT, RADIUS, ROWS = 18, 2.3, 3
_WORDS: dict[Measure, str] = {
    "confidence": "{above} of {count} expanded nodes reach it",
    "path probability": "{above} of {count} paths reach it",
    "token probability": "{above} of {count} tokens reach it",
    "depth": "{above} of {count} nodes reach it",
    "nodes": "{most:.0f} in this tree",
}


def strip(step: Step, measure: Measure, threshold: float, low: float, high: float) -> str:
    """The dots as HTML, as wide as what it stands in: full ones at or above `threshold`, open ones below; and in words.

    Args:
        low, high: the values at the left and the right end.
    """
    values = measured(step, measure)
    words = told(values, measure, threshold)
    return tag("div", _dots(values, threshold, low, high, words), class_="sl-strip") + tag(
        "span", escape(words), class_="sl-count"
    )


def told(values: Sequence[float], measure: Measure, threshold: float) -> str:
    """`9 of 14 paths reach it`."""
    if not values:
        return "nothing to compare in this iteration"
    above = sum(value >= threshold for value in values)
    return _WORDS[measure].format(above=above, count=len(values), most=max(values))


def _dots(values: Sequence[float], threshold: float, low: float, high: float, words: str) -> str:
    colors, stacked = css(), Counter[int]()
    line = f"stroke:{colors.line};stroke-width:1"
    parts = [tag("line", x1="0%", x2="100%", y1=HEIGHT - 1, y2=HEIGHT - 1, style=line)]
    for value in sorted(values):
        across = _percent(value, low, high)
        column = round(across)
        height = HEIGHT - 4.5 - 4.6 * min(stacked[column], ROWS - 1)
        stacked[column] += 1
        fill = colors.ink if value >= threshold else colors.paper
        style = f"fill:{fill};stroke:{colors.ink if value >= threshold else colors.muted};stroke-width:1"
        parts.append(tag("circle", cx=f"{across:.1f}%", cy=height, r=RADIUS, style=style))
    at, mark = f"{_percent(threshold, low, high):.1f}%", "stroke:var(--jp-brand-color1,#1976d2);stroke-width:1.5"
    parts.append(tag("line", x1=at, x2=at, y1=0, y2=HEIGHT, style=mark))
    look = "display:block;overflow:visible"
    return tag("svg", *parts, width="100%", height=HEIGHT, role="img", aria_label=words, style=look)


def _percent(value: float, low: float, high: float) -> float:
    return 100 * min(max((value - low) / (high - low), 0.0), 1.0)
