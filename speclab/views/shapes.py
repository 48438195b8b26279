"""Two shapes of a draft tree from the theory, one above the other: the best spine tree, and the best isotropic one.

Spine: copied tokens in a row, under each the branches that leave it. Rounded widths are drawn; the exact ones stand
above the spine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from speclab.theory.yields import IsotropicShape, SpineShape
from speclab.views import markup
from speclab.views.palette import SOURCE_COLORS, Theme, ThemeName, css
from speclab.views.summary import plural

WIDE, LEFT, TOP, TALL = 740.0, 24.0, 42.0, 180.0
PANEL = TOP + TALL + 20
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


def summary(spine: SpineShape, even: IsotropicShape) -> str:
    """One sentence, such as: spine of 7 with 8.8 branches: 4.31 tokens a pass; isotropic, 3 levels of 3: 2.10."""
    return (
        f"spine of {spine.spine_length} with {sum(spine.widths):.1f} branches: {spine.expected_tokens:.2f} tokens a "
        f"pass; isotropic, {plural(even.depth, 'level')} of {even.branching}: {even.expected_tokens:.2f}"
    )


def shapes_svg(spine: SpineShape, even: IsotropicShape, branch_depth: int, theme: ThemeName = "light") -> str:
    """Both trees as one SVG string; every branch is drawn with `branch_depth` tokens (D)."""
    colors, upper, lower = css(theme), _spine(spine, branch_depth), _even(even)
    columns = max(column for drawn in (upper, lower) for column, _ in drawn.nodes)
    pitch = min(46.0, (WIDE - 2 * LEFT) / max(columns, 1))
    title = f"spine tree: L = {spine.spine_length}, Σk = {sum(spine.widths):.1f}, {spine.expected_tokens:.2f} tokens"
    first = _panel(title, upper, pitch, 0.0, colors)
    every = max(1, round(30 / pitch))
    widths = [
        _small(f"{width:.1f}", LEFT + place * pitch, TOP - 12, colors)
        for place, width in enumerate(spine.widths)
        if place % every == 0 and width >= 0.05
    ]
    title = f"isotropic tree: b = {even.branching}, {plural(even.depth, 'level')}, {even.expected_tokens:.2f} tokens"
    second = _panel(title, lower, pitch, PANEL, colors)
    label = f"Two tree shapes: {summary(spine, even)}."
    return markup.svg(WIDE, 2 * PANEL, label, colors, [first, *widths, second, _key(colors)])


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
    rows = max(row for _, row in drawn.nodes)
    step = min(14.0, TALL / max(rows, 1))
    radius = max(1.2, min(4.5, 0.4 * step, 0.3 * pitch))

    def at(place: Place) -> Place:
        return LEFT + place[0] * pitch, y + TOP + place[1] * step

    path = "".join(_elbow(at(start), at(end)) for start, end in drawn.links)
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
    square = markup.tag("rect", x=WIDE - 256, y=6.0, width=8.0, height=8.0, style=f"fill:{COPIED}")
    dot = markup.tag("circle", cx=WIDE - 108, cy=10.0, r=4.0, style=f"fill:{GUESSED}")
    words = markup.text("copied (numbers: k)", WIDE - 242, 14) + markup.text("from the table", WIDE - 98, 14)
    return markup.tag("g", square, dot, words, style=f"fill:{colors.muted}")
