"""What the tree picture shows, in pixels: marks and links that the SVG and the plotly figure both draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from speclab.trace.records import Event, Step
from speclab.views import layout, tokens, walk
from speclab.views.explain import children, dropped, hover
from speclab.views.layout import OWN, Place

ROW, LABEL_X, GUTTER, CHAR, FONT = 26.0, 17.0, 44.0, 6.63, 11
TOP, LEFT, RIGHT = 46.0, 22.0, 24.0
COLUMNS, LEAST = 16, 8
"""Longest label, in characters (the tooltip has the whole token), and the room every column has, for the notes."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A node, the target's own token, or a stub. `kind` is a key of `LOOKS`, or "stub"; `border` is in pixels."""

    node: int | None
    kind: str
    x: float
    y: float
    radius: float
    border: float
    label: str
    note: str
    hover: tuple[str, ...]
    parent: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class Link:
    """From the end of the parent's label, level to `bend`, then in a curve to the child."""

    start: tuple[float, float]
    bend: float
    end: tuple[float, float]
    kind: str  # "plain", "choice" (the child is what the target chose), "path" (committed)


@dataclass(frozen=True, slots=True)
class Scene:
    """`columns`: x of each depth. Sizes are pixels."""

    marks: tuple[Mark, ...]
    links: tuple[Link, ...]
    columns: tuple[float, ...]
    width: float
    height: float
    folded: int


def radius(path_prob: float) -> float:
    """Area grows with the path probability: 3.5 to 9 pixels."""
    return 3.5 + 5.5 * math.sqrt(min(max(path_prob, 0.0), 1.0))


def border(target_prob: float | None) -> float:
    """0.75 to 3.25 pixels."""
    return 0.75 + 2.5 * (target_prob or 0.0)


def scene(
    step: Step,
    moment: walk.Moment = walk.WHOLE,
    selected: int | None = None,
    limit: int = layout.FOLD_ABOVE,
) -> Scene:
    """Places stay where they are at every moment, so a growing tree does not jump."""
    keep = () if selected is None else (selected,)
    shown = layout.choose(step.tree, step.accepted, keep, limit)
    after = None if step.bonus is None else walk.last_on_path(step)
    places = layout.place(step.tree, shown, after)
    labels = [_label(step, place) for place in places]
    columns, ends = _columns(places, labels)
    marks = _marks(step, moment, places, labels, columns)
    drawn = [i for i, mark in enumerate(marks) if mark is not None]
    links = [_link(step, moment, places, marks, ends, i) for i in drawn if places[i].parent >= 0]
    return Scene(
        tuple(mark for mark in marks if mark is not None),
        tuple(links),
        tuple(columns),
        ends[-1] + RIGHT,
        TOP + ROW * (max(place.row for place in places) + 1),
        len(step.tree) - len(shown),
    )


def _label(step: Step, place: Place) -> str:
    if place.node is None:
        return f"+{place.folded}"
    if place.node == OWN:
        return "" if step.bonus is None else tokens.label(step.bonus, step.texts, COLUMNS)
    return tokens.label(int(step.tree.token[place.node]), step.texts, COLUMNS)


def _columns(places: Sequence[Place], labels: Sequence[str]) -> tuple[list[float], list[float]]:
    """Columns: x of each depth, and where its longest label ends."""
    widest = [LEAST] * (max(place.depth for place in places) + 1)
    for place, label in zip(places, labels, strict=True):
        widest[place.depth] = max(widest[place.depth], tokens.width(label))
    columns, ends, x = [], [], LEFT
    for columns_wide in widest:
        columns.append(round(x, 1))
        ends.append(x + LABEL_X + CHAR * columns_wide)
        x = ends[-1] + GUTTER
    return columns, ends


