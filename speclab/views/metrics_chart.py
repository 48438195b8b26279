"""The run so far on one axis of iterations: tokens, acceptance by depth, seconds by phase, adapted settings.

Under every figure stands its definition, from `speclab.trace.metrics`; below, this run beside plain decoding.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from speclab.trace.metrics import Counts, Metrics
from speclab.trace.records import Step, Trace
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.palette import LOOKS, PHASE_COLORS, Theme, ThemeName, css
from speclab.views.playback import PHASES, verified_root


@dataclass(frozen=True, slots=True)
class Plain:
    """Plain decoding with the same target: seconds per token, whether that was measured or modelled, and how."""

    seconds_per_token: float
    how: Literal["measured", "modelled"]
    note: str


def modelled_plain(steps: Sequence[Step]) -> Plain | None:
    """An upper bound from this run: one target pass per token, each as long as the shortest verification pass here."""
    passes = [step.seconds["verify"] for step in steps if step.seconds.get("verify")]
    if not passes:
        return None
    return Plain(
        min(passes), "modelled", "one pass per token, each as long as the shortest verification pass of this run"
    )


def phase_seconds(steps: Sequence[Step]) -> dict[str, float]:
    """Seconds per phase, in the order of the phases; a phase that took no time is left out."""
    names = dict.fromkeys([*PHASES, *(name for step in steps for name in step.seconds)])
    total = {name: sum([step.seconds.get(name, 0.0) for step in steps]) for name in names}
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
    count = sum([len(step.committed) for step in steps])
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


LEFT, WIDE, ASIDE = 156.0, 520.0, 236.0
NAMES, FIGURES = LEFT - 40, LEFT + WIDE + 18
DEEPEST, SETTINGS = 16, 6
"""Depths and settings shown at most."""
ACCEPTED, OWN, REFUSED = (LOOKS[kind].color for kind in ("accepted", "bonus", "rejected"))
OTHER = "#999999"
_MEAN = "committed / verification passes (dashed)"


@dataclass(frozen=True, slots=True)
class Axis:
    """The iterations drawn (`shown`, the newest of `steps`) in a room for `span` of them."""

    steps: Sequence[Step]
    shown: Sequence[Step]
    span: int
    colors: Theme

    def x(self, i: int) -> float:
        """The left edge of the i-th iteration shown."""
        return LEFT + i * WIDE / self.span

    def bars(self, boxes: Iterable[tuple[int, float, float]], color: str) -> str:
        """Boxes of (iteration, top, height) in one path."""
        pitch = WIDE / self.span
        gap = min(3.0, 0.2 * pitch)
        n = markup.number
        path = "".join(
            [
                f"M{n(self.x(i) + gap / 2)} {top:.2f}h{n(pitch - gap)}v{tall:.2f}h-{n(pitch - gap)}z"
                for i, top, tall in boxes
                if tall > 0.05
            ]
        )
        return markup.tag("path", d=path, style=f"fill:{color}") if path else ""


def small(content: object, x: float, y: float, colors: Theme, *, text_anchor: str = "") -> str:
    """Secondary text."""
    return markup.text(content, x, y, style=f"fill:{colors.muted};font-size:10px", text_anchor=text_anchor)


def _heading(name: str, unit: str, y: float, colors: Theme) -> str:
    label = markup.text(name, NAMES, y + 12, text_anchor="end", style="font-weight:600")
    return label + small(unit, NAMES, y + 26, colors, text_anchor="end")


def nice(value: float) -> float:
    """The round number at or above `value` that an axis ends in: 1, 2, 4, 6 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value * (1 - 1e-9))


def _scale(top: float, high: float, y: float, colors: Theme) -> str:
    """Ticks at nothing, half and all, with faint rules."""
    parts = []
    for share in (0.0, 0.5, 1.0):
        at = y + high * (1 - share)
        parts.append(markup.tag("path", d=f"M{LEFT:g} {markup.number(at)}h{WIDE:g}", style=f"stroke:{colors.faint}"))
        parts.append(small(f"{top * share:g}", LEFT - 6, at + 4, colors, text_anchor="end"))
    return "".join(parts)


