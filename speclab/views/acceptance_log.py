"""What an engine logged of acceptance: over time, and by depth for one log, several, or theirs beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from speclab.errors import SettingsError
from speclab.serving.accepted import AcceptanceLog, AtDepth, LogComparison, Logged, mean_of, total
from speclab.views import markup
from speclab.views.figures import FAINT, INK, MUTED, Part, Spec, axis, escape, lines, note, spec, stacked
from speclab.views.markup import labelled, tag
from speclab.views.palette import LOOKS, SOURCE_COLORS

WINDOW = 16
"""Steps of the rolling mean."""
MOST, ROWS = 400, 200
"""Bars drawn at most, each then the mean of several steps; rows of a table."""
FEW = 20
"""Iterations below which a share says little: its mark is open."""
SIGNS = (("circle", "●", "solid"), ("diamond", "◆", "dash"), ("square", "■", "dot"), ("triangle-up", "▲", "dashdot"),
         ("cross", "✚", "longdash"), ("star", "★", "longdashdot"))  # fmt: skip
"""Of each log a mark, the same as text, and a dash: colour is not alone."""
BLUE = LOOKS["accepted"].color


def timeline_drawing(log: AcceptanceLog) -> list[Part]:
    """A log over time: every step with a rolling mean, or what each entry says where it has no steps; and a table."""
    drawn = steps_spec(log) if any(step.drafted for step in log.steps) else entries_spec(log)
    words = [
        tag("p", markup.escape(log_sentence(log)), class_="sl-said"),
        *[labelled("Note", one) for one in log.notes],
    ]
    return [drawn, "".join(words) + tag("details", tag("summary", "as a table"), entries_table(log))]


def steps_spec(log: AcceptanceLog) -> Spec:
    """A bar per step, of accepted tokens on drafted ones, and the rolling mean; dotted lines part the requests."""
    requests = [[step for step in entry.steps if step.drafted] for entry in log.entries]
    steps = [step for request in requests for step in request]
    each = -(-len(steps) // MOST)
    drafted = _means([step.deepest for step in steps], each)
    accepted = _means([step.accepted for step in steps], each)
    mean = rolling([step.accepted for step in steps])
    top = 1.1 * max(*drafted, 2.0)
    hover = []
    for at, (d, a) in enumerate(zip(drafted, accepted, strict=True)):
        first, last = 1 + each * at, min(each * (at + 1), len(steps))
        where = f"step {first}" if each == 1 else f"steps {first} to {last}, their mean"
        hover.append(lines(where, f"{a:.3g} accepted of {d:.3g} drafted"))
    bar = {"type": "bar", "x0": (each + 1) / 2, "dx": each, "hoverinfo": "text", "hovertext": hover}
    line = {"color": INK, "width": 2}
    data: list[Spec] = [
        {**bar, "y": drafted, "marker": {"color": FAINT}},
        {**bar, "y": accepted, "marker": {"color": BLUE}},
        {"type": "scatter", "mode": "lines", "x0": 1, "y": mean, "hoverinfo": "skip", "line": line},
    ]
    ends = [*accumulate(len(request) for request in requests)][:-1]
    between = {"type": "line", "y0": 0, "y1": top, "line": {"color": MUTED, "dash": "dot", "width": 1}}
    parted = [{**between, "x0": end + 0.5, "x1": end + 0.5} for end in ends] if len(ends) < 24 else []
    key = f'<span style="color:{BLUE}">■</span> accepted   □ drafted   ━ mean of {WINDOW} steps'
    key += f"   a bar: the mean of {each} steps" * (each > 1) + "   ┊ next request" * bool(parted)
    wide = {"range": [0.5, max(len(steps), WINDOW) + 0.5], "tickformat": "d"}
    return spec(
        data, label=log_sentence(log), height=210, barmode="overlay", bargap=0.14, dragmode=False, shapes=parted,
        margin={"l": 48, "r": 12, "t": 26, "b": 40}, meta={"name": "acceptance-log"},
        annotations=[note(key, 0, 1, yshift=4, font={"color": INK})],
        xaxis={"title": {"text": "step", "standoff": 4}, "showgrid": False, "fixedrange": True, **wide},
        yaxis={"title": {"text": "tokens"}, "range": [0, top], "fixedrange": True, "nticks": 6},
    )  # fmt: skip


def rolling(values: Sequence[int]) -> list[float]:
    """The mean of each value and those before it, `WINDOW` at most."""
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    at = np.arange(1, len(values) + 1)
    low = np.maximum(at - WINDOW, 0)
    return [round(float(mean), 4) for mean in (sums[at] - sums[low]) / (at - low)]


def _means(values: Sequence[int], each: int) -> list[float]:
    return [round(float(np.mean(values[at : at + each])), 4) for at in range(0, len(values), each)]


def entries_spec(log: AcceptanceLog) -> Spec:
    """Tokens per iteration and acceptance rate of each entry, over the log's clock or one after another."""
    times, unit = _times(log.entries)
    each = -(-len(times) // MOST)
    groups = [log.entries[at : at + each] for at in range(0, len(times), each)]
    x = [round(float(np.mean(times[at : at + each])), 3) for at in range(0, len(times), each)]
    many = f", the mean of {each}" * (each > 1)
    rates = [[mean_of(getattr(one, name) for one in group) for group in groups]
             for name in ("tokens_per_iteration", "acceptance_rate")]  # fmt: skip
    panels = [("Tokens per iteration", rates[0], ".2f", (1, 2)), ("Acceptance rate", rates[1], ".0%", (0, 1))]
    panels = [panel for panel in panels if any(value is not None for value in panel[1])]
    data: list[Spec] = []
    ends = []
    ranges: list[Spec] = []
    for row, (title, values, form, least) in enumerate(panels, start=1):
        known = [value for value in values if value is not None]
        ends.append(f"last {known[-1]:{form}}")
        said = ["" if value is None else f"{title.lower()} {value:{form}}" for value in values]
        hover = [lines(group[0].name, f"{unit}: {at:g}{many}", words, _counts(group))
                 for group, at, words in zip(groups, x, said, strict=True)]  # fmt: skip
        data.append({
            "type": "scatter", "mode": "lines+markers", "x": x, "y": values, "yaxis": f"y{row}" if row > 1 else "y",
            "line": {"color": BLUE, "width": 2}, "marker": {"size": 6, "color": BLUE, "symbol": "circle"},
            "hoverinfo": "text", "hovertext": hover,
        })  # fmt: skip
        room = 0.08 * (max(*known, *least) - min(*known, *least))
        ranges.append({"range": [min(*known, *least) - room, max(*known, *least) + room], "fixedrange": True,
                       **({"tickformat": form} if form == ".0%" else {})})  # fmt: skip
    layout = stacked([90] * len(panels), [title for title, *_ in panels], ends,
                     {"title": {"text": unit}, "fixedrange": True, "showgrid": False})  # fmt: skip
    for row, own in enumerate(ranges, start=1):
        layout[f"yaxis{row}" if row > 1 else "yaxis"] |= own
    return spec(data, label=log_sentence(log), dragmode=False, meta={"name": "acceptance-log"}, **layout)


def _times(entries: Sequence[Logged]) -> tuple[list[float], str]:
    """Where the entries stand on the x axis: by the clock if all have a time and none goes back."""
    times = [one.seconds for one in entries]
    known = [time for time in times if time is not None]
    if len(known) == len(times) > 1 and known == sorted(known) and known[-1] > known[0]:
        span, unit = (60, "minutes") if known[-1] - known[0] > 180 else (1, "seconds")
        return [round((time - known[0]) / span, 3) for time in known], f"{unit} since the first"
    return [float(at) for at in range(1, len(times) + 1)], entries[0].scope


def _counts(group: Sequence[Logged]) -> str:
    accepted, drafted = (total([getattr(one, name) for one in group]) for name in ("accepted", "drafted"))
    return "" if accepted is None or drafted is None else f"{accepted:,} of {drafted:,} drafted tokens accepted"


def log_sentence(log: AcceptanceLog) -> str:
    """What a log comes to, in words."""
    said = repr(log).removesuffix(".")
    accepted = [step.accepted for step in log.steps if step.drafted]
    if len(accepted) > 2 * WINDOW:
        means = rolling(accepted)[WINDOW - 1 :]
        low, high = (place(means) for place in (np.argmin, np.argmax))
        said += (
            f"; means of {WINDOW} steps go from {means[low]:.1f} accepted tokens (up to step {low + WINDOW}) to "
            f"{means[high]:.1f} (up to step {high + WINDOW})"
        )
    return f"{said}."


def entries_table(log: AcceptanceLog) -> str:
    """One row per entry, as an HTML table."""
    rows = []
    for number, one in enumerate(log.entries[:ROWS], start=1):
        about = "≈ " if one.estimated else ""
        rows.append((
            number, one.name, about * (one.iterations is not None) + _count(one.iterations), _count(one.drafted),
            _count(one.accepted),
            "" if one.tokens_per_iteration is None else f"{one.tokens_per_iteration:.2f}",
            "" if one.acceptance_rate is None else f"{one.acceptance_rate:.1%}",
        ))  # fmt: skip
    head = ("", "name", "iterations", "drafted", "accepted", "tokens per iteration", "acceptance rate")
    cut = f", the first {ROWS} of {len(log.entries):,}" if len(log.entries) > ROWS else ""
    return markup.table(f"Entries of {log.name}{cut}", head, rows)


def _count(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


# By depth


def depths_drawing(*logs: AcceptanceLog | LogComparison) -> list[Part]:
    """Acceptance by depth of one log or several, or of a comparison, which says what differs; and a table.

    Raises:
        SettingsError: there are more logs than signs to tell them apart.
    """
    every = [one for log in logs for one in ((log.theirs, log.ours) if isinstance(log, LogComparison) else (log,))]
    if len(every) > len(SIGNS):
        raise SettingsError(f"{len(every)} logs cannot be told apart in one picture: give {len(SIGNS)} at most")
    held = [one for one in every if one.acceptance_by_depth]
    differences = [said for log in logs if isinstance(log, LogComparison) for said in log.differences]
    said = [tag("p", markup.escape(one), class_="sl-said") for one in differences]
    if not held:
        return ["".join(said)] if said else []
    few = f" Open marks: of fewer than {FEW} iterations."
    words = tag("p", markup.escape(depths_sentence(held) + few), class_="sl-said")
    notes = [labelled(one.name, note) for one in every for note in one.notes]
    table = tag("details", tag("summary", "as a table"), depths_table(held))
    return [depths_spec(held), "".join([words, *said, *notes, table])]


def depths_spec(logs: Sequence[AcceptanceLog]) -> Spec:
    """Two panels over depth: the share of iterations that accepted so deep, and α_k, of those that tried."""
    data: list[Spec] = []
    names = _names(logs)
    key = []
    deepest = max(one.acceptance_by_depth[-1].depth for one in logs)
    for log, name, color, (symbol, sign, dash) in zip(logs, names, SOURCE_COLORS, SIGNS, strict=False):
        key.append(f'<span style="color:{color}">{sign}</span> {escape(name)}')
        for number, of in (("", _share), ("2", _conditional)):
            at = [(one, *of(one)) for one in log.acceptance_by_depth if of(one)[1]]
            mark = {"symbol": [f"{symbol}-open" if tried < FEW else symbol for _, _, tried in at], "size": 9}
            data.append({
                "type": "scatter", "mode": "lines+markers", "xaxis": f"x{number}", "yaxis": f"y{number}",
                "x": [one.depth for one, *_ in at], "y": [round(rate, 4) for _, rate, _ in at],
                "line": {"color": color, "width": 2, "dash": dash}, "marker": {**mark, "color": color},
                "hoverinfo": "text",
                "hovertext": [lines(f"{name}, depth {one.depth}", *_said(log, one)) for one, *_ in at],
            })  # fmt: skip
    share = axis(range=[-0.02, 1.05], tickformat=".0%", fixedrange=True, dtick=0.25, tick0=0)
    depth = {"title": {"text": "depth", "standoff": 4}, "range": [0.6, deepest + 0.4], "fixedrange": True,
             "showgrid": False, "dtick": 1 if deepest <= 16 else 4}  # fmt: skip
    titles = "<b>At least so many accepted</b>   of all iterations", "<b>α by depth</b>   accepted of those tried"
    rows = len(key)
    return spec(
        data, label=depths_sentence(logs), height=270 + 18 * rows, dragmode=False, meta={"name": "acceptance-depths"},
        margin={"l": 52, "r": 12, "t": 34 + 18 * rows, "b": 42},
        annotations=[note("<br>".join(key), 0, 1, yshift=22, align="left", font={"color": INK}),
                     *[note(title, left, 1, yshift=3) for title, left in zip(titles, (0, 0.54), strict=True)]],
        xaxis={**depth, "domain": [0, 0.46]}, yaxis=share,
        xaxis2=axis(**depth, domain=[0.54, 1], anchor="y2"), yaxis2=axis(**{**share, "anchor": "x2"}),
    )  # fmt: skip


def _share(one: AtDepth) -> tuple[float, int]:
    """The rate and what it is of."""
    return one.share, one.iterations


def _conditional(one: AtDepth) -> tuple[float, int]:
    return one.conditional or 0.0, one.tried


def _names(logs: Sequence[AcceptanceLog]) -> list[str]:
    """The logs' names, numbered where two are the same."""
    names = [log.name for log in logs]
    return [f"{name} ({at})" if names.count(name) > 1 else name for at, name in enumerate(names, start=1)]


def _said(log: AcceptanceLog, one: AtDepth) -> list[str]:
    about = "about " if log.estimated else ""
    rate = "" if one.conditional is None else (
        f"α {one.conditional:.0%}: {about}{one.accepted:,} of {one.tried:,} that tried a token here"
        + ("" if one.exact else ", if every draft was so deep")
    )  # fmt: skip
    return [f"{one.share:.0%}: {about}{one.accepted:,} of {one.iterations:,} iterations accepted so deep", rate]


def depths_sentence(logs: Sequence[AcceptanceLog]) -> str:
    """What every log comes to at the first and the last depth."""
    said = []
    for name, log in zip(_names(logs), logs, strict=True):
        first, last = log.acceptance_by_depth[0], log.acceptance_by_depth[-1]
        deep = "" if last is first else f", {last.share:.0%} at depth {last.depth}"
        said.append(f"{name} {first.share:.0%} at depth 1{deep}")
    return f"Iterations that accepted so deep: {'; '.join(said)}."


def depths_table(logs: Sequence[AcceptanceLog]) -> str:
    """One row per log and depth, as an HTML table."""
    rows = []
    for name, log in zip(_names(logs), logs, strict=True):
        for one in log.acceptance_by_depth:
            alpha = "" if one.conditional is None else f"{one.conditional:.1%}"
            notes = ["counts estimated"] * log.estimated + ["full depth assumed"] * (not one.exact)
            rows.append((name, one.depth, one.accepted, one.iterations, f"{one.share:.1%}", one.tried, alpha,
                         "; ".join(notes)))  # fmt: skip
    head = ("log", "depth", "accepted", "of iterations", "share", "of tried", "α", "notes")
    return markup.table("Acceptance by depth", head, rows)
