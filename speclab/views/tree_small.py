"""Small trees as SVG, until their users draw figures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp

from speclab.trace.records import Step
from speclab.tree import DraftTree
from speclab.views import markup
from speclab.views.explain import position_summary, summary
from speclab.views.palette import LOOKS, MONO, Theme, ThemeName, css
from speclab.views.playback import WHOLE, PlaybackPosition
from speclab.views.tree_layout import (
    CHAR,
    FOLD_ABOVE,
    FONT,
    LABEL_X,
    OWN,
    Link,
    Mark,
    Place,
    Scene,
    choose_nodes,
    node_radius,
    place_nodes,
    scene,
)

SMALL_ROW, SMALL_LABEL_X, SMALL_GUTTER, SMALL_CHAR, SMALL_LEFT, SMALL_TOP = 17.0, 11.0, 18.0, 6.05, 12.0, 8.0
CLIP, FOLD = 9, 44
"""Longest label, in characters, and the nodes drawn before the rest is folded."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of a tree, or would have come of it.

    `looks`: for each node a key of `LOOKS`; "drafted" where the target was not asked. `path`: the nodes that the text
    follows, the root not among them. `own`: the target's token after the path, as (token, key of `LOOKS`); None where
    it is not known, or where the text ended.
    """

    looks: tuple[str, ...]
    path: tuple[int, ...]
    own: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class Small:
    """A tree with its reading. `hovers`: a tooltip for each node, by default the whole of a token too long to stand
    beside it; `symbol`: draws one, by default its look.
    """

    tree: DraftTree
    reading: Reading
    hovers: Sequence[str] = ()
    symbol: Callable[[int, float, float, float], str] | None = None


def columns(smalls: Iterable[Small], texts: Mapping[int, str]) -> tuple[float, ...]:
    """Each depth's x, wide enough for the labels of all these trees, then the right edge."""
    widest: dict[int, int] = {}
    for small in smalls:
        for place in _small_places(small):
            label = _small_label(small, place, texts)
            widest[place.depth] = max(widest.get(place.depth, 3), markup.width(label))
    wide = (SMALL_LABEL_X + SMALL_CHAR * widest[depth] + SMALL_GUTTER for depth in range(max(widest) + 1))
    return tuple(itertools.accumulate(wide, initial=SMALL_LEFT))


def small_svg(small: Small, xs: Sequence[float], texts: Mapping[int, str], label: str, colors: Theme) -> str:
    """The tree as one SVG string, on these columns."""
    places = _small_places(small)
    at = [(xs[place.depth], SMALL_TOP + SMALL_ROW * (place.row + 0.5)) for place in places]
    on_path = {0, *small.reading.path, OWN}
    links = {"plain": "", "path": ""}
    for place, (x, y) in zip(places, at, strict=True):
        if place.parent >= 0:
            above = places[place.parent]
            start = (
                at[place.parent][0] + SMALL_LABEL_X + SMALL_CHAR * markup.width(_small_label(small, above, texts)) + 3
            )
            kind = "path" if place.node in on_path and above.node in on_path else "plain"
            links[kind] += _small_curve((start, at[place.parent][1]), xs[place.depth] - SMALL_GUTTER + 3, (x - 8, y))
    styles = {"plain": f"{colors.line};stroke-width:1.1", "path": f"{LOOKS['accepted'].color};stroke-width:2.6"}
    lines = [markup.tag("path", d=d, style=f"fill:none;stroke:{styles[kind]}") for kind, d in links.items() if d]
    marks = [_small_mark(small, place, *where, texts, colors) for place, where in zip(places, at, strict=True)]
    height = SMALL_TOP + SMALL_ROW * (max([place.row for place in places]) + 1) + 4
    return markup.svg(xs[-1], height, label, colors, [*lines, *marks])


def _small_places(small: Small) -> tuple[Place, ...]:
    path = small.reading.path
    shown = choose_nodes(small.tree, path, limit=FOLD)
    after = None if small.reading.own is None else path[-1] if path else 0
    return place_nodes(small.tree, shown, after)


def _small_label(small: Small, place: Place, texts: Mapping[int, str]) -> str:
    if place.node is None:
        return f"+{place.folded}"
    if place.node == OWN:
        return markup.label(small.reading.own[0], texts, CLIP) if small.reading.own else ""
    return markup.label(int(small.tree.token[place.node]), texts, CLIP)