def _figure(figure: str, meaning: str, y: float, colors: Theme) -> str:
    return markup.text(figure, FIGURES, y, style="font-weight:600;font-size:12px") + small(
        meaning, FIGURES, y + 14, colors
    )


def tokens_panel(axis: Axis, y: float) -> tuple[str, float]:
    """Tokens per iteration: accepted, and on top the target's own."""
    high, colors = 84.0, axis.colors
    top = nice(max(4, *(len(step.committed) for step in axis.shown)))
    unit = high / top
    accepted, own = [], []
    for i, step in enumerate(axis.shown):
        drafted = min(len(step.accepted), len(step.committed))
        rest = len(step.committed) - drafted
        accepted.append((i, y + high - drafted * unit, drafted * unit))
        own.append((i, y + high - len(step.committed) * unit, rest * unit))
    figures = Metrics(sum([step.counts for step in axis.steps], Counts()))
    mean = markup.number(y + high - figures.tokens_per_iteration * unit)
    line = markup.tag("path", d=f"M{LEFT:g} {mean}h{WIDE:g}", style=f"stroke:{colors.ink};stroke-dasharray:5 4")
    swatches = [
        (markup.swatch(f"fill:{ACCEPTED}"), "accepted", 12.0),
        (markup.swatch(f"fill:{OWN}"), "the target's own", 12.0),
    ]
    key, _ = markup.legend(tuple(swatches), FIGURES, y + high - 6, ASIDE - 8)
    return "".join((
        _heading("tokens", "per iteration", y, colors), _scale(top, high, y, colors), axis.bars(accepted, ACCEPTED),
        axis.bars(own, OWN), line, markup.tag("g", key, style=f"fill:{colors.muted}"),
        _figure(f"{figures.tokens_per_iteration:.2f} tokens per iteration", _MEAN, y + 10, colors),
        _figure(f"{figures.acceptance_rate:.0%} acceptance rate", "accepted / drafted tokens", y + 42, colors),
    )), high  # fmt: skip


def reach(step: Step) -> int:
    """Drafted tokens on the longest path of the tree."""
    return int(step.tree.depth.max()) + (not verified_root(step))


