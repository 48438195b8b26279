"""Figures of several kinds beside each other: a row a thing, a point a series, one axis from 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speclab.views import glyphs, markup
from speclab.views.palette import SOURCE_COLORS, Theme, ThemeName, css
from speclab.views.panels import nice, small

NAMES, WIDE, ROW, TOP = 190.0, 500.0, 24.0, 46.0
VALUES = 40.0
"""Room to the right of the axis, for a value that stands at its end."""


def summary(title: str, rows: Mapping[str, Sequence[float]]) -> str:
    """One sentence: what is shown, of how many things, from where to where."""
    values = [value for row in rows.values() for value in row]
    return f"{title}: {len(rows)} rows, values from {min(values):.3g} to {max(values):.3g}."


def points_svg(
    title: str, series: Sequence[str], rows: Mapping[str, Sequence[float]], theme: ThemeName = "light"
) -> str:
    """A chart as one SVG string.

    Args:
        title: what the axis measures.
        series: a name for each point of a row; up to six.
        rows: name of a row to one value for each series, each at least 0.
        theme: colours where the page has none.
    """
    colors, top = css(theme), nice(max(value for row in rows.values() for value in row))
    entries = [(_mark(i, 0.0, 0.0), name, 14.0) for i, name in enumerate(series)]
    key, tall = glyphs.legend(entries, NAMES, 32.0, WIDE)
    y, parts = TOP + tall - 20, [markup.text(title, NAMES, 14, style="font-weight:600;font-size:12px")]
    parts.append(markup.tag("g", key, style=f"fill:{colors.muted}"))
    bottom = y + ROW * len(rows)
    parts += [_tick(share * top, NAMES + share * WIDE, y, bottom, colors) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    for number, (name, values) in enumerate(rows.items()):
        parts.append(_row(name, [NAMES + WIDE * value / top for value in values], values, y + ROW * number, colors))
    return markup.svg(NAMES + WIDE + VALUES, bottom + 22, summary(title, rows), colors, parts)


def points_table(title: str, series: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    """The same figures as an HTML table."""
    return markup.table(title, ("", *series), [(name, *values) for name, values in rows.items()])


table = points_table


def _row(name: str, places: Sequence[float], values: Sequence[float], y: float, colors: Theme) -> str:
    middle, n = y + ROW / 2, markup.number
    label = markup.text(name, NAMES - 12, middle + 4, text_anchor="end")
    rule = f"M{n(min(places))} {n(middle)}H{n(max(places))}"
    line = markup.tag("path", d=rule, style=f"stroke:{colors.line};stroke-width:2")
    tip = markup.title(f"{name}: {', '.join(f'{value:.3g}' for value in values)}")
    return markup.tag("g", tip, label, line, *(_mark(i, x, middle) for i, x in enumerate(places)))


def _mark(series: int, x: float, y: float) -> str:
    """A circle, a square, a diamond, in turn: a colour never speaks alone."""
    style, n = f"fill:{SOURCE_COLORS[series % len(SOURCE_COLORS)]}", markup.number
    if series % 3 == 0:
        return markup.tag("circle", cx=x, cy=y, r=5.0, style=style)
    if series % 3 == 1:
        return markup.tag("rect", x=x - 4.5, y=y - 4.5, width=9.0, height=9.0, style=style)
    return markup.tag("path", d=f"M{n(x)} {n(y - 6.5)}l5.5 6.5l-5.5 6.5l-5.5 -6.5z", style=style)


def _tick(value: float, x: float, y: float, bottom: float, colors: Theme) -> str:
    rule = markup.tag(
        "path", d=f"M{markup.number(x)} {markup.number(y)}V{markup.number(bottom)}", style=f"stroke:{colors.faint}"
    )
    return rule + small(f"{value:g}", x, bottom + 14, colors, text_anchor="middle")
