"""A draft tree drawn small, to stand beside others on the same scale: columns, rows and symbols are shared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp

from speclab.tree import DraftTree
from speclab.views import glyphs, layout, markup, scene, tokens
from speclab.views.layout import OWN, Place
from speclab.views.palette import LOOKS, MONO, Theme

ROW, LABEL_X, GUTTER, CHAR, LEFT, TOP = 17.0, 11.0, 18.0, 6.05, 12.0, 8.0
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
        for place in _places(small):
            label = _label(small, place, texts)
            widest[place.depth] = max(widest.get(place.depth, 3), tokens.width(label))
    wide = (LABEL_X + CHAR * widest[depth] + GUTTER for depth in range(max(widest) + 1))
    return tuple(itertools.accumulate(wide, initial=LEFT))


def small_svg(small: Small, xs: Sequence[float], texts: Mapping[int, str], label: str, colors: Theme) -> str:
    """The tree as one SVG string, on these columns."""
    places = _places(small)
    at = [(xs[place.depth], TOP + ROW * (place.row + 0.5)) for place in places]
    on_path = {0, *small.reading.path, OWN}
    links = {"plain": "", "path": ""}
    for place, (x, y) in zip(places, at, strict=True):
        if place.parent >= 0:
            above = places[place.parent]
            start = at[place.parent][0] + LABEL_X + CHAR * tokens.width(_label(small, above, texts)) + 3
            kind = "path" if place.node in on_path and above.node in on_path else "plain"
            links[kind] += _curve((start, at[place.parent][1]), xs[place.depth] - GUTTER + 3, (x - 8, y))
    styles = {"plain": f"{colors.line};stroke-width:1.1", "path": f"{LOOKS['accepted'].color};stroke-width:2.6"}
    lines = [markup.tag("path", d=d, style=f"fill:none;stroke:{styles[kind]}") for kind, d in links.items() if d]
    marks = [_mark(small, place, *where, texts, colors) for place, where in zip(places, at, strict=True)]
    height = TOP + ROW * (max(place.row for place in places) + 1) + 4
    return markup.svg(xs[-1], height, label, colors, [*lines, *marks])


def _places(small: Small) -> tuple[Place, ...]:
    path = small.reading.path
    shown = layout.choose(small.tree, path, limit=FOLD)
    after = None if small.reading.own is None else path[-1] if path else 0
    return layout.place(small.tree, shown, after)


def _label(small: Small, place: Place, texts: Mapping[int, str]) -> str:
    if place.node is None:
        return f"+{place.folded}"
    if place.node == OWN:
        return tokens.label(small.reading.own[0], texts, CLIP) if small.reading.own else ""
    return tokens.label(int(small.tree.token[place.node]), texts, CLIP)


def _mark(small: Small, place: Place, x: float, y: float, texts: Mapping[int, str], colors: Theme) -> str:
    label = _label(small, place, texts)
    if place.node is None:
        style = f"font:10px {MONO};fill:{colors.muted}"
        return markup.tag(
            "g",
            markup.title(f"{place.folded} more nodes are folded here"),
            markup.text(label, x - 4, y + 3.5, style=style),
        )
    own = place.node == OWN and small.reading.own
    look = own[1] if own else small.reading.looks[place.node]
    radius = 5.0 if own else 0.72 * scene.radius(exp(small.tree.path_log_prob[place.node]))
    drawn = small.symbol is None or own
    symbol = glyphs.shape(look, x, y, radius, 0.9, colors) if drawn else small.symbol(place.node, x, y, radius)  # type: ignore[misc]
    strong = look in {"root", "accepted", "bonus", "corrected"}
    style = f"font:10px {MONO};" + ("font-weight:600" if strong else f"fill:{colors.muted}")
    said = f"the target's own token {tokens.quoted(own[0], texts)}" if own else _hover(small, place.node, texts)
    hover = markup.title(said) if said else ""
    return markup.tag("g", hover, symbol, markup.text(label, x + LABEL_X, y + 3.5, style=style))


def _hover(small: Small, node: int, texts: Mapping[int, str]) -> str:
    if small.hovers:
        return small.hovers[node]
    token = int(small.tree.token[node])
    return tokens.quoted(token, texts) if tokens.width(tokens.label(token, texts)) > CLIP else ""


def _curve(start: tuple[float, float], bend: float, end: tuple[float, float]) -> str:
    n = markup.number
    (x0, y0), (x1, y1) = start, end
    bend = max(x0, bend)
    middle = (bend + x1) / 2
    return f"M{n(x0)} {n(y0)}H{n(bend)}C{n(middle)} {n(y0)} {n(middle)} {n(y1)} {n(x1)} {n(y1)}"
