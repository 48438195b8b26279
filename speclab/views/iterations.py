"""The timeline: a bar per iteration of accepted tokens and the target's own, with the cursor and the breakpoints."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from speclab.trace.records import Step, Trace
from speclab.views.explain import plural
from speclab.views.figures import CLEAR, FAINT, HIDDEN_AXIS, INK, MUTED, PAPER, Spec, note, spec, token_text
from speclab.views.palette import LOOKS
from speclab.views.playback import own_kind

MOST, LEAST = 130, 24
"""Iterations drawn at most, and the room kept at least: the first bars are not as wide as the page."""
HATCH = {"shape": "/", "fgcolor": "#1F2328", "size": 4, "solidity": 0.25, "fillmode": "overlay"}
"""Of the corrected token: dark on its yellow in every theme."""


def timeline_spec(trace: Trace, cursor: int | None = None, hits: Collection[int] = ()) -> Spec:
    """A strip of bars; a click anywhere above an iteration goes there.

    Args:
        cursor: iterations shown, by default all; those after it are fainter.
        hits: iterations at which breakpoints hold.
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
        data.append(bars([1] * len(at), LOOKS[kind].color, x=[places[i] for i in at], base=base))
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
