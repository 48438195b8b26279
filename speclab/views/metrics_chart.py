"""The run over its iterations: the timeline with cursor and breakpoints, and its figures on one axis.

Beside every figure stands its definition; below, this run's measured time beside plain decoding's, modelled.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from speclab.trace.metrics import Counts, Metrics
from speclab.trace.records import Step, Trace, depth_counts
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import (
    CLEAR,
    FAINT,
    HIDDEN_AXIS,
    INK,
    MUTED,
    PAPER,
    Part,
    Spec,
    axis,
    coded,
    escape,
    note,
    spec,
    token_text,
)
from speclab.views.palette import LOOKS, PHASE_COLORS
from speclab.views.playback import PHASES, own_kind

MOST, LEAST = 130, 24
"""Iterations drawn at most, and the room kept at least: the first bars are not as wide as the page."""
HATCH = {"shape": "/", "fgcolor": "#1F2328", "size": 4, "solidity": 0.25, "fillmode": "overlay"}
"""Of the corrected token: dark on its yellow in every theme."""


def timeline_spec(trace: Trace, cursor: int | None = None, hits: Collection[int] = ()) -> Spec:
    """A strip of bars; a click anywhere above an iteration goes there.

    `cursor`: iterations shown, by default all; those after it are fainter. `hits`: those at which breakpoints hold.
    """
    cursor = len(trace.steps) if cursor is None else cursor
    first, steps = window(trace, cursor)
    last, reach = first + len(steps), [step.counts.longest_path + 1 for step in steps]
    top = max(reach + [len(step.committed) for step in steps] + [4])
    x, places = {"x0": first + 1, "dx": 1}, range(first + 1, last + 1)
    drafted = [min(len(step.accepted), len(step.committed)) for step in steps]
    own = ["" if step.bonus is None else own_kind(step) for step in steps]
    data = [bars(reach, FAINT, **x), bars(drafted, LOOKS["accepted"].color, **x)]
    for kind in ("bonus", "corrected"):
        at = [i for i, one in enumerate(own) if one == kind]
        base = [drafted[i] for i in at]
        # Their own width: plotly takes the least distance between a trace's bars, and these skip iterations.
        data.append(bars([1] * len(at), LOOKS[kind].color, x=[places[i] for i in at], base=base, width=0.8))
    data[-1]["marker"]["pattern"] = HATCH  # the colour is not alone
    said = [
        f"{kind} {token_text(step.texts.get(step.bonus, f'#{step.bonus}'))}" if step.bonus is not None
        else "the text ended inside the path"
        for step, kind in zip(steps, own, strict=True)
    ]  # fmt: skip
    hover = "Iteration %{customdata[0]}: %{customdata[1]} drafted, %{customdata[2]} accepted, %{customdata[3]}."
    known = [[place, step.counts.drafted, len(step.accepted), end]
             for place, step, end in zip(places, steps, said, strict=True)]  # fmt: skip
    # What a pointer finds over the whole height of an iteration, even above the lowest bar.
    data.append(bars([round(top * 1.25, 1)] * len(steps), CLEAR, **x, width=1, customdata=known, hoverinfo=None,
                     hovertemplate=f"{hover}<extra></extra>", meta={"click": "iteration"}))  # fmt: skip
    stops = [place for place in sorted(hits) if place in places]
    data.append({
        "type": "scatter", "mode": "markers", "x": stops, "y": [top * 1.12] * len(stops), "customdata": stops,
        "marker": {"size": 8, "color": LOOKS["rejected"].color, "line": {"color": PAPER, "width": 1}},
        "meta": {"click": "iteration"}, "cliponaxis": False,
        "hovertemplate": "Iteration %{customdata}: a breakpoint holds<extra></extra>",
    })  # fmt: skip
    veil = {"type": "rect", "x0": max(cursor, first) + 0.5, "x1": last + 0.5, "y0": 0, "y1": 0.82, "yref": "paper",
            "fillcolor": PAPER, "opacity": 0.6, "line": {"width": 0}}  # fmt: skip
    shown = {"type": "rect", "x0": cursor - 0.5 if cursor else 0.5, "x1": cursor + 0.5, "y0": -0.04, "y1": 1.08,
             "yref": "paper", "line": {"color": INK, "width": 1.5}}  # fmt: skip
    more, look = len(trace.steps) - last, {"font": {"size": 11, "color": MUTED}, "yanchor": "middle"}
    return spec(
        data, label=timeline_sentence(trace, cursor, hits), height=64, barmode="overlay", bargap=0.2, dragmode=False,
        meta={"bare": True, "name": "timeline", "cursor": cursor},
        margin={"l": 34 if first else 6, "r": 34 if more else 6, "t": 4, "b": 18},
        shapes=[veil, shown] if cursor < last else [shown],
        annotations=[*([note(f"‹ {first}", 0, 0.5, **look, xanchor="right")] if first else []),
                     *([note(f"{more} ›", 1, 0.5, **look)] if more else [])],
        xaxis=iterations_axis(first, len(steps)) | {"tickformat": "d"},
        yaxis={**HIDDEN_AXIS, "range": [0, top * 1.25], "fixedrange": True},
    )  # fmt: skip


def window(trace: Trace, cursor: int) -> tuple[int, Sequence[Step]]:
    """The iterations drawn, at most `MOST` with the cursor among them, and how many come before."""
    last = min(max(cursor + MOST // 4, MOST), len(trace.steps))
    first = max(0, last - MOST)
    return first, trace.steps[first:last]


def bars(values: Sequence[float], color: str, **more: object) -> Spec:
    """A bar an iteration, which says nothing where the pointer is."""
    return {"type": "bar", "y": values, "marker": {"color": color}, "hoverinfo": "skip", **more}


def iterations_axis(first: int, count: int) -> Spec:
    """An axis of so many iterations, of which not every one is named."""
    span = max(count, LEAST)
    every = next(step for step in (1, 2, 5, 10, 20, 50) if span / step <= 25)
    return {"range": [first + 0.4, first + span + 0.6], "fixedrange": True, "showgrid": False, "tick0": 0,
            "dtick": every}  # fmt: skip


def timeline_sentence(trace: Trace, cursor: int, hits: Collection[int] = ()) -> str:
    """What the strip shows, in words."""
    if not trace.steps:
        return "Timeline: no iteration yet."
    said = f"Timeline: {plural(len(trace.steps), 'iteration')}, {cursor} shown"
    if cursor:
        step = trace.steps[cursor - 1]
        said += f"; the newest of them accepted {len(step.accepted)} of {step.counts.drafted} drafted tokens"
    return f"{said}; breakpoints at {', '.join(map(str, sorted(hits)))}." if hits else f"{said}."


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
