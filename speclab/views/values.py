"""Named values of a record in words, bars and lines; whatever the names are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from speclab.trace.records import Value
from speclab.views import markup
from speclab.views.cache import size
from speclab.views.markup import Drawn, tag
from speclab.views.palette import SANS
from speclab.views.tokens import escape

MOST = 80
"""Iterations of a line at most, the newest."""
MEANINGS = {
    "consensus": "n-gram lengths that agree on the first token",
    "spine": "copied tokens laid as the spine",
    "spine_ratio": "share of the nodes for the spine",
    "spine_acceptance": "running mean: copied tokens accepted",
    "branch_acceptance": "running mean: transitions accepted",
    "carry": "the table at the start of a prompt",
    "table": "how its rows are kept",
    "table_rows": "tokens whose successors are known",
    "rows_refreshed": "known rows that were overwritten",
    "bigrams": "pairs of tokens with successors of their own",
    "table_bytes": "of all rows when full",
}
"""What is said beside values whose names do not say it."""


def spoken(name: str) -> str:
    """`table_rows` → `table rows`, `table_bytes` → `table memory`; kept on one line."""
    words = f"{name.removesuffix('_bytes')} memory" if name.endswith("_bytes") else name
    return words.replace("_", "\u00a0").replace(" ", "\u00a0")


def written(name: str, value: Value) -> str:
    """`0.3`, `1,204`, `5.1 MiB`, `yes`; `–` for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if name.endswith("_bytes"):
        return size(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def counts(value: Value) -> TypeGuard[float]:
    """Whether it is a number; yes and no are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def change(before: Value, after: Value) -> str:
    """`▲ 0.2`, `▼ 3`, `=`; the new value where it is no number."""
    if before == after:
        return "="
    if not counts(before) or not counts(after):
        return "changed"
    gap = after - before
    size_of = f"{abs(gap):,}" if isinstance(gap, int) else f"{abs(gap):.2g}"
    return f"{'▲' if gap > 0 else '▼'}\u00a0{size_of}"


def bar(share: float, color: str, room: int = 110) -> Drawn:
    """A bar of `share` of `room` pixels. It says nothing to a screen reader: its number stands beside it."""
    wide = f"{room * min(max(share, 0.0), 1.0):.1f}"
    style = f"display:inline-block;width:{wide}px;height:10px;background:{color};vertical-align:baseline"
    return Drawn(
        tag("span", tag("span", style=style), aria_hidden="true", style=f"display:inline-block;width:{room}px")
    )


def line(values: Sequence[float], ink: str, room: int = 90) -> Drawn:
    """The course of a value over the iterations, lowest to highest; nothing where it never moved."""
    shown = values[-MOST:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    if low == high:
        return Drawn("")
    pitch = room / max(len(shown) - 1, 1)
    points = (f"{pitch * i:.1f} {15 - 13 * (v - low) / (high - low):.1f}" for i, v in enumerate(shown))
    path = tag("path", d="M" + "L".join(points), style=f"fill:none;stroke:{ink};stroke-width:1.5")
    said = f"over the iterations from {shown[0]:.3g} to {shown[-1]:.3g}, between {low:.3g} and {high:.3g}"
    size = {"xmlns": "http://www.w3.org/2000/svg", "width": room, "height": 17, "viewBox": f"0 0 {room} 17"}
    return Drawn(tag("svg", markup.title(said), path, role="img", aria_label=said, **size))


def cards(*blocks: str) -> str:
    """Blocks side by side, as many as fit; empty ones are left out."""
    own = "flex:0 1 auto;min-width:0;max-width:100%;overflow-x:auto"
    style = "display:flex;flex-wrap:wrap;gap:14px 36px;align-items:flex-start;padding-top:6px"
    return tag("div", *(tag("div", block, style=own) for block in blocks if block), style=style)


def said(label: str, sentence: str) -> str:
    """A sentence under a name."""
    style = f"font:13px/1.5 {SANS};margin:0 0 4px;max-width:110ch"
    return tag("div", tag("b", escape(f"{label}. ")), escape(sentence), style=style)