def _small_mark(small: Small, place: Place, x: float, y: float, texts: Mapping[int, str], colors: Theme) -> str:
    label = _small_label(small, place, texts)
    if place.node is None:
        style = f"font:10px {MONO};fill:{colors.muted}"
        return markup.tag(
            "g",
            markup.title(f"{place.folded} more nodes are folded here"),
            markup.text(label, x - 4, y + 3.5, style=style),
        )
    own = place.node == OWN and small.reading.own
    look = own[1] if own else small.reading.looks[place.node]
    radius = 5.0 if own else 0.72 * node_radius(exp(small.tree.path_log_prob[place.node]))
    drawn = small.symbol is None or own
    symbol = markup.shape(look, x, y, radius, 0.9, colors) if drawn else small.symbol(place.node, x, y, radius)  # type: ignore[misc]
    strong = look in {"root", "accepted", "bonus", "corrected"}
    style = f"font:10px {MONO};" + ("font-weight:600" if strong else f"fill:{colors.muted}")
    words = f"the target's own token {markup.quoted(own[0], texts)}" if own else _small_hover(small, place.node, texts)
    hover = markup.title(words) if words else ""
    return markup.tag("g", hover, symbol, markup.text(label, x + SMALL_LABEL_X, y + 3.5, style=style))


def _small_hover(small: Small, node: int, texts: Mapping[int, str]) -> str:
    if small.hovers:
        return small.hovers[node]
    token = int(small.tree.token[node])
    return markup.quoted(token, texts) if markup.width(markup.label(token, texts)) > CLIP else ""


def _small_curve(start: tuple[float, float], bend: float, end: tuple[float, float]) -> str:
    (x0, y0), (x1, y1) = start, end
    bend = max(x0, bend)
    middle = (bend + x1) / 2
    return f"M{x0:.5g} {y0:.5g}H{bend:.5g}C{middle:.5g} {y0:.5g} {middle:.5g} {y1:.5g} {x1:.5g} {y1:.5g}"


LEAST_WIDTH = 600.0
_LINK_LOOKS = {
    "struck": ("line", 1.2, "2 4"),
    "plain": ("line", 1.2, "none"),
    "choice": ("ink", 1.4, "none"),
    "path": ("path", 3.2, "none"),
}


def tree_svg(
    step: Step,
    selected: int | None = None,
    theme: ThemeName = "light",
    *,
    position: PlaybackPosition = WHOLE,
    limit: int = FOLD_ABOVE,
) -> str:
    """The tree as one SVG string; at most about `limit` nodes are drawn, the rest is folded into `+37` stubs."""
    label = summary(step) if position == WHOLE else position_summary(step, position)
    drawn = scene(step, position, selected, limit)
    return scene_svg(drawn, step, f"Draft tree. {label}", css(theme), selected, position=position)


def scene_svg(
    drawn: Scene,
    step: Step,
    label: str,
    colors: Theme,
    selected: int | None = None,
    *,
    position: PlaybackPosition = WHOLE,
    struck: frozenset[int] = frozenset(),
    names: Mapping[str, str] | None = None,
) -> str:
    """A scene as SVG.

    `label` is what a screen reader says. The nodes in `struck` are faint and struck out. `names`: of looks, where they
    mean something else here; that of "struck" must be there if any node is.
    """
    width = max(drawn.width, LEAST_WIDTH)
    legend, legend_height = _legend(position, colors, drawn, width, struck, names or {})
    marks = []
    for mark in drawn.marks:
        drawing = _mark_svg(mark, colors, selected)
        marks.append(_struck(drawing, mark, colors) if mark.node in struck else drawing)
    group = markup.tag("g", *marks, style=f"font:{FONT}px {MONO}")  # once, not at every label: a fifth of all bytes
    parts = [_header(step, drawn, colors), _link_paths(drawn, colors), group, legend]
    return markup.svg(width, drawn.height + 28 + legend_height, label, colors, parts)


def _header(step: Step, drawn: Scene, colors: Theme) -> str:
    names = ["depth 0" if i == 0 else str(i) for i in range(len(drawn.columns))]
    ticks = [
        markup.tag(
            "text", markup.title(f"position {step.prefix_length + depth}"), name,
            x=x - 6 if depth == 0 else x, y=20.0, text_anchor="start" if depth == 0 else "middle",
        )
        for depth, (x, name) in enumerate(zip(drawn.columns, names, strict=True))
    ]  # fmt: skip
    rule = markup.tag("path", d=f"M0 30.5H{markup.number(drawn.width)}", style=f"stroke:{colors.faint}")
    return markup.tag("g", *ticks, rule, style=f"fill:{colors.muted}")


def _link_paths(drawn: Scene, colors: Theme) -> str:
    groups = []
    for kind, (role, wide, dash) in _LINK_LOOKS.items():
        color = LOOKS["accepted"].color if role == "path" else getattr(colors, role)
        path = "".join([_curve(link) for link in drawn.links if link.kind == kind])
        style = f"fill:none;stroke:{color};stroke-width:{wide};stroke-dasharray:{dash}"
        groups.append(markup.tag("path", d=path, style=style) if path else "")
    return "".join(groups)


