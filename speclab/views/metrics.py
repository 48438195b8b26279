"""The run so far over its iterations, on one x axis: tokens, acceptance by depth, seconds by phase, adapted settings.

Under every figure stands its definition, taken from `speclab.metrics`, where it is written once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from speclab.metrics import Counts, Metrics
from speclab.trace import Step, Trace
from speclab.views import glyphs, markup, walk
from speclab.views.clock import Plain, clock_strip, modelled_plain, phase_seconds
from speclab.views.palette import LOOKS, PHASE_COLORS, Theme, ThemeName, css
from speclab.views.summary import plural

LEFT, WIDE, ASIDE = 132.0, 520.0, 236.0
MOST, LEAST = 130, 12
"""Iterations drawn at most (the newest), and the room kept at least, so that the first bars are not as wide as a page."""
DEEPEST = 16


def metrics_at(trace: Trace, cursor: int | None = None) -> Metrics:
    """The metrics of the first `cursor` iterations."""
    return Metrics(sum((step.counts for step in trace.steps[:cursor]), Counts()), trace.prefill_seconds)


def definition(name: str) -> str:
    """What a metric means: the docstring of its property."""
    return inspect.cleandoc(getattr(Metrics, name).__doc__ or Metrics.__doc__ or name)


def summary(trace: Trace, cursor: int | None = None) -> str:
    """`Metrics after 12 iterations: 3.42 tokens per iteration, 28% of drafted tokens accepted, 412 tokens/s.`"""
    figures = metrics_at(trace, cursor)
    if not figures.iterations:
        return "Metrics: no iteration yet."
    return (
        f"Metrics after {plural(figures.iterations, 'iteration')}: {figures.tokens_per_iteration:.2f} tokens per iteration, "
        f"{figures.acceptance_rate:.0%} of drafted tokens accepted, {figures.throughput:.0f} tokens/s."
    )


def metrics_table(trace: Trace, cursor: int | None = None) -> str:
    """Every metric with its value and its definition, as an HTML table."""
    figures = metrics_at(trace, cursor).as_dict()
    rows = ((name.replace("_", " "), _figure(name, value), _definition(name)) for name, value in figures.items())
    return markup.table(f"Metrics after {plural(len(trace.steps[:cursor]), 'iteration')}", ("metric", "value", "definition"), rows)


table = metrics_table


def _definition(name: str) -> str:
    return _PREFILL if name == "ttft" else definition(name)


_PREFILL = "Time to first token as felt: from the call to the first token, prefill included. Seconds."


def _figure(name: str, value: float) -> str:
    if name in {"iterations", "target_calls", "draft_calls"}:
        return f"{value:.0f}"
    return f"{value:.4f}" if name in {"ttft", "tpot"} else f"{value:.3f}"


def depth_counts(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """For each depth from 1: (iterations that drafted so deep, iterations that accepted so deep)."""
    drafted = [int(step.tree.depth.max()) + (not walk.verified_root(step)) for step in steps]
    deepest = max(drafted, default=0)
    return [
        (sum(d >= level for d in drafted), sum(len(step.accepted) >= level for step in steps))
        for level in range(1, deepest + 1)
    ]


def metrics_svg(
    trace: Trace, cursor: int | None = None, theme: ThemeName = "light", *, plain: Plain | None = None
) -> str:
    """The panels as one SVG string. `plain`: plain decoding's time, if it was measured; modelled from the run if not."""
    colors = css(theme)
    steps = trace.steps[:cursor]
    if not steps:
        return markup.svg(LEFT + WIDE + ASIDE, 40, summary(trace, cursor), colors, [markup.text("no iteration yet", 8, 24)])
    shown = steps[-MOST:]
    span = max(LEAST, min(len(trace.steps), MOST))
    y, parts = 12.0, []
    for panel in (_tokens, _depths, _seconds, _settings):
        part, height = panel(shown, steps, span, y, colors)
        parts.append(part)
        y += height + (26 if height else 0)
    parts.append(_axis(shown, span, y - 14, colors))
    strip, height = clock_strip(steps, plain or modelled_plain(steps), LEFT, y + 26, WIDE + 60, colors)
    parts.append(strip)
    return markup.svg(LEFT + WIDE + ASIDE, y + 34 + height, summary(trace, cursor), colors, parts)


def _x(i: int, span: int) -> float:
    return LEFT + i * WIDE / span


def _bar(i: int, span: int, y: float, height: float, color: str, tip: str = "") -> str:
    pitch = WIDE / span
    gap = min(3.0, 0.2 * pitch)
    return markup.tag(
        "rect", markup.title(tip) if tip else "", x=_x(i, span) + gap / 2, y=y, width=pitch - gap, height=height, style=f"fill:{color}"
    )  # fmt: skip


