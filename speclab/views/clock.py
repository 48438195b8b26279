"""Where the time went: this run's seconds by phase, beside plain decoding of as many tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from speclab.trace.records import Step
from speclab.views import markup
from speclab.views.palette import LOOKS, PHASE_COLORS, Theme
from speclab.views.summary import plural
from speclab.views.walk import PHASES


@dataclass(frozen=True, slots=True)
class Plain:
    """Plain decoding with the same target: seconds a token, whether that was measured or modelled, and how."""

    seconds_per_token: float
    how: Literal["measured", "modelled"]
    note: str


def modelled_plain(steps: Sequence[Step]) -> Plain | None:
    """An upper bound from this run: one target pass a token, each as long as the shortest verification pass here."""
    passes = [step.seconds["verify"] for step in steps if step.seconds.get("verify")]
    if not passes:
        return None
    return Plain(
        min(passes), "modelled", "one pass a token, each as long as the shortest verification pass of this run"
    )


def phase_seconds(steps: Sequence[Step]) -> dict[str, float]:
    """Seconds a phase, in the order of the phases; a phase that took no time is left out."""
    names = dict.fromkeys([*PHASES, *(name for step in steps for name in step.seconds)])
    total = {name: sum(step.seconds.get(name, 0.0) for step in steps) for name in names}
    return {name: seconds for name, seconds in total.items() if seconds > 0}


def duration(seconds: float) -> str:
    """`4.2 ms`, `1.38 s`."""
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def clock_strip(
    steps: Sequence[Step], plain: Plain | None, x: float, y: float, room: float, colors: Theme
) -> tuple[str, float]:
    """Two bars on one time axis, and the ratio in words; returns the markup and its height."""
    parts = phase_seconds(steps)
    mine = sum(parts.values())
    count = sum(len(step.committed) for step in steps)
    theirs = plain.seconds_per_token * count if plain else 0.0
    scale = room / max(mine, theirs, 1e-9)
    bars, left = [], x
    for name, seconds in parts.items():
        tip = markup.title(f"{name}: {duration(seconds)}, {100 * seconds / mine:.0f}% of this run")
        box = markup.tag(
            "rect",
            x=left,
            y=y,
            width=seconds * scale,
            height=16.0,
            style=f"fill:{PHASE_COLORS.get(name, LOOKS['not reached'].color)}",
        )
        bars.append(markup.tag("g", tip, box))
        left += seconds * scale
    bars.append(_name("this run, measured", duration(mine), x, y, left, colors))
    if plain:
        style = f"fill:none;stroke:{colors.muted};stroke-dasharray:{'none' if plain.how == 'measured' else '4 3'}"
        bars.append(markup.tag("rect", x=x, y=y + 24, width=theirs * scale, height=16.0, style=style))
        bars.append(_name(f"plain decoding, {plain.how}", duration(theirs), x, y + 24, x + theirs * scale, colors))
    lines = _verdict(mine, theirs, count, plain)
    top = y + (58 if plain else 34)
    bars += [markup.text(line, x, top + 15 * i, style=f"fill:{colors.muted}") for i, line in enumerate(lines)]
    return "".join(bars), top - y + 15 * len(lines)


def _name(name: str, value: str, x: float, y: float, end: float, colors: Theme) -> str:
    label = markup.text(name, x - 8, y + 12, text_anchor="end", style=f"fill:{colors.muted}")
    return label + markup.text(value, end + 6, y + 12)


def _verdict(mine: float, theirs: float, count: int, plain: Plain | None) -> list[str]:
    tokens = plural(count, "token")
    if not plain or not mine:
        return [f"{tokens}; plain decoding was not measured"]
    bound = "" if plain.how == "measured" else "at most "
    return [
        f"{tokens}, prefill excluded: {bound}{theirs / mine:.2f}× the speed of plain decoding",
        f"plain decoding, {plain.how}: {plain.note}",
    ]
