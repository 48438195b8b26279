"""What settings come to on one text: a curve over one setting, a heat map over two, a table of strategies.

Tokens per iteration are counted in replays, tokens per second are modelled from measured costs, and each says so. The
settings in force have a square and the word, the most tokens per second a star.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import CLEAR, INK, MUTED, Part, Spec, axis, escape, frame, lines, note, spec
from speclab.views.markup import labelled, tag
from speclab.views.palette import LOOKS

if TYPE_CHECKING:
    from speclab.analysis.curves import Curve, Point, Setting

HEIGHT, CELL = 120, 26
"""Pixels of a panel, and of a row of a heat map."""
BLUE = LOOKS["accepted"].color
SHADES = [[0, "rgba(0,114,178,0)"], [1, "rgba(0,114,178,0.6)"]]
"""Of a heat map: see-through, so that its figures can be read on either ground."""
STRATEGY = "strategy"
COUNTED, MODELLED = "counted in replays", "modelled from measured costs"

Panel = tuple[str, str, Callable[["Point"], float], str]
PANELS: tuple[Panel, Panel] = (
    ("Tokens per iteration", COUNTED, lambda point: point.tokens_per_iteration, ".2f"),
    ("Tokens per second", MODELLED, lambda point: point.tokens_per_second, ",.0f"),
)


def curve_drawing(found: Curve) -> list[Part]:
    """A figure where settings were varied, what it shows in words, and the table; a click tells the point's number."""
    table, notes = curve_table(found), _notes(found)
    said = tag("p", markup.escape(curve_sentence(found)), class_="sl-said")
    words = said + "".join([labelled(name, sentence) for name, sentence in notes.items()])
    if STRATEGY in found.ranges:
        return [words, tag("div", table, style="overflow-x:auto")]
    drawn = heat_spec(found) if len(found.ranges) == 2 else curve_spec(found)
    return [drawn, words + tag("details", tag("summary", "as a table"), table)]


def curve_spec(found: Curve) -> Spec:
    """Two panels over the values of one setting, evenly spaced: tokens per iteration, and per second."""
    ((name, values),) = found.ranges.items()
    labels, gap, top = [*map(setting_words, values)], 30, 24
    height = 2 * HEIGHT + gap
    data: list[Spec] = []
    axes: Spec = {}
    notes: list[Spec] = []
    for row, (title, source, of, form) in enumerate(PANELS):
        number, high = "" if row == 0 else 2, 1 - row * (HEIGHT + gap) / height
        shown = [None if point.refused else round(of(point), 4) for point in found.points]
        known = [*filter(None, shown), of(found.plain)]
        room = 0.16 * (max(known) - min(known)) or 0.1 * max(known) or 1.0
        low, up = min(known) - room, max(known) + 1.6 * room
        traces, words = _marked(found, shown, form, number, low, up)
        data, notes = [*data, *traces], [*notes, *words]
        axes[f"yaxis{number}"] = axis(domain=[max(high - HEIGHT / height, 0), high], range=[low, up], nticks=4,
                                      fixedrange=True)  # fmt: skip
        key = f"<b>{title}</b>   {source}   ╌ plain decoding: {of(found.plain):{form}}"
        notes.append(note(key, 0, high, yshift=2, font={"color": INK}))
        data.append({"type": "scatter", "mode": "lines", "x": [-0.5, len(values) - 0.5], "y": [of(found.plain)] * 2,
                     "yaxis": f"y{number}", "line": {"color": MUTED, "width": 1.5, "dash": "dash"},
                     "hoverinfo": "skip"})  # fmt: skip
    return spec(
        data, label=curve_sentence(found), height=height + top + 46, margin={"l": 48, "r": 12, "t": top, "b": 46},
        meta={"name": f"curve-{name}"}, dragmode=False, annotations=notes, bargap=0,
        xaxis={"tickvals": [*range(len(values))], "ticktext": [*map(escape, labels)], "fixedrange": True,
               "range": [-0.5, len(values) - 0.5], "anchor": "y2", "title": {"text": escape(spaced(name))},
               "showgrid": False}, **axes,
    )  # fmt: skip


