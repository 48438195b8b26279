"""The timeline: a bar per iteration of accepted tokens and the target's own, with the cursor and the breakpoints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from speclab.trace.records import Step, Trace
from speclab.views.explain import plural
from speclab.views.figures import FAINT, HIDDEN_AXIS, INK, MUTED, PAPER, Spec, escape, note, spec, token_text
from speclab.views.palette import LOOKS
from speclab.views.playback import own_kind

MOST, LEAST = 130, 24
"""Iterations drawn at most, and the room kept at least: the first bars are not as wide as the page."""
Hits = Mapping[int, Sequence[str]] | Collection[int]
"""Iterations at which breakpoints hold, with the reasons where these are known."""
HATCH = {"shape": "/", "fgcolor": "#1F2328", "size": 4, "solidity": 0.25, "fillmode": "overlay"}
"""Of the corrected token: dark on its yellow in every theme."""
_OWN = {"bonus": "bonus", "corrected": "corrected", "": "the text ended inside the path"}


def timeline_spec(
    trace: Trace,
    cursor: int | None = None,
    hits: Hits = (),
    *,
    width: float | None = None,
    height: float = 64,
) -> Spec:
    """A strip of bars; a click anywhere above an iteration goes there.

    Args:
        cursor: iterations shown, by default all; those after it are fainter.
        hits: iterations at which breakpoints hold, with the reasons where they are known.
    """
    cursor = len(trace.steps) if cursor is None else cursor
    first, steps = window(trace, cursor)
    last, span = first + len(steps), max(len(steps), LEAST)
    top = max([step.counts.longest_path + 1 for step in steps] + [len(step.committed) for step in steps] + [4])
    x = {"x0": first + 1, "dx": 1}
    drafted = [min(len(step.accepted), len(step.committed)) for step in steps]
    data: list[dict[str, Any]] = [
        _bars([step.counts.longest_path + 1 for step in steps], FAINT, **x),
        _bars(drafted, LOOKS["accepted"].color, **x),
    ]
    kinds = ["" if step.bonus is None else own_kind(step) for step in steps]
    for kind in ("bonus", "corrected"):
        places = [i for i, one in enumerate(kinds) if one == kind]
        bars = _bars([1] * len(places), LOOKS[kind].color, x=[first + i + 1 for i in places])
        bars["base"] = [drafted[i] for i in places]
        if kind == "corrected":  # hatched: the colour is not alone
            bars["marker"]["pattern"] = HATCH
        data.append(bars)
    data.append(_areas(steps, kinds, first, top))
    stops = {place: _reasons(hits, place) for place in sorted(hits) if first < place <= last}
    data.append({
        "type": "scatter", "mode": "markers", "x": [*stops], "y": [top * 1.12] * len(stops), "customdata": [*stops],
        "marker": {"size": 8, "color": LOOKS["rejected"].color, "line": {"color": PAPER, "width": 1}},
        "text": [escape(why) for why in stops.values()], "meta": {"click": "iteration"}, "cliponaxis": False,
        "hovertemplate": "Iteration %{customdata}: %{text}<extra></extra>",
    })  # fmt: skip
    return spec(
        data,
        label=timeline_sentence(trace, cursor, hits),
        height=height,
        width=width,
        meta={"bare": True, "name": "timeline", "cursor": cursor},
        margin={"l": 34 if first else 6, "r": 34 if last < len(trace.steps) else 6, "t": 4, "b": 18},
        barmode="overlay",
        bargap=0.2,
        dragmode=False,
        shapes=_cursor(cursor, first, last),
        annotations=_beyond(first, len(trace.steps) - last),
        xaxis={"range": [first + 0.4, first + span + 0.6], "fixedrange": True, "showgrid": False, "tickformat": "d",
               **ticks(len(steps))},
        yaxis={**HIDDEN_AXIS, "range": [0, top * 1.25], "fixedrange": True},
    )  # fmt: skip


def window(trace: Trace, cursor: int) -> tuple[int, Sequence[Step]]:
    """The iterations drawn, at most `MOST` with the cursor among them, and how many come before."""
    last = min(max(cursor + MOST // 4, MOST), len(trace.steps))
    first = max(0, last - MOST)
    return first, trace.steps[first:last]


def timeline_sentence(trace: Trace, cursor: int, hits: Hits = ()) -> str:
    """What the strip shows, in words."""
    if not trace.steps:
        return "Timeline: no iteration yet."
    said = [f"Timeline: {plural(len(trace.steps), 'iteration')}, {cursor} shown"]
    if cursor:
        step = trace.steps[cursor - 1]
        said.append(f"the newest of them accepted {len(step.accepted)} of {step.counts.drafted} drafted tokens")
    if hits:
        said.append(f"breakpoints at {', '.join([str(place) for place in sorted(hits)])}")
    return f"{'; '.join(said)}."


def _bars(values: Sequence[int], color: str, **places: object) -> dict[str, Any]:
    return {"type": "bar", "y": values, "marker": {"color": color, "line": {"width": 0}}, "hoverinfo": "skip", **places}


def _areas(steps: Sequence[Step], kinds: Sequence[str], first: int, top: float) -> dict[str, Any]:
    """Over the whole height of every iteration: what a pointer finds, even above the lowest bar."""
    known = [
        [first + i + 1, step.counts.drafted, len(step.accepted), _own(step, kind)]
        for i, (step, kind) in enumerate(zip(steps, kinds, strict=True))
    ]
    told = "Iteration %{customdata[0]}: %{customdata[1]} drafted, %{customdata[2]} accepted, %{customdata[3]}."
    return {
        "type": "bar", "x0": first + 1, "dx": 1, "y": [round(top * 1.25, 1)] * len(steps), "width": 1,
        "marker": {"color": "rgba(0,0,0,0)", "line": {"width": 0}}, "customdata": known,
        "hovertemplate": f"{told}<extra></extra>", "meta": {"click": "iteration"},
    }  # fmt: skip


def _own(step: Step, kind: str) -> str:
    if step.bonus is None:
        return _OWN[kind]
    return f"{_OWN[kind]} {token_text(step.texts.get(step.bonus, f'#{step.bonus}'))}"


def _reasons(hits: Hits, place: int) -> str:
    return "; ".join(hits[place]) if isinstance(hits, Mapping) else "a breakpoint holds"


def _cursor(cursor: int, first: int, last: int) -> list[dict[str, Any]]:
    """A frame around the iteration shown, and a veil over those that come after it."""
    shapes: list[dict[str, Any]] = []
    if cursor < last:
        shapes.append({"type": "rect", "x0": max(cursor, first) + 0.5, "x1": last + 0.5, "y0": 0, "y1": 0.82,
                       "yref": "paper", "fillcolor": PAPER, "opacity": 0.6, "line": {"width": 0}})  # fmt: skip
    if cursor:
        shapes.append({"type": "rect", "x0": cursor - 0.5, "x1": cursor + 0.5, "y0": -0.04, "y1": 1.08,
                       "yref": "paper", "line": {"color": INK, "width": 1.5}})  # fmt: skip
    else:
        shapes.append({"type": "line", "x0": 0.5, "x1": 0.5, "y0": -0.04, "y1": 1.08, "yref": "paper",
                       "line": {"color": INK, "width": 2}})  # fmt: skip
    return shapes


def _beyond(before: int, after: int) -> list[dict[str, Any]]:
    """How many iterations are not drawn, at either end."""
    look = {"font": {"size": 11, "color": MUTED}, "yanchor": "middle"}
    ends = (
        (before, note(f"‹ {before}", 0, 0.5, **look | {"xanchor": "right"})),
        (after, note(f"{after} ›", 1, 0.5, **look)),
    )
    return [shown for count, shown in ends if count]


def ticks(count: int) -> dict[str, Any]:
    """Which iterations an axis names."""
    every = next(step for step in (1, 2, 5, 10, 20, 50) if max(count, LEAST) / step <= 25)
    return {"tick0": 0, "dtick": every}
