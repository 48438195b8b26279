"""Shapes of the looks as SVG paths around (0, 0), the same shapes as plotly's, and legends made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from speclab.views import markup
from speclab.views.palette import LOOKS, Theme, look_color
from speclab.views.tokens import width


def _star(r: float) -> str:
    points = (
        (r * scale * math.sin(math.pi * i / 5), -r * scale * math.cos(math.pi * i / 5))
        for i, scale in enumerate([1.25, 0.55] * 5)
    )
    return "M" + "L".join(f"{markup.number(x)} {markup.number(y)}" for x, y in points) + "Z"


def _cross(r: float) -> str:
    a, n = markup.number(0.42 * r), markup.number
    far, near = n(0.95 * r), n(0.53 * r)
    return (
        f"M-{far} -{near}L-{near} -{far}L0 -{a}L{near} -{far}L{far} -{near}L{a} 0L{far} {near}L{near} {far}L0 {a}"
        f"L-{near} {far}L-{far} {near}L-{a} 0Z"
    )


def _diamond(r: float) -> str:
    wide, tall = markup.number(r), markup.number(1.2 * r)
    return f"M0 -{tall}L{wide} 0L0 {tall}L-{wide} 0Z"


def shape(kind: str, x: float, y: float, r: float, border: float, theme: Theme) -> str:
    """One symbol, its border outside it. Open ones are filled with the page's colour: lines do not shine through."""
    look, color = LOOKS[kind], look_color(kind, theme)
    fill, stroke = (color, theme.ink) if look.filled else (theme.paper, color)
    style = f"fill:{fill};stroke:{stroke};stroke-width:{markup.number(2 * border)};paint-order:stroke"
    if not look.filled:
        style = f"fill:{fill};stroke:{stroke};stroke-width:{markup.number(border)}"
        r += border / 2
    if look.symbol.startswith("circle"):
        return markup.tag("circle", cx=x, cy=y, r=r, style=style)
    if look.symbol == "square":
        return markup.tag("rect", x=x - 0.85 * r, y=y - 0.85 * r, width=1.7 * r, height=1.7 * r, style=style)
    d = {"star": _star, "x": _cross, "diamond": _diamond}[look.symbol](r)
    place = f"translate({markup.number(x)} {markup.number(y)})"
    return markup.tag("path", d=d, transform=place, style=style)


def legend(entries: Iterable[tuple[str, str, float]], x: float, y: float, room: float) -> tuple[str, float]:
    """Lays (drawing around (0, 0), label, width of the drawing) out in rows; returns the markup and its height."""
    parts, left, top = [], x, y
    for drawing, label, drawn in entries:
        wide = drawn + 5.9 * width(label) + 28
        if left + wide > x + room and left > x:
            left, top = x, top + 20
        place = f"translate({markup.number(left + drawn / 2)} {markup.number(top)})"
        parts += [markup.tag("g", drawing, transform=place), markup.text(label, left + drawn + 6, top + 4)]
        left += wide
    return "".join(parts), top - y + 20


def swatch(style: str, drawing: str = "") -> str:
    """A legend's square."""
    return markup.tag("rect", x=-6.0, y=-6.0, width=12.0, height=12.0, style=style) + drawing
