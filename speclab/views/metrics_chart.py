"""The run so far on one axis of iterations: tokens, acceptance by depth, seconds by phase, adapted settings.

Beside every figure stands its definition; below, this run's measured time beside plain decoding's, modelled.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from speclab.trace.metrics import Counts, Metrics
from speclab.trace.records import Step, Trace
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import CLEAR, FAINT, INK, MUTED, PAPER, Part, Spec, axis, coded, escape, note, spec
from speclab.views.iterations import bars, iterations_axis, window
from speclab.views.palette import LOOKS, PHASE_COLORS
from speclab.views.playback import PHASES

DEEPEST, SETTINGS = 16, 6
"""Depths and settings shown at most."""
GAP, RIGHT = 34, 218
"""Pixels above a panel, for its name, and beside it, for its figures."""
ACCEPTED, OWN = LOOKS["accepted"].color, LOOKS["bonus"].color
UNITS = {"throughput": " tokens/s", "ttft": " s", "tpot": " s"}
MODEL = "modelled: one pass per token, each as long as the shortest verification pass of this run"
"""Where the seconds of plain decoding come from."""


def modelled_plain(steps: Sequence[Step]) -> float | None:
    """Seconds per token of plain decoding, as `MODEL` has it: so long at least, where no other work is done."""
    return min([step.seconds["verify"] for step in steps if step.seconds.get("verify")], default=None)


def phase_seconds(steps: Sequence[Step]) -> dict[str, float]:
    """Seconds per phase, in the order of the phases; a phase that took no time is left out."""
    names = dict.fromkeys([*PHASES, *[name for step in steps for name in step.seconds]])
    total = {name: sum([step.seconds.get(name, 0.0) for step in steps]) for name in names}
    return {name: seconds for name, seconds in total.items() if seconds > 0}


def duration(seconds: float) -> str:
    """`4.2 ms`, `1.38 s`."""
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def depth_counts(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """For each depth from 1: (iterations that drafted so deep, iterations that accepted so deep)."""
    drafted = [step.counts.longest_path for step in steps]
    return [
        (sum([d >= level for d in drafted]), sum([len(step.accepted) >= level for step in steps]))
        for level in range(1, max(drafted, default=0) + 1)
    ]


def adapted(steps: Sequence[Step]) -> tuple[str, ...]:
    """The numeric settings that changed during the run."""
    changes = [step.adaptation for step in steps]
    names = dict.fromkeys([name for one in changes for name in one.after if one.before.get(name) != one.after[name]])
    return tuple([name for name in names if all(isinstance(step.settings.get(name), int | float) for step in steps)])


class _Panel(NamedTuple):
    """Traces over the iterations, `height` pixels high; `aside`: what stands beside it. Both texts are markup."""

    name: str
    height: float
    traces: list[Spec]
    aside: str
    axis: Spec


def metrics_spec(trace: Trace, cursor: int | None = None) -> Spec:
    """Panels over one axis of iterations; a click goes to an iteration, those after the cursor are fainter."""
    cursor = len(trace.steps) if cursor is None else cursor
    (first, shown), done = window(trace, cursor), trace.steps[:cursor]
    end, across = first + len(shown), iterations_axis(first, len(shown))
    panels: list[_Panel] = []
    if cursor:
        panels = [_tokens(shown, done, first), *_depths(shown, done, across["range"][1]), *_seconds(shown, done)]
        panels += _settings(shown, done)
    gaps, bottom = [GAP if panel.name else 8 for panel in panels], 40
    height, y = sum(gaps) + sum([panel.height for panel in panels]), 0.0
    data: list[Spec] = []
    axes: Spec = {}
    notes: list[Spec] = []
    for number, (gap, panel) in enumerate(zip(gaps, panels, strict=True), 1):
        top, low, key = 1 - (y + gap) / height, 1 - (y + gap + panel.height) / height, "" if number == 1 else number
        data += [{"x0": first + 1, "dx": 1, **one, "yaxis": f"y{key}"} for one in panel.traces]
        look = {"domain": [max(0.0, low), top], "rangemode": "tozero", "fixedrange": True, "nticks": 4, **panel.axis}
        axes[f"yaxis{key}"], across["anchor"] = axis(**look), f"y{key}"
        notes += [note(panel.name, 0, top, yshift=4)] if panel.name else []
        notes += [note(panel.aside, 1, top, yanchor="top", xshift=10, align="left")] if panel.aside else []
        y += gap + panel.height
    veil = {"type": "rect", "xref": "x", "yref": "paper", "x0": cursor + 0.5, "x1": end + 0.5, "y0": 0, "y1": 1,
            "fillcolor": PAPER, "opacity": 0.65, "line": {"width": 0}}  # fmt: skip
    return spec(
        data, label=summary(trace, cursor), height=height + bottom if panels else 60, meta={"name": "metrics"},
        margin={"l": 44, "r": RIGHT, "t": 0, "b": bottom}, barmode="stack", bargap=0.15, hovermode="x",
        hoversubplots="axis", hoverdistance=-1, dragmode=False, shapes=[veil] if cursor < end else [],
        annotations=notes, xaxis={**across, "title": {"text": "iteration", "standoff": 4}}, **axes,
    )  # fmt: skip


def _sign(color: str, name: str) -> str:
    return f'<span style="color:{color}">■</span> {escape(name)}'


def _tokens(shown: Sequence[Step], done: Sequence[Step], first: int) -> _Panel:
    """Accepted tokens, on top of them the target's own, the mean until the cursor, and a sentence on each iteration."""
    committed, phases = [len(step.committed) for step in shown], [*phase_seconds(shown)]
    accepted = [min(len(step.accepted), count) for step, count in zip(shown, committed, strict=True)]
    metrics = Metrics(_total(done))
    mean = round(metrics.tokens_per_iteration, 3)
    line = {"type": "scatter", "mode": "lines", "x": [first + 0.5, len(done) + 0.5], "y": [mean, mean],
            "line": {"color": INK, "width": 1.5, "dash": "dash"}, "hoverinfo": "skip"}  # fmt: skip
    rows = [
        [step.index + 1, step.counts.drafted, len(step.accepted), len(step.committed),
         *(round(1000 * step.seconds.get(name, 0.0), 2) for name in phases)]
        for step in shown
    ]  # fmt: skip
    times = ", ".join([f"{name} %{{customdata[{i}]}}" for i, name in enumerate(phases, 4)])
    said = "Iteration %{customdata[0]}: %{customdata[1]} drafted, %{customdata[2]} accepted, %{customdata[3]} committed"
    tips = {
        "type": "scatter", "mode": "markers", "y": committed, "marker": {"color": CLEAR, "size": 9},
        "customdata": rows, "meta": {"click": "iteration"},
        "hovertemplate": said + (f"<br>ms: {times}" if phases else "") + "<extra></extra>",
    }  # fmt: skip
    aside = f"<b>{mean:.2f} tokens per iteration</b><br>committed / verification passes<br>"
    aside += f"<b>{metrics.acceptance_rate:.0%} acceptance rate</b><br>accepted / drafted tokens"
    name = f"<b>Tokens per iteration</b>   {_sign(ACCEPTED, 'accepted')}   {_sign(OWN, 'the target’s own')}   ╌ mean"
    own = [count - drafted for count, drafted in zip(committed, accepted, strict=True)]
    return _Panel(name, 96, [bars(accepted, ACCEPTED), bars(own, OWN), line, tips], aside, {})


