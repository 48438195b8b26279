"""The run so far on one axis of iterations: tokens, acceptance by depth, seconds by phase, adapted settings.

Beside every figure stands its definition; below, this run's time beside plain decoding's, measured or modelled.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from speclab.trace.metrics import Counts, Metrics
from speclab.trace.records import Step, Trace
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import FAINT, INK, MUTED, PAPER, Part, Spec, axis, escape, note, spec, table_of
from speclab.views.iterations import LEAST, ticks, window
from speclab.views.palette import LOOKS, PHASE_COLORS
from speclab.views.playback import PHASES

DEEPEST, SETTINGS = 16, 6
"""Depths and settings shown at most."""
GAP, RIGHT = 34, 218
"""Pixels above a panel, for its name, and beside it, for its figures."""
ACCEPTED, OWN = LOOKS["accepted"].color, LOOKS["bonus"].color
UNITS = {"throughput": " tokens/s", "ttft": " s", "tpot": " s"}
COUNTS = {"iterations", "target_calls", "draft_calls"}


@dataclass(frozen=True, slots=True)
class Plain:
    """Plain decoding with the same target: seconds per token, whether that was measured or modelled, and how."""

    seconds_per_token: float
    how: Literal["measured", "modelled"]
    note: str


def modelled_plain(steps: Sequence[Step]) -> Plain | None:
    """An upper bound from this run: one target pass per token, each as long as the shortest verification pass here."""
    passes = [step.seconds["verify"] for step in steps if step.seconds.get("verify")]
    note = "one pass per token, each as long as the shortest verification pass of this run"
    return Plain(min(passes), "modelled", note) if passes else None


def phase_seconds(steps: Sequence[Step]) -> dict[str, float]:
    """Seconds per phase, in the order of the phases; a phase that took no time is left out."""
    total: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    for step in steps:
        for name, seconds in step.seconds.items():
            total[name] = total.get(name, 0.0) + seconds
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


@dataclass(frozen=True, slots=True)
class Panel:
    """Traces over the iterations, `height` pixels high; `aside`: what stands beside it, already plotly's markup."""

    name: str
    height: float
    traces: Sequence[dict[str, Any]]
    aside: str = ""
    axis: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The iterations drawn, of which `done` are those until the cursor; `first` of the run are not drawn."""

    first: int
    shown: Sequence[Step]
    done: Sequence[Step]

    def bars(self, values: Sequence[float], color: str) -> dict[str, Any]:
        """A bar for every iteration drawn."""
        look = {"color": color, "line": {"width": 0}}
        return {"type": "bar", **self.x, "y": values, "marker": look, "hoverinfo": "skip"}

    @property
    def x(self) -> dict[str, int]:
        """Where the values of a trace stand."""
        return {"x0": self.first + 1, "dx": 1}


def metrics_spec(trace: Trace, cursor: int | None = None) -> Spec:
    """Panels over one axis of iterations; a click goes to an iteration, those after the cursor are fainter."""
    cursor = len(trace.steps) if cursor is None else cursor
    first, shown = window(trace, cursor)
    drawn = Drawn(first, shown, trace.steps[:cursor])
    panels = [_tokens(drawn), *_depths(drawn), *_seconds(drawn), *_settings(drawn)] if cursor else []
    height, bottom = sum([panel.height + (GAP if panel.name else 8) for panel in panels]), 40
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    notes: list[dict[str, Any]] = []
    y = 0.0
    for number, panel in enumerate(panels, 1):
        y += GAP if panel.name else 8
        top, low = 1 - y / height, max(0.0, 1 - (y + panel.height) / height)
        key = "" if number == 1 else str(number)
        data += [{**one, "yaxis": f"y{key}"} for one in panel.traces]
        look = {"domain": [low, top], "rangemode": "tozero", "fixedrange": True, "nticks": 4, **panel.axis}
        axes[f"yaxis{key}"] = axis(**look)
        notes.append(note(panel.name, 0, top, yshift=4))
        notes.append(note(panel.aside, 1, top, yanchor="top", xshift=10, align="left"))
        y += panel.height
    end = first + len(shown)
    veil = {"type": "rect", "xref": "x", "yref": "paper", "x0": cursor + 0.5, "x1": end + 0.5, "y0": 0, "y1": 1,
            "fillcolor": PAPER, "opacity": 0.65, "line": {"width": 0}}  # fmt: skip
    axes["xaxis"] = {
        "range": [first + 0.4, first + max(len(shown), LEAST) + 0.6], "anchor": f"y{len(panels) if panels[1:] else ''}",
        "showgrid": False, "fixedrange": True, "title": {"text": "iteration", "standoff": 4},
        **ticks(len(shown)),
    }  # fmt: skip
    return spec(
        data, label=summary(trace, cursor), height=height + bottom if panels else 60, meta={"name": "metrics"},
        margin={"l": 44, "r": RIGHT, "t": 0, "b": bottom}, barmode="stack", bargap=0.15, hovermode="x",
        hoversubplots="axis", hoverdistance=-1, dragmode=False, shapes=[veil] if cursor < end else [],
        annotations=[one for one in notes if one["text"]], **axes,
    )  # fmt: skip


def _key(*entries: tuple[str, str]) -> str:
    return "   ".join([f'<span style="color:{color}">■</span> {name}' for name, color in entries])


def _figures(*pairs: tuple[str, str]) -> str:
    """Numbers, with what each means under it."""
    return "<br>".join([f"<b>{escape(value)}</b><br>{escape(meaning)}" for value, meaning in pairs])


def _tokens(drawn: Drawn) -> Panel:
    """Accepted tokens, on top of them the target's own, and the mean of the iterations until the cursor."""
    shown = drawn.shown
    accepted = [min(len(step.accepted), len(step.committed)) for step in shown]
    own = [len(step.committed) - drafted for step, drafted in zip(shown, accepted, strict=True)]
    metrics = Metrics(_total(drawn.done))
    mean = round(metrics.tokens_per_iteration, 3)
    line = {
        "type": "scatter", "mode": "lines", "x": [drawn.first + 0.5, len(drawn.done) + 0.5], "y": [mean, mean],
        "line": {"color": INK, "width": 1.5, "dash": "dash"}, "hoverinfo": "skip",
    }  # fmt: skip
    aside = _figures(
        (f"{mean:.2f} tokens per iteration", "committed / verification passes"),
        (f"{metrics.acceptance_rate:.0%} acceptance rate", "accepted / drafted tokens"),
    )
    name = f"<b>Tokens per iteration</b>   {_key(('accepted', ACCEPTED), ('the target’s own', OWN))}   ╌ mean"
    return Panel(
        name, 96, [drawn.bars(accepted, ACCEPTED), drawn.bars(own, OWN), line, _told(drawn)], aside, {"dtick": None}
    )