def _heading(name: str, unit: str, y: float, colors: Theme) -> str:
    label = markup.text(name, LEFT - 40, y + 12, text_anchor="end", style="font-weight:600")
    return label + markup.text(unit, LEFT - 40, y + 26, text_anchor="end", style=f"fill:{colors.muted};font-size:10px")


def _scale(top: float, high: float, y: float, colors: Theme, form: Callable[[float], str] = lambda v: f"{v:g}") -> str:
    """Ticks at nothing, half and all, with faint rules."""
    parts = []
    for share in (0.0, 0.5, 1.0):
        at = y + high * (1 - share)
        parts.append(markup.tag("path", d=f"M{LEFT:g} {markup.number(at)}h{WIDE:g}", style=f"stroke:{colors.faint}"))
        parts.append(markup.text(form(top * share), LEFT - 6, at + 4, text_anchor="end", style=f"fill:{colors.muted};font-size:10px"))
    return "".join(parts)


def _aside(lines: Sequence[tuple[str, str]], y: float, colors: Theme) -> str:
    """Figures to the right of a panel, each with its definition under it."""
    parts = []
    for i, (figure, meaning) in enumerate(lines):
        at = y + 10 + 32 * i
        parts.append(markup.text(figure, LEFT + WIDE + 18, at, style="font-weight:600;font-size:12px"))
        parts.append(markup.text(meaning, LEFT + WIDE + 18, at + 14, style=f"fill:{colors.muted};font-size:10px"))
    return "".join(parts)


def _tokens(shown: Sequence[Step], steps: Sequence[Step], span: int, y: float, colors: Theme) -> tuple[str, float]:
    high = 84.0
    top = max(4, max(len(step.committed) for step in shown))
    top += top % 2
    parts = [_heading("tokens", "per iteration", y, colors), _scale(top, high, y, colors)]
    for i, step in enumerate(shown):
        own = len(step.committed) - min(len(step.accepted), len(step.committed))
        drafted = len(step.committed) - own
        unit = high / top
        tip = f"iteration {step.index + 1}: {drafted} accepted, {own} the target's own"
        base = y + high - drafted * unit
        parts.append(_bar(i, span, base, drafted * unit, LOOKS["accepted"].color, tip) if drafted else "")
        parts.append(_bar(i, span, base - own * unit, own * unit, LOOKS["bonus"].color, tip) if own else "")
    figures = Metrics(sum((step.counts for step in steps), Counts()))
    mean = y + high * (1 - min(figures.tokens_per_iteration / top, 1))
    parts.append(markup.tag("path", d=f"M{LEFT:g} {markup.number(mean)}h{WIDE:g}", style=f"stroke:{colors.ink};stroke-dasharray:5 4"))
    aside = [
        (f"{figures.tokens_per_iteration:.2f} tokens per iteration", "committed / verification passes (dashed)"),
        (f"{figures.acceptance_rate:.0%} acceptance rate", "accepted / drafted tokens"),
    ]
    key, _ = glyphs.legend(
        [(glyphs.swatch(f"fill:{LOOKS['accepted'].color}"), "accepted", 12.0), (glyphs.swatch(f"fill:{LOOKS['bonus'].color}"), "the target's own", 12.0)],
        LEFT + WIDE + 18, y + high - 8, ASIDE - 20,
    )  # fmt: skip
    return "".join([*parts, _aside(aside, y, colors), markup.tag("g", key, style=f"fill:{colors.muted}")]), high


def _depths(shown: Sequence[Step], steps: Sequence[Step], span: int, y: float, colors: Theme) -> tuple[str, float]:
    counts = depth_counts(steps)[:DEEPEST]
    if not counts:
        return "", 0.0
    pitch = 13.0
    parts = [_heading("acceptance", "by depth", y, colors)]
    for level, (drafted, accepted) in enumerate(counts, start=1):
        at = y + (level - 1) * pitch
        parts.append(markup.text(level, LEFT - 6, at + 10, text_anchor="end", style=f"fill:{colors.muted};font-size:10px"))
        for i, step in enumerate(shown):
            reached = int(step.tree.depth.max()) + (not walk.verified_root(step))
            if level <= len(step.accepted):
                parts.append(_bar(i, span, at + 1, pitch - 2, LOOKS["accepted"].color))
            elif level <= reached:
                parts.append(_bar(i, span, at + pitch / 2 - 0.75, 1.5, LOOKS["rejected"].color))
        share = accepted / drafted if drafted else 0.0
        parts.append(markup.tag("rect", x=LEFT + WIDE + 18, y=at + 1, width=70 * share, height=pitch - 2, style=f"fill:{LOOKS['accepted'].color};fill-opacity:.55"))
        parts.append(markup.text(f"{share:.0%}", LEFT + WIDE + 92, at + 10, style="font-size:10px"))
        parts.append(markup.text(f"{accepted} of {drafted}", LEFT + WIDE + 128, at + 10, style=f"fill:{colors.muted};font-size:10px"))
    high = len(counts) * pitch
    parts.append(markup.text("accepted so deep / drafted so deep (bar: accepted, line: drafted)", LEFT, y + high + 12, style=f"fill:{colors.muted};font-size:10px"))
    return "".join(parts), high + 8


