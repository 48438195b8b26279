"""How many nodes were worth verifying: what a pass costs by nodes, and the expected tokens per second.

The first panel is the measured cost curve, the second what follows from it, with the point that was chosen; the table
says what would have been chosen on other machines, which are modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speclab.costs.budget import rates
from speclab.costs.curve import MODELLED, Curve, modelled, seconds_by_rows
from speclab.trace.records import BudgetRecord, Step
from speclab.tree import Floats
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.markup import Drawn, bar, labelled, tag
from speclab.views.metrics_chart import nice
from speclab.views.palette import LOOKS, PHASE_COLORS, Theme, css

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
    path = "M" + "L".join([f"{x:.1f} {y:.1f}" for x, y in points])
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


NOTHING = "No budget was chosen by cost here: a strategy with budget='auto' chooses one in every iteration."
_NOTES = {
    "wide GPU": "64 rows cost hardly more than one",
    "memory-bound": "64 rows are free, then each costs 2% of a pass",
    "slow CPU": "each further row costs a quarter of a pass",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """What is expected on one machine, by nodes verified, from 1: seconds of the pass, tokens per second; the best."""

    name: str
    note: str
    seconds: Floats
    rate: Floats

    @property
    def best(self) -> int:
        """Nodes that give the most tokens per second."""
        return int(self.rate.argmax()) + 1


def machines(record: BudgetRecord) -> tuple[Machine, ...]:
    """This machine, as measured, then the modelled ones, on which a pass of one node takes as long as here.

    The draft passes are taken to cost the same everywhere.
    """
    gains = np.asarray(((0.0,) if record.verified_root else ()) + record.probabilities)
    count = len(gains)
    curve = Curve(name="target", rows=record.rows, seconds=record.seconds, prefix=0, rounds=1)
    here = seconds_by_rows(curve, count + record.extra)[record.extra + 1 :]
    found = [("this machine", "measured", here)]
    for name, note in _NOTES.items():
        assert name in MODELLED
        found.append((name, f"modelled: {note}", modelled(name, float(here[0]), count)[1:]))
    return tuple([Machine(name, note, times, rates(gains, times, record.spent)) for name, note, times in found])


def summary(step: Step) -> str:
    """One sentence: what was chosen, and what it was expected to give."""
    record = step.budget
    if record is None:
        return NOTHING
    here = machines(record)[0]
    rate = float(here.rate[record.verified - 1])
    seconds = record.spent + float(here.seconds[record.verified - 1])
    return (
        f"Verified {record.verified} of {plural(len(here.rate), 'node')}: {rate * seconds:.2f} tokens expected in "
        f"{1000 * seconds:.1f} ms ({1000 * record.spent:.1f} ms of it for drafting), {rate:.0f} tokens/s; "
        f"{len(step.committed)} came of it."
    )


def cost_html(step: Step) -> str:
    """Sentence, picture and table of one step."""
    if step.budget is None:
        return labelled("Budget", NOTHING)
    return tag("div", labelled("Budget", summary(step)), cost_svg(step), table(step), class_="speclab-cost")


def cost_svg(step: Step) -> str:
    """Both panels as one SVG string, over the number of nodes verified."""
    colors, record = css(), step.budget
    if record is None:
        label = markup.text(NOTHING, 12, 24, style=f"fill:{colors.muted}")
        return markup.svg(640, 40, NOTHING, colors, [label])
    here = machines(record)[0]
    most = max(len(here.rate), min(16, record.rows[-1]))
    above = Plot("cost of a pass", "ms, measured", most, nice(1000 * float(here.seconds[-1])), 20.0, colors)
    measured = [
        (rows - record.extra, 1000 * seconds)
        for rows, seconds in zip(record.rows, record.seconds, strict=True)
        if 1 <= rows - record.extra <= most
    ]
    below = Plot("expected", "tokens/s", most, nice(float(here.rate.max())), 178.0, colors)
    chosen, label = record.verified, f"{record.verified} verified"
    parts = [
        plot(above, 1000 * here.seconds, PHASE_COLORS["verify"], chosen, "", measured),
        plot(below, here.rate, LOOKS["accepted"].color, chosen, label),
        markup.text("nodes verified, the most probable first", below.middle, below.foot + 30, text_anchor="middle",
                    style=f"fill:{colors.muted}"),
    ]  # fmt: skip
    return markup.svg(below.width, below.foot + 40, summary(step), colors, parts)


def table(step: Step) -> str:
    """What would have been chosen on each machine, as an HTML table; nothing where no budget was chosen."""
    record = step.budget
    if record is None:
        return ""
    found = machines(record)
    head = ("machine", "nodes", "", "tokens expected", "ms", "tokens/s", "")
    rows = [_cells(machine, record.spent, max([len(machine.rate) for machine in found])) for machine in found]
    return markup.table("What it would verify on other machines", head, rows)


def _cells(machine: Machine, spent: float, most: int) -> Sequence[object]:
    best = machine.best
    seconds = spent + float(machine.seconds[best - 1])
    rate = float(machine.rate[best - 1])
    length: Drawn | str = bar(best / most, LOOKS["accepted"].color, 80)
    return machine.name, best, length, f"{rate * seconds:.2f}", f"{1000 * seconds:.1f}", f"{rate:.0f}", machine.note