def depth_counts(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """For each depth from 1: (iterations that drafted so deep, iterations that accepted so deep)."""
    drafted = [reach(step) for step in steps]
    return [
        (sum([d >= level for d in drafted]), sum([len(step.accepted) >= level for step in steps]))
        for level in range(1, max(drafted, default=0) + 1)
    ]


def depths_panel(axis: Axis, y: float) -> tuple[str, float]:
    """One row per depth: a bar where the iteration accepted so deep, a line where it only drafted so deep."""
    counts, colors, pitch = depth_counts(axis.steps)[:DEEPEST], axis.colors, 13.0
    if not counts:
        return "", 0.0
    levels = range(1, len(counts) + 1)
    marks = [
        (i, level, level <= len(step.accepted))
        for i, step in enumerate(axis.shown)
        for level in levels
        if level <= reach(step)
    ]
    taken = [(i, y + (level - 1) * pitch + 1, pitch - 2) for i, level, good in marks if good]
    refused = [(i, y + (level - 0.5) * pitch - 0.75, 1.5) for i, level, good in marks if not good]
    parts = [_heading("acceptance", "by depth", y, colors), axis.bars(taken, ACCEPTED), axis.bars(refused, REFUSED)]
    for level, (drafted, accepted) in zip(levels, counts, strict=True):
        at, share = y + (level - 1) * pitch, accepted / drafted
        style = f"fill:{ACCEPTED};fill-opacity:.55"
        parts.append(small(level, LEFT - 6, at + 10, colors, text_anchor="end"))
        parts.append(markup.tag("rect", x=FIGURES, y=at + 1, width=70 * share, height=pitch - 2, style=style))
        parts.append(markup.text(f"{share:.0%}", FIGURES + 104, at + 10, text_anchor="end", style="font-size:10px"))
        parts.append(small(f"{accepted} of {drafted}", FIGURES + 114, at + 10, colors))
    high = len(counts) * pitch
    parts.append(small("bar: accepted at depth; line: drafted at depth", LEFT, y + high + 12, colors))
    parts.append(small("accepted / drafted at this depth", FIGURES, y + high + 12, colors))
    return "".join(parts), high + 10


def seconds_panel(axis: Axis, y: float) -> tuple[str, float]:
    """Milliseconds per iteration, stacked by phase."""
    total, colors, high = phase_seconds(axis.steps), axis.colors, 72.0
    if not total:
        return "", 0.0
    top = nice(1000 * max([sum(step.seconds.values()) for step in axis.shown]))
    parts = [_heading("time", "ms per iteration", y, colors), _scale(top, high, y, colors)]
    base = [y + high] * len(axis.shown)
    for name in total:
        boxes = []
        for i, step in enumerate(axis.shown):
            tall = high * 1000 * step.seconds.get(name, 0.0) / top
            base[i] -= tall
            boxes.append((i, base[i], tall))
        parts.append(axis.bars(boxes, PHASE_COLORS.get(name, OTHER)))
    whole = sum(total.values())
    for row, (name, spent) in enumerate(reversed(total.items())):
        at = y + 8 + 14 * row
        style = f"fill:{PHASE_COLORS.get(name, OTHER)}"
        parts.append(markup.tag("rect", x=FIGURES, y=at - 9, width=10.0, height=10.0, style=style))
        figure = f"{name} {1000 * spent / len(axis.steps):.2f} ms, {spent / whole:.0%}"
        parts.append(markup.text(figure, FIGURES + 16, at, style="font-size:10px"))
    parts.append(small("mean per iteration; share of all", FIGURES, y + 10 + 14 * len(total), colors))
    return "".join(parts), max(high, 14.0 * len(total) + 6)


def adapted(steps: Sequence[Step]) -> tuple[str, ...]:
    """The numeric settings that changed during the run."""
    names = dict.fromkeys(
        name
        for step in steps
        for name, value in step.adaptation.after.items()
        if step.adaptation.before.get(name) != value
    )
    return tuple([name for name in names if all(isinstance(step.settings.get(name), int | float) for step in steps)])


def settings_panel(axis: Axis, y: float) -> tuple[str, float]:
    """One step line per setting, over its own range, with its first and its newest value."""
    names, colors = adapted(axis.steps)[:SETTINGS], axis.colors
    parts = [_heading("settings", "adapted", y, colors)] if names else []
    for row, name in enumerate(names):
        values = [float(step.settings[name] or 0) for step in axis.shown]
        low, high, top = min(values), max(values), y + 30 * row
        line = "".join(
            [
                f"{'L' if i else 'M'}{markup.number(axis.x(i))} {top + 18 - 14 * (value - low) / (high - low or 1):.1f}"
                f"H{markup.number(axis.x(i + 1))}"
                for i, value in enumerate(values)
            ]
        )
        parts.append(markup.tag("path", d=line, style=f"fill:none;stroke:{colors.ink};stroke-width:1.5"))
        parts.append(small(f"{values[0]:g}", LEFT - 6, top + 16, colors, text_anchor="end"))
        label = f"{name.replace('_', ' ')} {values[-1]:g}"
        parts.append(markup.text(label, FIGURES, top + 16, style="font-weight:600;font-size:12px"))
    if names:
        parts.append(small("in force in the newest iteration", FIGURES, y + 30 * len(names), colors))
    return "".join(parts), 30.0 * len(names) + (4 if names else 0)


def iterations_axis(axis: Axis, y: float) -> str:
    """The axis, and over the whole height a tooltip for every iteration."""
    every, colors = max(1, axis.span // 12), axis.colors
    parts = [markup.text("iteration", NAMES, y + 14, text_anchor="end")]
    for i, step in enumerate(axis.shown):
        number, middle = step.index + 1, axis.x(i) + WIDE / axis.span / 2
        if number % every == 0 or len(axis.shown) == 1:
            parts.append(markup.text(number, middle, y + 14, text_anchor="middle"))
        counts = f"{step.counts.drafted} drafted, {len(step.accepted)} accepted, {len(step.committed)} committed"
        tip = f"iteration {number}: {counts}; {1000 * sum(step.seconds.values()):.2f} ms"
        area = {"x": axis.x(i), "y": 8.0, "width": WIDE / axis.span, "height": y - 8, "fill_opacity": 0}
        parts.append(markup.tag("rect", markup.title(tip), data_iteration=number, **area))
    rule = markup.tag("path", d=f"M{LEFT:g} {markup.number(y)}h{WIDE:g}", style=f"stroke:{colors.line}")
    return markup.tag("g", rule, *parts, style=f"fill:{colors.muted};font-size:10px")


MOST, LEAST = 130, 12
"""Iterations drawn at most (the newest), and the room kept at least: a first bar is not as wide as the page."""
UNITS = {"throughput": " tokens/s", "ttft": " s", "tpot": " s"}
COUNTS = {"iterations", "target_calls", "draft_calls"}


def metrics_at(trace: Trace, cursor: int | None = None) -> Metrics:
    """The metrics of the first `cursor` iterations."""
    return Metrics(sum([step.counts for step in trace.steps[:cursor]], Counts()), trace.prefill_seconds)


def definition(name: str) -> str:
    """What a metric means: the docstring of its property."""
    if name == "ttft":  # a field, and fields carry no docstring
        return "Time to first token as felt: from the call to the first token, prefill included. Seconds."
    return inspect.cleandoc(getattr(Metrics, name).__doc__ or "")


def summary(trace: Trace, cursor: int | None = None) -> str:
    """One sentence, such as: Metrics after 12 iterations: 3.42 tokens per iteration, 28% …, 412 tokens/s."""
    figures = metrics_at(trace, cursor)
    if not figures.iterations:
        return "Metrics: no iteration yet."
    return (
        f"Metrics after {plural(figures.iterations, 'iteration')}: {figures.tokens_per_iteration:.2f} tokens per "
        f"iteration, {figures.acceptance_rate:.0%} of drafted tokens accepted, {figures.throughput:.0f} tokens/s."
    )


def metrics_table(trace: Trace, cursor: int | None = None) -> str:
    """Every metric with its value and its definition, as an HTML table."""
    figures = metrics_at(trace, cursor).as_dict()
    rows = ((name.replace("_", " "), _written(name, value), definition(name)) for name, value in figures.items())
    caption = f"Metrics after {plural(len(trace.steps[:cursor]), 'iteration')}"
    return markup.table(caption, ("metric", "value", "definition"), rows)


def _written(name: str, value: float) -> str:
    return f"{value:.0f}" if name in COUNTS else f"{value:.4g}{UNITS.get(name, '')}"


def metrics_svg(
    trace: Trace, cursor: int | None = None, theme: ThemeName = "light", *, plain: Plain | None = None
) -> str:
    """The panels as one SVG string.

    `plain`: plain decoding's time where it was measured; else it is modelled from this run, and called so.
    """
    colors, steps, width = css(theme), trace.steps[:cursor], LEFT + WIDE + ASIDE
    if not steps:
        text = markup.text("no iteration yet", 12, 24, style=f"fill:{colors.muted}")
        return markup.svg(width, 40, summary(trace, cursor), colors, [text])
    axis = Axis(steps, steps[-MOST:], max(LEAST, min(len(trace.steps), MOST)), colors)
    y, parts = 14.0, []
    for draw in (tokens_panel, depths_panel, seconds_panel, settings_panel):
        part, height = draw(axis, y)
        parts.append(part)
        y += height + (26 if height else 0)
    parts.append(iterations_axis(axis, y - 12))
    strip, height = clock_strip(steps, plain or modelled_plain(steps), LEFT, y + 26, WIDE, colors)
    return markup.svg(width, y + 34 + height, summary(trace, cursor), colors, [*parts, strip])