def _marked(
    found: Curve, shown: list[float | None], form: str, number: int | str, low: float, up: float
) -> tuple[list[Spec], list[Spec]]:
    """The line with its marks, what a pointer finds over the whole height of a value, and the words at two marks."""
    numeric = not any(isinstance(value, str | bool) for point in found.points for value in point.values)
    symbols = ["circle-open" if point.inexact else "circle" for point in found.points]
    sizes, here, best = [6] * len(symbols), found.here, found.best
    words: list[Spec] = []
    for at, point in enumerate(found.points):
        if shown[at] is not None and (point is here or point is best):
            word = "here" if point is not best else "here, the best" if point is here else "best"
            place = {"xref": "x", "yref": f"y{number}", "xanchor": "center", "yshift": 6, "font": {"size": 11}}
            words.append(note(f"<b>{word} {shown[at]:{form}}</b>", at, shown[at], **place))  # type: ignore[arg-type]
            symbols[at], sizes[at] = ("star", 13) if point is best else ("square", 10)
            symbols[at] += "-open" if point.inexact else ""
    where = {"x": [*range(len(shown))], "yaxis": f"y{number}"}
    line = {
        **where, "type": "scatter", "mode": "lines+markers" if numeric else "markers", "y": shown,
        "line": {"color": BLUE, "width": 2}, "hoverinfo": "skip",
        "marker": {"symbol": symbols, "size": sizes, "color": BLUE, "opacity": 1, "line": {"color": INK, "width": 1}},
    }  # fmt: skip
    catch = {
        **where, "type": "bar", "base": low, "y": [up - low] * len(shown), "marker": {"color": CLEAR},
        "customdata": where["x"], "hovertext": [lines(*_tooltip(found, point)) for point in found.points],
        "hoverinfo": "text", "meta": {"click": "point"},
    }  # fmt: skip
    return [line, catch], words


def heat_spec(found: Curve) -> Spec:
    """Two heat maps over two settings, side by side, each with its figures in the cells."""
    (first, columns), (second, rows) = found.ranges.items()
    at = {point.values: (i, point) for i, point in enumerate(found.points)}
    best, here = found.best, found.here
    cells = [[at.get((column, row)) for column in columns] for row in rows]
    data: list[Spec] = []
    axes: Spec = {}
    shapes: list[Spec] = []
    notes: list[Spec] = []
    for side, (title, source, of, form) in enumerate(PANELS):
        number, left = "" if side == 0 else 2, 0.515 * side
        z = [[None if not one or one[1].refused else round(of(one[1]), 4) for one in row] for row in cells]
        data.append({
            "type": "heatmap", "z": z, "xaxis": f"x{number}", "yaxis": f"y{number}", "xgap": 1, "ygap": 1,
            "colorscale": SHADES, "showscale": False, "hoverinfo": "text", "meta": {"click": "point"},
            "text": [[_cell(one, of, form, best) for one in row] for row in cells], "texttemplate": "%{text}",
            "textfont": {"color": INK, "size": 11}, "customdata": [[one and one[0] for one in row] for row in cells],
            "hovertext": [[lines(*_tooltip(found, one[1])) if one else "" for one in row] for row in cells],
        })  # fmt: skip
        shared = {"fixedrange": True, "showgrid": False}
        axes[f"xaxis{number}"] = axis(
            domain=[left, left + 0.485], tickvals=[*range(len(columns))], anchor=f"y{number}", **shared,
            ticktext=[escape(setting_words(value)) for value in columns], title={"text": escape(spaced(first))},
        )  # fmt: skip
        axes[f"yaxis{number}"] = axis(
            anchor=f"x{number}", tickvals=[*range(len(rows))], showticklabels=side == 0, **shared,
            ticktext=[escape(setting_words(value)) for value in rows],
            title={"text": escape(spaced(second)) if side == 0 else ""},
        )  # fmt: skip
        notes.append(note(f"<b>{title}</b>   {source}", left, 1, yshift=4, font={"color": INK}))
        if here is not None:
            x, y = columns.index(here.values[0]), rows.index(here.values[1])
            own = {"xref": f"x{number}", "yref": f"y{number}"}
            shapes.append({**frame((x - 0.5, x + 0.5), (y - 0.5, y + 0.5), 2.5), **own})
    return spec(
        data, label=curve_sentence(found), height=CELL * len(rows) + 80, annotations=notes, shapes=shapes,
        margin={"l": 76, "r": 8, "t": 26, "b": 54}, meta={"name": f"map-{first}-{second}"}, dragmode=False, **axes,
    )  # fmt: skip


def _cell(one: tuple[int, Point] | None, of: Callable[[Point], float], form: str, best: Point | None) -> str:
    if one is None:
        return ""
    mark = "★" if one[1] is best else ""
    return "–" if one[1].refused else f"{mark}{of(one[1]):{form}}{'*' if one[1].inexact else ''}"