def _marks(
    step: Step, moment: walk.Moment, places: Sequence[Place], labels: Sequence[str], columns: Sequence[float]
) -> list[Mark | None]:
    present, kinds, fresh = walk.present(step, moment), walk.verdicts(step, moment), walk.fresh(step, moment)
    known, notes = moment.reached("verify"), _notes(step, moment)
    marks: list[Mark | None] = []
    for place, label in zip(places, labels, strict=True):
        at = (columns[place.depth], TOP + ROW * (place.row + 0.5))
        if place.node is None:
            drafted = present[_below(step, places, place)].any()
            marks.append(_stub_mark(place, label, at) if drafted else None)
        elif place.node == OWN:
            marks.append(_own_mark(step, moment, place, label, at))
        elif present[place.node]:
            record = step.nodes[place.node]
            width = border(record.target_prob) if known else 0.75
            text = tuple(hover(step, place.node, known))
            kind = kinds[place.node]
            size = radius(record.path_prob)
            note = tokens.clip(notes.get(place.node, ""), LEAST + 2)
            new = place.node in fresh
            marks.append(Mark(place.node, kind, *at, size, width, label, note, text, place.parent, new))
        else:
            marks.append(None)
    return marks


def _below(step: Step, places: Sequence[Place], stub: Place) -> list[int]:
    """The folded children that a stub stands for."""
    shown = {place.node for place in places}
    keeper = places[stub.parent].node
    return [child for child in step.tree.children[keeper or 0] if child not in shown]


def _notes(step: Step, moment: walk.Moment) -> dict[int, str]:
    """A second line under a label: while drafting what was decided there, then what the target chose after it."""
    if moment.phase in {"verify", "accept"}:
        return {node.index: f"→{tokens.label(node.target_choice, step.texts)}" for node in step.nodes}
    if moment.phase != "draft":
        return {}
    decisions: dict[int, list[Event]] = {}
    for event in walk.told(step, moment):
        if event.node is not None:
            decisions.setdefault(event.node, []).append(event)
    return {node: _decided(events) for node, events in decisions.items()}


def _decided(events: Sequence[Event]) -> str:
    """`.62 ×3−1` for an expansion: confidence, children, how many of them were pruned; `■ stop` at a gate.

    Of a node that two drafts expanded, the surer one's confidence, and the children of both.
    """
    grown = [event for event in events if event.kind == "expand"]
    if not grown:
        return "■ stop" if any(event.kind == "stop" for event in events) else ""
    sure = max((one for event in grown if isinstance(one := event.values.get("confidence"), float)), default=None)
    counts = [count for event in grown if (count := children(event)) is not None]
    pruned = sum(map(dropped, events))
    shown = "" if sure is None else f"{sure:.2f} ".removeprefix("0")
    return shown + (f"×{sum(counts)}" if counts else "") + (f"−{pruned}" if pruned else "")


def _stub_mark(place: Place, label: str, at: tuple[float, float]) -> Mark:
    text = (f"{place.folded} more nodes are folded here",)
    return Mark(None, "stub", *at, 5.0, 1.0, label, "", text, place.parent, fresh=False)


def _own_mark(step: Step, moment: walk.Moment, place: Place, label: str, at: tuple[float, float]) -> Mark | None:
    if not walk.own_shown(step, moment) or step.bonus is None:
        return None
    kind = walk.own_kind(step)
    text = (
        f"{tokens.quoted(step.bonus, step.texts)} · id {step.bonus}",
        f"{kind}: the target's own token; it is the next root",
    )
    return Mark(OWN, kind, *at, 7.0, 1.0, label, "", text, place.parent, moment.phase == "accept")


def _link(
    step: Step,
    moment: walk.Moment,
    places: Sequence[Place],
    marks: Sequence[Mark | None],
    ends: Sequence[float],
    child: int,
) -> Link:
    place, mark, parent = places[child], marks[child], marks[places[child].parent]
    assert mark is not None
    assert parent is not None
    start = parent.x + LABEL_X + CHAR * tokens.width(parent.label) + 4
    link_kind = _link_kind(step, moment, place, mark, parent)
    return Link((start, parent.y), ends[places[place.parent].depth] + 6, (mark.x - mark.radius - 3, mark.y), link_kind)


def _link_kind(step: Step, moment: walk.Moment, place: Place, mark: Mark, parent: Mark) -> str:
    if mark.kind in {"accepted", "bonus", "corrected"}:
        return "path"
    if place.node is None or place.node < 0 or parent.node is None or not moment.reached("verify"):
        return "plain"
    chosen = step.nodes[parent.node].target_choice == step.tree.token[place.node]
    return "choice" if chosen else "plain"