def _depths(shown: Sequence[Step], done: Sequence[Step], end: float) -> list[_Panel]:
    """One row per depth: a dark cell where the iteration accepted so deep, a pale one where it drafted so deep."""
    counts = depth_counts(done)[:DEEPEST]
    if not counts:
        return []
    levels = np.arange(1, len(counts) + 1)[:, None]  # [depths, 1]
    drafted = np.array([step.counts.longest_path for step in shown])[None]  # [1, iterations]
    taken = np.array([len(step.accepted) for step in shown])[None]
    cells = (levels <= drafted).astype(np.uint8) + (levels <= np.minimum(taken, drafted))
    look = {"y0": 1, "dy": 1, "xgap": 1, "ygap": 1, "hoverinfo": "skip"}
    heat = coded(cells.astype(np.uint8), (CLEAR, FAINT, ACCEPTED), ("", "drafted", "accepted"), **look)
    rates = [f"  <b>{taken / drafted:.0%}</b> · {taken} of {drafted}" for drafted, taken in counts]
    words = {"type": "scatter", "mode": "text", "x": [end] * len(counts), "y0": 1, "dy": 1, "text": rates,
             "textposition": "middle right", "cliponaxis": False, "hoverinfo": "skip",
             "textfont": {"size": 11}}  # fmt: skip
    name = f"<b>Acceptance by depth</b>   {_sign(ACCEPTED, 'accepted at depth')}   □ only drafted"
    rows = {"range": [len(counts) + 0.5, 0.5], "showgrid": False, "dtick": max(1, len(counts) // 5), "tick0": 1,
            "tickformat": "d", "nticks": 0}  # fmt: skip
    return [_Panel(name, max(15 * len(counts), 30), [heat, words], "", rows)]


def _seconds(shown: Sequence[Step], done: Sequence[Step]) -> list[_Panel]:
    """Milliseconds per iteration, stacked by phase."""
    total = phase_seconds(done)
    if not total:
        return []
    traces = [bars([round(1000 * step.seconds.get(name, 0.0), 2) for step in shown], _color(name)) for name in total]
    rows = [
        f"{_sign(_color(name), name)} <b>{1000 * spent / len(done):.2f} ms</b>, {spent / sum(total.values()):.0%}"
        for name, spent in reversed(total.items())
    ]
    aside = "<br>".join([*rows, "mean per iteration, share of all"])
    return [_Panel("<b>Milliseconds per iteration</b>   measured, by phase", 100, traces, aside, {})]


def _color(phase: str) -> str:
    return PHASE_COLORS.get(phase, LOOKS["not reached"].color)


def _settings(shown: Sequence[Step], done: Sequence[Step]) -> list[_Panel]:
    """One step line per adapted setting, over its own range."""
    panels: list[_Panel] = []
    for name in adapted(done)[:SETTINGS]:
        values = [float(step.settings[name] or 0) for step in shown]
        low, high = min(values), max(values)
        room = 0.1 * (high - low) or 1.0
        line = {"type": "scatter", "mode": "lines", "y": [float(f"{value:.4g}") for value in values],
                "line": {"shape": "hvh", "color": INK, "width": 1.5}, "hoverinfo": "skip"}  # fmt: skip
        now = f"{name.replace('_', ' ')} {done[-1].settings[name]:g}"
        look = {"range": [low - room, high + room], "tickvals": sorted({low, high}), "tickformat": "~g"}
        title = "" if panels else "<b>Settings that were adapted</b>   as in force in each iteration"
        panels.append(_Panel(title, 30, [line], f"<b>{escape(now)}</b><br>{values[0]:g} at first", look))
    return panels


def clock_spec(steps: Sequence[Step]) -> Spec:
    """Two bars on one axis of time: this run by phases, and plain decoding of as many tokens."""
    parts, plain = phase_seconds(steps), modelled_plain(steps)
    ends = {(ours := "this run, measured"): (mine := sum(parts.values()))}
    found: list[tuple[str, float, Spec, str]] = [
        (ours, spent, {"color": _color(name)}, f"{name}: {duration(spent)}, {spent / mine:.0%} of this run")
        for name, spent in parts.items()
    ]
    if plain:  # hatched: no one measured it
        theirs = ends["plain decoding, modelled"] = plain * _total(steps).committed
        hatch = {"shape": "/", "fgcolor": MUTED, "size": 7, "solidity": 0.12}
        look = {"color": CLEAR, "line": {"color": MUTED, "width": 1.5}, "pattern": hatch}
        found.append(("plain decoding, modelled", theirs, look, f"{MODEL}: {duration(theirs)}"))
    unit, name = (1000, "ms") if max(ends.values()) < 1 else (1, "s")
    data: list[Spec] = [
        {"type": "bar", "orientation": "h", "y": [row], "x": [round(seconds * unit, 3)], "marker": look,
         "hovertemplate": f"{escape(tips)}<extra></extra>"}
        for row, seconds, look, tips in found
    ]  # fmt: skip
    data.append({"type": "scatter", "mode": "text", "y": [*ends], "cliponaxis": False, "hoverinfo": "skip",
                 "x": [round(seconds * unit, 3) for seconds in ends.values()], "textposition": "middle right",
                 "text": [f" <b>{duration(seconds)}</b>" for seconds in ends.values()]})  # fmt: skip
    return spec(
        data, label=clock_sentence(steps), height=52 + 26 * len(ends), barmode="stack", bargap=0.3,
        meta={"name": "wall-clock", "bare": True}, dragmode=False, margin={"l": 176, "r": 70, "t": 6, "b": 36},
        xaxis={"rangemode": "tozero", "fixedrange": True, "ticksuffix": f" {name}", "nticks": 8},
        yaxis={"autorange": "reversed", "fixedrange": True, "tickfont": {"size": 12}, "categoryorder": "array",
               "categoryarray": [*ends]},
    )  # fmt: skip


def clock_sentence(steps: Sequence[Step]) -> str:
    """How much faster than plain decoding, which is modelled."""
    count, plain = _total(steps).committed, modelled_plain(steps)
    if not plain:
        return f"{plural(count, 'token')}; plain decoding was not measured."
    ratio = plain * count / sum(phase_seconds(steps).values())
    speed = f"at most {ratio:.2f}× the speed of plain decoding"
    return f"{plural(count, 'token')}, prefill excluded: {speed} ({MODEL})."


def metrics_drawing(trace: Trace, cursor: int | None = None) -> list[Part]:
    """The panels, then the clock."""
    steps = trace.steps[:cursor]
    if not steps:
        return [markup.tag("div", markup.escape(summary(trace, cursor)), class_="sl-empty")]
    words = markup.tag("p", markup.escape(clock_sentence(steps)), class_="sl-note")
    return [metrics_spec(trace, cursor), clock_spec(steps), words]


def metrics_at(trace: Trace, cursor: int | None = None) -> Metrics:
    """The metrics of the first `cursor` iterations."""
    return Metrics(_total(trace.steps[:cursor]), trace.prefill_seconds)


def _total(steps: Sequence[Step]) -> Counts:
    """Their sum, column by column: many iterations are added up each time that a picture is drawn."""
    return Counts(*map(sum, zip(*[_columns(step.counts) for step in steps], strict=True)))


_columns = attrgetter(*Counts.__dataclass_fields__)


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
    counts = {"iterations", "target_calls", "draft_calls"}
    rows = (
        (name.replace("_", " "), f"{value:.{'0f' if name in counts else '4g'}}{UNITS.get(name, '')}", definition(name))
        for name, value in metrics_at(trace, cursor).as_dict().items()
    )
    caption = f"Metrics after {plural(len(trace.steps[:cursor]), 'iteration')}"
    return markup.table(caption, ("metric", "value", "definition"), rows)
