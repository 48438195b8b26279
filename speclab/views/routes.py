"""Routing between two trees over a run: who was chosen how often, by what margins, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from speclab.analysis.routing import Part, Routing, statistics
from speclab.trace.records import Step, Trace
from speclab.views import markup
from speclab.views.drafts import figure, merged
from speclab.views.palette import LOOKS, SOURCE_COLORS, ThemeName, css
from speclab.views.panels import LEFT, WIDE, Axis, iterations, nice, small
from speclab.views.summary import plural
from speclab.views.values import bar

MOST, LEAST, HIGH = 130, 12, 34.0
"""Iterations drawn at most (the newest) and the room kept at least; pixels above and below the line."""


def summary(trace: Trace, cursor: int | None = None) -> str:
    """One sentence, such as: Routing over 12 iterations: code 7, prose 5; mean margin 0.081."""
    found = statistics(trace, cursor)
    if found is None:
        return "Routing: no iteration had two trees."
    chosen = ", ".join(f"{part.name} {part.chosen}" for part in found.parts)
    return f"Routing over {plural(found.iterations, 'iteration')}: {chosen}; mean margin {figure(found.margin)}."


def routing_html(trace: Trace, cursor: int | None = None, theme: ThemeName = "light") -> str:
    """Margins over the iterations, and a row a tree; nothing where no iteration had two trees."""
    found = statistics(trace, cursor)
    if found is None:
        return ""
    return markup.tag("div", margins_svg(trace, cursor, theme), routing_table(found), class_="speclab-routes")


def routing_table(found: Routing) -> str:
    """How often each was chosen, what its choice gave, and whether its confidence keeps its word."""
    rows = (_row(part, found) for part in found.parts)
    head = (
        "tree", "chosen", "share", "", "tokens per iteration when chosen", "mean confidence",
        "share of its nodes the text followed", "expected tokens", "followed",
    )  # fmt: skip
    return markup.table(f"Routing over {plural(found.iterations, 'iteration')} with two trees", head, rows)


def _row(part: Part, found: Routing) -> tuple[object, ...]:
    share = part.chosen / found.iterations
    got = f"{part.committed / part.chosen:.2f}" if part.chosen else "–"
    return (
        part.name, part.chosen, f"{share:.0%}", bar(share, LOOKS["accepted"].color, 80), got, figure(part.confidence),
        figure(part.share), f"{part.expected:.2f}", f"{part.followed:.2f}",
    )  # fmt: skip


def margins(steps: Sequence[Step]) -> list[float | None]:
    """For each iteration the first tree's score less the second's; None where there were not two."""
    return [step.proposals[0].score - step.proposals[1].score if len(step.proposals) == 2 else None for step in steps]


def margins_svg(trace: Trace, cursor: int | None = None, theme: ThemeName = "light") -> str:
    """A bar an iteration: up where the first tree scored higher, down where the second did."""
    colors, steps = css(theme), trace.steps[:cursor]
    shown = steps[-MOST:]
    axis = Axis(steps, shown, max(LEAST, min(len(trace.steps), MOST)), colors)
    found = margins(shown)
    newest = next((step for step in reversed(shown) if len(step.proposals) == 2), None)
    if newest is None:
        text = markup.text("no iteration had two trees", 12, 24, style=f"fill:{colors.muted}")
        return markup.svg(LEFT + WIDE, 40, summary(trace, cursor), colors, [text])
    top = nice(max(abs(each) for each in found if each is not None))
    middle, unit = 22 + HIGH, HIGH / top
    up = [(i, middle - each * unit, each * unit) for i, each in enumerate(found) if each is not None and each >= 0]
    down = [(i, middle, -each * unit) for i, each in enumerate(found) if each is not None and each < 0]
    first, second = (one.name for one in newest.proposals)
    verb = "scores higher" if merged(newest) else "chosen"
    parts = [
        small(f"margin, ▲ up: {first} {verb}", LEFT, 14, colors),
        small(f"▼ down: {second} {verb}", LEFT, middle + HIGH + 12, colors),
        axis.bars(up, SOURCE_COLORS[0]),
        axis.bars(down, SOURCE_COLORS[1]),
        *(
            small(f"{each:g}", LEFT - 6, middle + sign * HIGH + 4, colors, text_anchor="end")
            for each, sign in ((top, -1), (0, 0), (top, 1))
        ),
        markup.tag("path", d=f"M{LEFT:g} {markup.number(middle)}h{WIDE:g}", style=f"stroke:{colors.muted}"),
        iterations(axis, middle + HIGH + 14),
    ]
    return markup.svg(LEFT + WIDE + 12, middle + HIGH + 40, summary(trace, cursor), colors, parts)