def _curve(link: Link) -> str:
    (x0, y0), (x1, y1) = link.start, link.end
    middle = (link.bend + x1) / 2
    bend = max(link.bend, x0)
    return f"M{x0:.5g} {y0:.5g}H{bend:.5g}C{middle:.5g} {y0:.5g} {middle:.5g} {y1:.5g} {x1:.5g} {y1:.5g}"


def _mark_svg(mark: Mark, colors: Theme, selected: int | None) -> str:
    if mark.kind == "stub":
        return _stub(mark, colors)
    rings = ""
    if mark.node == selected and selected is not None:
        rings += _ring(mark, mark.border + 3.5, f"stroke:{colors.ink};stroke-width:1.5")
    if mark.fresh:
        rings += _ring(mark, mark.border + 2.5, f"stroke:{colors.muted};stroke-width:1.2;stroke-dasharray:2 2")
    strong = "font-weight:600" if mark.kind in {"accepted", "bonus", "corrected", "root"} else None
    style = f"fill:{colors.muted}" if mark.kind in {"not reached", "rejected"} else strong
    label = markup.text(mark.label, mark.x + LABEL_X, mark.y + 4, style=style)
    style = f"font-size:10px;fill:{colors.muted}"
    note = markup.text(mark.note, mark.x + LABEL_X, mark.y + 15, style=style) if mark.note else ""
    symbol = markup.shape(mark.kind, mark.x, mark.y, mark.radius, mark.border, colors)
    return f'<g data-node="{mark.node}">{markup.title(chr(10).join(mark.hover))}{rings}{symbol}{label}{note}</g>'


def _struck(drawing: str, mark: Mark, colors: Theme) -> str:
    n, wide = markup.number, CHAR * markup.width(mark.label) + 4
    across = f"M{n(mark.x + LABEL_X - 2)} {n(mark.y)}h{n(wide)}"
    line = markup.tag("path", d=across, style=f"stroke:{colors.ink};stroke-width:1")
    return markup.tag("g", drawing, line, style="opacity:.45", class_="sl-struck")


def _ring(mark: Mark, gap: float, style: str) -> str:
    return markup.tag("circle", cx=mark.x, cy=mark.y, r=mark.radius + gap, style=f"fill:none;{style}")


def _stub(mark: Mark, colors: Theme) -> str:
    wide = 12.0 + 6.7 * len(mark.label)
    box = markup.tag(
        "rect", x=mark.x - 5, y=mark.y - 8, width=wide, height=16.0, rx=8.0,
        style=f"fill:{colors.paper};stroke:{colors.line};stroke-dasharray:3 2",
    )  # fmt: skip
    label = markup.text(mark.label, mark.x + 1, mark.y + 4, style=f"fill:{colors.muted}")
    return markup.tag("g", markup.title(mark.hover[0]), box, label)


def _legend(
    position: PlaybackPosition,
    colors: Theme,
    drawn: Scene,
    width: float,
    struck: frozenset[int],
    names: Mapping[str, str],
) -> tuple[str, float]:
    kinds = {mark.kind for mark in drawn.marks if mark.node not in struck}
    links = {link.kind for link in drawn.links}
    entries = [
        (markup.shape(kind, 0, 0, 5.5, 1.0, colors), names.get(kind, look.label), 16.0)
        for kind, look in LOOKS.items()
        if kind in kinds
    ]
    if struck:
        entries.append((_crossed(colors), names["struck"], 24.0))
    lines = (("choice", "ink", 1.4, "the target's choice"), ("path", "path", 3.2, "committed"))
    entries += [(_line(role, wide, colors), name, 16.0) for kind, role, wide, name in lines if kind in links]
    entries.append((_circles((3.0, 1.0), (7.0, 1.0), colors), "size: path probability", 28.0))
    if position.reached("verify"):
        entries.append((_circles((5.0, 0.8), (5.0, 3.2), colors), "border: target's probability", 28.0))
    content, height = markup.legend(tuple(entries), 12.0, drawn.height + 26, width - 24)
    return markup.tag("g", content, style=f"fill:{colors.muted}"), height


@cache
def _line(role: str, wide: float, colors: Theme) -> str:
    color = LOOKS["accepted"].color if role == "path" else colors.ink
    return markup.tag("path", d="M-7 0H7", style=f"stroke:{color};stroke-width:{wide}")


def _crossed(colors: Theme) -> str:
    circle = markup.shape("not reached", -4, 0, 5.0, 1.0, colors)
    return markup.tag("g", circle, markup.tag("path", d="M-12 0H12", style=f"stroke:{colors.ink}"), style="opacity:.6")


@cache
def _circles(left: tuple[float, float], right: tuple[float, float], colors: Theme) -> str:
    return "".join(
        [
            markup.tag("circle", cx=x, cy=0.0, r=r, style=f"fill:none;stroke:{colors.muted};stroke-width:{wide}")
            for x, (r, wide) in ((-8.0, left), (6.0, right))
        ]
    )
