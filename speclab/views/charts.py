"""Two charts for lessons: figures of several kinds on one axis, and two shapes of a draft tree from the theory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from speclab.theory.yields import IsotropicShape, SpineShape
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.metrics_chart import nice, small
from speclab.views.palette import SOURCE_COLORS, Theme, css

NAMES, WIDE, ROW, TOP = 190.0, 500.0, 24.0, 46.0
VALUES = 40.0
"""Room to the right of the axis, for a value that stands at its end."""


def points_sentence(title: str, rows: Mapping[str, Sequence[float]]) -> str:
    """One sentence: what is shown, of how many things, from where to where."""
    values = [value for row in rows.values() for value in row]
    return f"{title}: {len(rows)} rows, values from {min(values):.3g} to {max(values):.3g}."


def points_svg(title: str, series: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    """A chart as one SVG string.

    Args:
        title: what the axis measures.
        series: a name for each point of a row; up to six.
        rows: name of a row to one value for each series, each at least 0.
    """
    colors, top = css(), nice(max([value for row in rows.values() for value in row]))
    entries = [(_mark(i, 0.0, 0.0), name, 14.0) for i, name in enumerate(series)]
    key, tall = markup.legend(tuple(entries), NAMES, 32.0, WIDE)
    y, parts = TOP + tall - 20, [markup.text(title, NAMES, 14, style="font-weight:600;font-size:12px")]
    parts.append(markup.tag("g", key, style=f"fill:{colors.muted}"))
    bottom = y + ROW * len(rows)
    parts += [_tick(share * top, NAMES + share * WIDE, y, bottom, colors) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    for number, (name, values) in enumerate(rows.items()):
        parts.append(_row(name, [NAMES + WIDE * value / top for value in values], values, y + ROW * number, colors))
    return markup.svg(NAMES + WIDE + VALUES, bottom + 22, points_sentence(title, rows), colors, parts)


def points_table(title: str, series: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    """The same figures as an HTML table."""
    return markup.table(title, ("", *series), [(name, *values) for name, values in rows.items()])


table = points_table


def _row(name: str, places: Sequence[float], values: Sequence[float], y: float, colors: Theme) -> str:
    middle, n = y + ROW / 2, markup.number
    label = markup.text(name, NAMES - 12, middle + 4, text_anchor="end")
    rule = f"M{n(min(places))} {n(middle)}H{n(max(places))}"
    line = markup.tag("path", d=rule, style=f"stroke:{colors.line};stroke-width:2")
    tip = markup.title(f"{name}: {', '.join([f'{value:.3g}' for value in values])}")
    return markup.tag("g", tip, label, line, *(_mark(i, x, middle) for i, x in enumerate(places)))


def _mark(series: int, x: float, y: float) -> str:
    """A circle, a square, a diamond, in turn: a colour never speaks alone."""
    style, n = f"fill:{SOURCE_COLORS[series % len(SOURCE_COLORS)]}", markup.number
    if series % 3 == 0:
        return markup.tag("circle", cx=x, cy=y, r=5.0, style=style)
    if series % 3 == 1:
        return markup.tag("rect", x=x - 4.5, y=y - 4.5, width=9.0, height=9.0, style=style)
    return markup.tag("path", d=f"M{n(x)} {n(y - 6.5)}l5.5 6.5l-5.5 6.5l-5.5 -6.5z", style=style)


def _tick(value: float, x: float, y: float, bottom: float, colors: Theme) -> str:
    rule = markup.tag(
        "path", d=f"M{markup.number(x)} {markup.number(y)}V{markup.number(bottom)}", style=f"stroke:{colors.faint}"
    )
    return rule + small(f"{value:g}", x, bottom + 14, colors, text_anchor="middle")


SHAPES_WIDE, LEFT, SHAPES_TOP, TALL = 740.0, 24.0, 42.0, 180.0
PANEL = SHAPES_TOP + TALL + 20
"""Height of each tree with its title, the same for all: a picture that is redrawn stays where it is."""
COPIED, GUESSED = SOURCE_COLORS[:2]

Place = tuple[float, float]
"""Column (depth) and row of a node; rows grow downwards."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Where nodes and links of a tree stand; `copied` of the nodes, the first ones, are the root and its spine."""

    nodes: Sequence[Place]
    links: Sequence[tuple[Place, Place]]
    copied: int


def shapes_sentence(spine: SpineShape, even: IsotropicShape) -> str:
    """One sentence, such as: spine of 7 with 8.8 branches: 4.31 tokens per pass; isotropic, 3 levels of 3: 2.10."""
    return (
        f"spine of {spine.spine_length} with {sum(spine.widths):.1f} branches: {spine.expected_tokens:.2f} tokens per "
        f"pass; isotropic, {plural(even.depth, 'level')} of {even.branching}: {even.expected_tokens:.2f}"
    )