def _told(drawn: Drawn) -> dict[str, Any]:
    """A sentence on each iteration, wherever the pointer is above it, and where a click goes."""
    phases = [*phase_seconds(drawn.shown)]
    rows = [
        [step.index + 1, step.counts.drafted, len(step.accepted), len(step.committed),
         *(round(1000 * step.seconds.get(name, 0.0), 2) for name in phases)]
        for step in drawn.shown
    ]  # fmt: skip
    times = ", ".join([f"{name} %{{customdata[{i}]}}" for i, name in enumerate(phases, 4)])
    told = "Iteration %{customdata[0]}: %{customdata[1]} drafted, %{customdata[2]} accepted, %{customdata[3]} committed"
    return {
        "type": "scatter", "mode": "markers", **drawn.x, "y": [len(step.committed) for step in drawn.shown],
        "marker": {"color": "rgba(0,0,0,0)", "size": 9}, "customdata": rows, "meta": {"click": "iteration"},
        "hovertemplate": told + (f"<br>ms: {times}" if phases else "") + "<extra></extra>",
    }  # fmt: skip


def _depths(drawn: Drawn) -> list[Panel]:
    """One row per depth: a dark cell where the iteration accepted so deep, a pale one where it drafted so deep."""
    counts = depth_counts(drawn.done)[:DEEPEST]
    if not counts:
        return []
    levels = np.arange(1, len(counts) + 1)[:, None]  # [depths, 1]
    drafted = np.array([step.counts.longest_path for step in drawn.shown])[None]  # [1, iterations]
    taken = np.array([len(step.accepted) for step in drawn.shown])[None]
    cells = (levels <= drafted).astype(np.uint8) + (levels <= np.minimum(taken, drafted))
    clear = "rgba(0,0,0,0)"
    steps = [(0, clear), (1 / 3, clear), (1 / 3, FAINT), (2 / 3, FAINT), (2 / 3, ACCEPTED), (1, ACCEPTED)]
    heat = {"type": "heatmap", **drawn.x, "y0": 1, "dy": 1, "z": table_of(cells.astype(np.uint8)), "zmin": 0, "zmax": 2,
            "colorscale": [list(one) for one in steps], "showscale": False, "hoverinfo": "skip", "xgap": 1,
            "ygap": 1}  # fmt: skip
    rates = [f"  <b>{taken / drafted:.0%}</b> · {taken} of {drafted}" for drafted, taken in counts]
    end = drawn.first + max(len(drawn.shown), LEAST) + 0.6
    words = {"type": "scatter", "mode": "text", "x": [end] * len(counts), "y": [*range(1, len(counts) + 1)],
             "text": rates, "textposition": "middle right", "cliponaxis": False, "hoverinfo": "skip",
             "textfont": {"size": 11}}  # fmt: skip
    name = f"<b>Acceptance by depth</b>   {_key(('accepted at depth', ACCEPTED))}   □ only drafted"
    look = {"range": [len(counts) + 0.5, 0.5], "showgrid": False, "dtick": max(1, len(counts) // 5), "tick0": 1,
            "tickformat": "d", "nticks": 0}  # fmt: skip
    return [Panel(name, max(15 * len(counts), 30), [heat, words], axis=look)]


def _seconds(drawn: Drawn) -> list[Panel]:
    """Milliseconds per iteration, stacked by phase."""
    total = phase_seconds(drawn.done)
    if not total:
        return []
    traces = [
        drawn.bars([round(1000 * step.seconds.get(name, 0.0), 2) for step in drawn.shown], _color(name))
        for name in total
    ]
    whole, count = sum(total.values()), len(drawn.done)
    rows = [
        f'<span style="color:{_color(name)}">■</span> {escape(name)} <b>{1000 * spent / count:.2f} ms</b>'
        f", {spent / whole:.0%}"
        for name, spent in reversed(total.items())
    ]
    aside = "<br>".join([*rows, "mean per iteration, share of all"])
    return [Panel("<b>Milliseconds per iteration</b>   measured, by phase", 100, traces, aside)]


def _color(phase: str) -> str:
    return PHASE_COLORS.get(phase, LOOKS["not reached"].color)


def _settings(drawn: Drawn) -> list[Panel]:
    """One step line per adapted setting, over its own range."""
    panels: list[Panel] = []
    for name in adapted(drawn.done)[:SETTINGS]:
        values = [float(step.settings[name] or 0) for step in drawn.shown]
        low, high = min(values), max(values)
        room = 0.1 * (high - low) or 1.0
        line = {"type": "scatter", "mode": "lines", **drawn.x, "y": [float(f"{value:.4g}") for value in values],
                "line": {"shape": "hvh", "color": INK, "width": 1.5}, "hoverinfo": "skip"}  # fmt: skip
        now = drawn.done[-1].settings[name]
        aside = f"<b>{escape(name.replace('_', ' '))} {now:g}</b><br>{values[0]:g} at first"
        ends = [low, high] if high > low else [low]
        look = {"range": [low - room, high + room], "tickvals": ends, "tickformat": "~g"}
        title = "" if panels else "<b>Settings that were adapted</b>   as in force in each iteration"
        panels.append(Panel(title, 30, [line], aside, look))
    return panels


def clock_spec(steps: Sequence[Step], plain: Plain | None = None) -> Spec:
    """Two bars on one axis of time: this run by phases, and plain decoding of as many tokens."""
    plain = plain or modelled_plain(steps)
    parts = phase_seconds(steps)
    mine, theirs = sum(parts.values()), plain.seconds_per_token * _tokens_of(steps) if plain else 0.0
    unit, name = (1000, "ms") if max(mine, theirs) < 1 else (1, "s")
    names = ["this run, measured", *([f"plain decoding, {plain.how}"] if plain else [])]
    base = {"type": "bar", "orientation": "h", "textposition": "none", "cliponaxis": False}
    data: list[dict[str, Any]] = [
        {**base, "y": [names[0]], "x": [round(seconds * unit, 3)], "marker": {"color": _color(phase)},
         "hovertemplate": f"{escape(phase)}: {duration(seconds)}, {seconds / mine:.0%} of this run<extra></extra>"}
        for phase, seconds in parts.items()
    ]  # fmt: skip
    if plain:
        look = {"color": "rgba(0,0,0,0)", "line": {"color": MUTED, "width": 1.5}}
        if plain.how == "modelled":  # hatched: no one measured it
            look["pattern"] = {"shape": "/", "fgcolor": MUTED, "size": 7, "solidity": 0.12}
        data.append({**base, "y": [names[1]], "x": [round(theirs * unit, 3)], "marker": look,
                     "hovertemplate": escape(f"{plain.note}: {duration(theirs)}") + "<extra></extra>"})  # fmt: skip
    ends = [(names[0], mine), *([(names[1], theirs)] if plain else [])]
    data.append({"type": "scatter", "mode": "text", "y": [one for one, _ in ends], "cliponaxis": False,
                 "x": [round(seconds * unit, 3) for _, seconds in ends], "textposition": "middle right",
                 "text": [f" <b>{duration(seconds)}</b>" for _, seconds in ends], "hoverinfo": "skip"})  # fmt: skip
    return spec(
        data, label=clock_sentence(steps, plain), height=52 + 26 * len(names), barmode="stack", bargap=0.3,
        meta={"name": "wall-clock", "bare": True}, dragmode=False, margin={"l": 176, "r": 70, "t": 6, "b": 36},
        xaxis={"rangemode": "tozero", "fixedrange": True, "ticksuffix": f" {name}", "nticks": 8},
        yaxis={"autorange": "reversed", "fixedrange": True, "tickfont": {"size": 12}, "categoryorder": "array",
               "categoryarray": names},
    )  # fmt: skip


def clock_sentence(steps: Sequence[Step], plain: Plain | None = None) -> str:
    """How much faster than plain decoding, and whether that was measured or modelled."""
    plain = plain or modelled_plain(steps)
    mine, count = sum(phase_seconds(steps).values()), _tokens_of(steps)
    tokens = plural(count, "token")
    if not plain or not mine:
        return f"{tokens}; plain decoding was not measured."
    bound = "" if plain.how == "measured" else "at most "
    ratio = plain.seconds_per_token * count / mine
    return f"{tokens}, prefill excluded: {bound}{ratio:.2f}× the speed of plain decoding ({plain.how}: {plain.note})."


def _tokens_of(steps: Sequence[Step]) -> int:
    return sum([len(step.committed) for step in steps])


def metrics_drawing(trace: Trace, cursor: int | None = None, *, plain: Plain | None = None) -> list[Part]:
    """The panels, then the clock. `plain`: plain decoding's time where it was measured; else it is modelled."""
    steps = trace.steps[:cursor]
    if not steps:
        return [markup.tag("div", markup.escape(summary(trace, cursor)), class_="sl-empty")]
    words = markup.tag("p", markup.escape(clock_sentence(steps, plain)), class_="sl-note")
    return [metrics_spec(trace, cursor), clock_spec(steps, plain), words]


def metrics_at(trace: Trace, cursor: int | None = None) -> Metrics:
    """The metrics of the first `cursor` iterations."""
    return Metrics(_total(trace.steps[:cursor]), trace.prefill_seconds)


def _total(steps: Sequence[Step]) -> Counts:
    """Their sum, column by column: many iterations are added up each time that a picture is drawn."""
    columns = zip(*[_columns(step.counts) for step in steps], strict=True)
    return Counts(*[sum(column) for column in columns])


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
    figures = metrics_at(trace, cursor).as_dict()
    rows = ((name.replace("_", " "), _written(name, value), definition(name)) for name, value in figures.items())
    caption = f"Metrics after {plural(len(trace.steps[:cursor]), 'iteration')}"
    return markup.table(caption, ("metric", "value", "definition"), rows)


def _written(name: str, value: float) -> str:
    return f"{value:.0f}" if name in COUNTS else f"{value:.4g}{UNITS.get(name, '')}"