def _seconds(shown: Sequence[Step], steps: Sequence[Step], span: int, y: float, colors: Theme) -> tuple[str, float]:
    high = 72.0
    top = max(sum(step.seconds.values()) for step in shown) * 1000
    if not top:
        return "", 0.0
    parts = [_heading("time", "ms per iteration", y, colors), _scale(top, high, y, colors, lambda v: f"{v:.3g}")]
    total = phase_seconds(steps)
    for i, step in enumerate(shown):
        at = y + high
        for name in total:
            tall = high * 1000 * step.seconds.get(name, 0.0) / top
            at -= tall
            tip = f"iteration {step.index + 1}: {name} {1000 * step.seconds.get(name, 0.0):.2f} ms"
            if tall >= 0.3:
                parts.append(_bar(i, span, at, tall, PHASE_COLORS.get(name, "#999999"), tip))
    whole = sum(total.values())
    for row, (name, seconds) in enumerate(reversed(total.items())):
        at = y + 8 + 14 * row
        swatch = markup.tag("g", glyphs.swatch(f"fill:{PHASE_COLORS.get(name, '#999999')}"), transform=f"translate({LEFT + WIDE + 24:g} {at - 4:g}) scale(.8)")
        figure = f"{name} {1000 * seconds / len(steps):.2f} ms, {seconds / whole:.0%}"
        parts += [swatch, markup.text(figure, LEFT + WIDE + 36, at, style="font-size:10px")]
    parts.append(markup.text("mean per iteration; share of all", LEFT + WIDE + 18, y + 8 + 14 * len(total), style=f"fill:{colors.muted};font-size:10px"))
    return "".join(parts), max(high, 14.0 * len(total))


def adapted(steps: Sequence[Step]) -> tuple[str, ...]:
    """The numeric settings that changed during the run."""
    changed = dict.fromkeys(name for step in steps for name in step.adaptation.after)
    return tuple(name for name in changed if all(isinstance(step.settings.get(name), int | float) for step in steps))


def _settings(shown: Sequence[Step], steps: Sequence[Step], span: int, y: float, colors: Theme) -> tuple[str, float]:
    """One step line a setting, over its own range, with its first and last value."""
    names = adapted(steps)[:6]
    parts = [_heading("settings", "adapted", y, colors)] if names else []
    for row, name in enumerate(names):
        values = [float(step.settings[name] or 0) for step in shown]
        low, high = min(values), max(values)
        top = y + 30 * row
        line = "M" + "H".join(
            f"{markup.number(_x(i, span))} {markup.number(top + 20 - 16 * (value - low) / (high - low or 1))}H{markup.number(_x(i + 1, span))}L"
            for i, value in enumerate(values)
        ).replace("LH", "L").removesuffix("L")
        parts.append(markup.tag("path", d=line, style=f"fill:none;stroke:{colors.ink};stroke-width:1.5"))
        parts.append(markup.text(f"{values[0]:g}", LEFT - 6, top + 16, text_anchor="end", style=f"fill:{colors.muted};font-size:10px"))
        parts.append(markup.text(f"{name.replace('_', ' ')} {values[-1]:g}", LEFT + WIDE + 18, top + 16, style="font-weight:600"))
    return "".join(parts), 30.0 * len(names)


def _axis(shown: Sequence[Step], span: int, y: float, colors: Theme) -> str:
    every = max(1, span // 12)
    ticks = [
        markup.text(step.index + 1, _x(i, span) + WIDE / span / 2, y + 14, text_anchor="middle")
        for i, step in enumerate(shown)
        if (step.index + 1) % every == 0 or i == len(shown) - 1 == 0
    ]
    name = markup.text("iteration", LEFT - 40, y + 14, text_anchor="end")
    rule = markup.tag("path", d=f"M{LEFT:g} {markup.number(y)}h{WIDE:g}", style=f"stroke:{colors.line}")
    return markup.tag("g", rule, name, *ticks, style=f"fill:{colors.muted};font-size:10px")