def shapes_svg(spine: SpineShape, even: IsotropicShape, branch_depth: int) -> str:
    """Both trees as one SVG string; every branch is drawn with `branch_depth` tokens (D)."""
    colors, upper, lower = css(), _spine(spine, branch_depth), _even(even)
    columns = max([column for drawn in (upper, lower) for column, _ in drawn.nodes])
    pitch = min(46.0, (SHAPES_WIDE - 2 * LEFT) / max(columns, 1))
    title = f"spine tree: L = {spine.spine_length}, Σk = {sum(spine.widths):.1f}, {spine.expected_tokens:.2f} tokens"
    first = _panel(title, upper, pitch, 0.0, colors)
    every = max(1, round(30 / pitch))
    widths = [
        _small(f"{width:.1f}", LEFT + place * pitch, SHAPES_TOP - 12, colors)
        for place, width in enumerate(spine.widths)
        if place % every == 0 and width >= 0.05
    ]
    title = f"isotropic tree: b = {even.branching}, {plural(even.depth, 'level')}, {even.expected_tokens:.2f} tokens"
    second = _panel(title, lower, pitch, PANEL, colors)
    label = f"Two tree shapes: {shapes_sentence(spine, even)}."
    return markup.svg(SHAPES_WIDE, 2 * PANEL, label, colors, [first, *widths, second, _key(colors)])


def _spine(shape: SpineShape, branch_depth: int) -> Drawn:
    """Branches of the last spine nodes lie highest, so that nothing crosses."""
    nodes: list[Place] = [(float(place), 0.0) for place in range(shape.spine_length + 1)]
    links = [*pairwise(nodes)]
    copied, row = len(nodes), 0.0
    for place, width in reversed([*enumerate(_rounded(shape.widths))]):
        for _ in range(width):
            row += 1
            branch = [(float(place + level), row) for level in range(1, branch_depth + 1)]
            links += pairwise([(float(place), 0.0), *branch])
            nodes += branch
    return Drawn(nodes, links, copied)


def _even(shape: IsotropicShape) -> Drawn:
    """A parent stands level with its first child."""
    rows = float(shape.branching**shape.depth)
    nodes: list[Place] = [(0.0, 0.0)]
    links: list[tuple[Place, Place]] = []
    for level in range(1, shape.depth + 1):
        step = rows / shape.branching**level
        for number in range(shape.branching**level):
            above = (level - 1.0, number // shape.branching * step * shape.branching)
            links.append((above, (float(level), number * step)))
            nodes.append(links[-1][1])
    return Drawn(nodes, links, copied=1)


def _rounded(widths: Sequence[float]) -> list[int]:
    """Whole widths whose sums from the root on are the exact sums, rounded."""
    sums = [round(sum(widths[: place + 1])) for place in range(len(widths))]
    return [after - before for before, after in pairwise([0, *sums])]


def _panel(title: str, drawn: Drawn, pitch: float, y: float, colors: Theme) -> str:
    """A tree under its title."""
    rows = max([row for _, row in drawn.nodes])
    step = min(14.0, TALL / max(rows, 1))
    radius = max(1.2, min(4.5, 0.4 * step, 0.3 * pitch))

    def at(place: Place) -> Place:
        return LEFT + place[0] * pitch, y + SHAPES_TOP + place[1] * step

    path = "".join([_elbow(at(start), at(end)) for start, end in drawn.links])
    lines = markup.tag("path", d=path, style=f"fill:none;stroke:{colors.line}")
    dots = []
    for number, place in enumerate(drawn.nodes):
        x, height = at(place)
        style = f"fill:{colors.root if number == 0 else COPIED if number < drawn.copied else GUESSED}"
        if number < drawn.copied:  # square: the shape says it too
            side = 2 * max(radius, 2.5)
            box = {"x": x - side / 2, "y": height - side / 2, "width": side, "height": side}
            dots.append(markup.tag("rect", **box, style=style))
        else:
            dots.append(markup.tag("circle", cx=x, cy=height, r=radius, style=style))
    head = markup.text(title, LEFT - 8, y + 14, style="font-weight:600;font-size:12px")
    return head + lines + "".join(dots)


def _elbow(start: Place, end: Place) -> str:
    n = markup.number
    return f"M{n(start[0])} {n(start[1])}V{n(end[1])}H{n(end[0])}"


def _small(content: str, x: float, y: float, colors: Theme) -> str:
    return markup.text(content, x, y, text_anchor="middle", style=f"fill:{colors.muted};font-size:10px")


def _key(colors: Theme) -> str:
    square = markup.tag("rect", x=SHAPES_WIDE - 256, y=6.0, width=8.0, height=8.0, style=f"fill:{COPIED}")
    dot = markup.tag("circle", cx=SHAPES_WIDE - 108, cy=10.0, r=4.0, style=f"fill:{GUESSED}")
    words = markup.text("copied (numbers: k)", SHAPES_WIDE - 242, 14) + markup.text(
        "from the table", SHAPES_WIDE - 98, 14
    )
    return markup.tag("g", square, dot, words, style=f"fill:{colors.muted}")
