"""One small line plot: a value by a whole number, with points that were measured and a point that was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speclab.tree import Floats
from speclab.views import markup
from speclab.views.palette import Theme

LEFT, WIDE, HIGH, RIGHT = 132.0, 460.0, 120.0, 48.0
_TICKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True, slots=True)
class Plot:
    """`name` and `unit` stand beside the axis; x goes from 1 to `most`, y from 0 to `top`; `y`: the upper edge."""

    name: str
    unit: str
    most: int
    top: float
    y: float
    colors: Theme

    @property
    def width(self) -> float:
        """Of the whole picture, CSS pixels."""
        return LEFT + WIDE + RIGHT

    @property
    def foot(self) -> float:
        """Where the axis lies."""
        return self.y + HIGH

    @property
    def middle(self) -> float:
        """The middle of the x axis."""
        return LEFT + WIDE / 2

    def place(self, x: float, y: float) -> tuple[float, float]:
        """CSS pixels of a point."""
        return LEFT + WIDE * (x - 1) / max(self.most - 1, 1), self.foot - HIGH * y / self.top


def plot(
    frame: Plot,
    values: Floats,
    color: str,
    chosen: int,
    label: str,
    measured: Sequence[tuple[int, float]] = (),
) -> str:
    """The curve of `values` at 1, 2, …, a mark at `chosen` with `label`, and a ring at each measured point."""
    points = [frame.place(place, float(value)) for place, value in enumerate(values, start=1)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    x, y = points[chosen - 1]
    rings = [
        markup.tag("circle", cx=cx, cy=cy, r=3.0, style=f"fill:none;stroke:{color};stroke-width:1.4")
        for cx, cy in (frame.place(at, value) for at, value in measured if value <= frame.top)
    ]
    rule = f"stroke:{frame.colors.ink};stroke-dasharray:4 4"
    anchor, beside = ("end", x - 8) if x > frame.middle else ("start", x + 8)
    return "".join((
        _axes(frame), markup.tag("path", d=path, style=f"fill:none;stroke:{color};stroke-width:2"), *rings,
        markup.tag("path", d=f"M{x:.1f} {frame.foot:.1f}V{frame.y:.1f}", style=rule),
        markup.tag("circle", cx=x, cy=y, r=5.0, style=f"fill:{color}"),
        markup.text(label, beside, frame.y + 10, text_anchor=anchor, style="font-weight:600") if label else "",
    ))  # fmt: skip


def _axes(frame: Plot) -> str:
    muted = f"fill:{frame.colors.muted};font-size:10px"
    parts = [
        markup.text(frame.name, LEFT - 44, frame.y + 12, text_anchor="end", style="font-weight:600"),
        markup.text(frame.unit, LEFT - 44, frame.y + 26, text_anchor="end", style=muted),
    ]
    for share in (0.0, 0.5, 1.0):
        _, y = frame.place(1, share * frame.top)
        parts.append(markup.tag("path", d=f"M{LEFT:g} {y:.1f}h{WIDE:g}", style=f"stroke:{frame.colors.faint}"))
        parts.append(markup.text(f"{share * frame.top:g}", LEFT - 6, y + 4, text_anchor="end", style=muted))
    for tick in (tick for tick in _TICKS if tick <= frame.most and (tick > frame.most / 24 or tick == 1)):
        x, _ = frame.place(tick, 0.0)
        parts.append(markup.text(str(tick), x, frame.foot + 14, text_anchor="middle", style=muted))
    return "".join(parts)