def curve_sentence(found: Curve) -> str:
    """One or two sentences: what was varied on how long a text, what the best comes to, and what the settings here."""
    length, best, here = plural(found.plain.iterations, "token"), found.best, found.here
    done = "" if len(found.points) == found.total else f", {len(found.points)} of {found.total} replays"
    what = "Every strategy" if STRATEGY in found.ranges else " and ".join(
        [f"{spaced(name)} {setting_words(values[0])} to {setting_words(values[-1])}"
         for name, values in found.ranges.items()]
    )  # fmt: skip
    said = f"{what[0].upper()}{what[1:]} on {length} of text{done}"
    if best is None:
        return f"{said}: no replay yet." if not found.points else f"{said}: none of them can be replayed."
    sentence = f"{said}: the most tokens per second, modelled, at {point_name(found, best)}: {_figures(found, best)}."
    if here is None or here.refused or here is best:
        return sentence + (" These are the settings in force." if here is best else "")
    return f"{sentence} In force, {point_name(found, here)}: {_figures(found, here)}."


def _figures(found: Curve, point: Point) -> str:
    times = point.tokens_per_second / found.plain.tokens_per_second if found.plain.tokens_per_second else 0.0
    return (
        f"{point.tokens_per_second:,.0f} tokens/s, {times:.2f} × plain decoding, with {point.tokens_per_iteration:.2f} "
        "tokens per iteration"
    )


def point_name(found: Curve, point: Point) -> str:
    """`node budget 24`, `depth 4, children 2`, `Goose`."""
    if STRATEGY in found.ranges:
        return str(point.values[0])
    named = zip(found.ranges, point.values, strict=True)
    return ", ".join([f"{spaced(name)} {setting_words(value)}" for name, value in named])


def point_words(found: Curve, point: Point) -> str:
    """A point in a list: its name, its figures, and whether it is the best or the one in force."""
    signs = [word for word, one in (("in force", found.here), ("best", found.best)) if one is point]
    figures = f"{point.tokens_per_iteration:.2f} tokens per iteration, {point.tokens_per_second:,.0f} tokens/s"
    return " · ".join([point_name(found, point), figures, *signs])


def _tooltip(found: Curve, point: Point) -> list[str]:
    if point.refused:
        return [point_name(found, point), point.refused]
    figures = _figures(found, point).split(", with ")
    return [
        point_name(found, point), figures[1], f"modelled: {figures[0]}",
        ", ".join([plural(point.iterations, "iteration"), plural(point.draft_calls, "draft call"),
                   f"{plural(point.rows, 'row')} verified"]),
        *([f"Not exact: {point.inexact}"] if point.inexact else []),
    ]  # fmt: skip


def _notes(found: Curve) -> dict[str, str]:
    """What was cut short, skipped or is not exact, each under its name; all reasons stand in the table."""
    refused = [point for point in found.points if point.refused]
    inexact = [point for point in found.points if point.inexact]
    said: dict[str, str] = {}
    if STRATEGY in found.ranges:  # whose table is not folded, and says the rest
        return said
    if len(found.ranges) == 2:
        said["Marks"] = "Framed: the settings in force. ★: the most tokens per second."
    if refused:
        first = refused[0]
        said["Left out"] = f"{plural(len(refused), 'value')}; {point_name(found, first)}: {first.refused.rstrip('.')}."
    if inexact:
        said["Not exact"] = f"{plural(len(inexact), 'replay')} (open marks, *): {inexact[0].inexact.rstrip('.')}."
    return said


def curve_table(found: Curve) -> str:
    """One row per point, as an HTML table; strategies by their tokens per second."""
    fastest = max([point.tokens_per_second for point in found.replayed] + [1e-9])
    rows: list[tuple[Any, ...]] = []
    points, marks = list(found.points), (("□ in force", found.here), ("★ best", found.best))
    if STRATEGY in found.ranges:
        points.sort(key=lambda point: (bool(point.refused), -point.tokens_per_second))
    for point in points:
        signs = [word for word, one in marks if one is point]
        named = [*map(setting_words, point.values), ", ".join(signs).replace(" ", "\u00a0")]
        if point.refused:
            rows.append((*named, "–", "–", "–", "", "–", "–", "–", point.refused))
            continue
        times = point.tokens_per_second / (found.plain.tokens_per_second or 1)
        inexact = tag("details", tag("summary", "not exact"), markup.escape(point.inexact)) if point.inexact else ""
        rows.append((
            *named, f"{point.tokens_per_iteration:.2f}", f"{point.tokens_per_second:,.0f}", f"{times:.2f}",
            markup.bar(point.tokens_per_second / fastest), point.iterations, point.draft_calls, point.rows,
            markup.Drawn(inexact),
        ))  # fmt: skip
    head = (*map(spaced, found.ranges), "mark", "tokens per iteration", "tokens/s, modelled", "× plain", "",
            "iterations", "draft calls", "rows verified", "notes")  # fmt: skip
    return markup.table(f"Replays of {plural(found.plain.iterations, 'token')} of text", head, rows)


def spaced(name: str) -> str:
    """`node_budget` → `node budget`."""
    return name.replace("_", " ")


def setting_words(value: Setting) -> str:
    """`0.005`, `48`, `yes`, `merge`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
