"""Where each node is drawn: x is its depth, y the order of the leaves, a parent midway between first and last child.

So no two edges cross (leaf order of a breadth-first tree), and the picture takes one row per leaf. A scene is the tree
in pixels: marks and links.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speclab.trace.records import Event, Step
from speclab.tree import DraftTree
from speclab.views import markup, playback
from speclab.views.explain import children, dropped, hovers

FOLD_ABOVE = 64
OWN = -1
"""`Place.node` of the target's own token."""


@dataclass(frozen=True, slots=True)
class Place:
    """One thing to draw: tree node `node`, the target's own token (`OWN`), or a stub (None) for `folded` nodes.

    `parent` is an index into the list of places, -1 for the root; `row` counts leaves from the top.
    """

    node: int | None
    folded: int
    parent: int
    depth: int
    row: float


def leaf_rows(parents: Sequence[int]) -> list[float]:
    """The row of each of `n` items, parents before children; children keep their order."""
    children: list[list[int]] = [[] for _ in parents]
    for item, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(item)
    order, stack = [], [item for item, parent in enumerate(parents) if parent < 0][::-1]
    while stack:
        item = stack.pop()
        order.append(item)
        stack.extend(reversed(children[item]))
    rows = [0.0] * len(parents)
    leaves = 0
    for item in order:
        if not children[item]:
            rows[item] = float(leaves)
            leaves += 1
    for item in reversed(order):
        if children[item]:
            rows[item] = (rows[children[item][0]] + rows[children[item][-1]]) / 2
    return rows


def choose_nodes(
    tree: DraftTree, path: Sequence[int], keep: Iterable[int] = (), limit: int = FOLD_ABOVE
) -> frozenset[int]:
    """The nodes to draw: all, or above `limit` the path, its siblings, `keep`, and the most probable.

    Closed under parents. A stub costs as much room as a node, so both count towards `limit`; what must be shown may
    exceed it.
    """
    if len(tree) <= limit:
        return frozenset(range(len(tree)))
    shown = {0}
    for node in [*path, *keep]:
        shown.update(tree.path(node))
        if node in path and node:
            shown.update(tree.children[int(tree.parent[node])])
    if path:
        shown.update(tree.children[path[-1]])
    hidden = {node: sum([child not in shown for child in tree.children[node]]) for node in shown}
    stubs = sum([count > 0 for count in hidden.values()])
    for node in sorted(range(len(tree)), key=lambda node: (-tree.path_log_prob[node], node)):  # parents come first
        parent, below = int(tree.parent[node]), len(tree.children[node])
        wider = stubs + (below > 0) - (hidden.get(parent) == 1)
        if node not in shown and parent in shown and len(shown) + 1 + wider <= limit:
            shown.add(node)
            hidden[node], stubs = below, wider
            hidden[parent] -= 1
    lonely = {nodes[0] for nodes in _stubs(tree, shown).values() if len(nodes) == 1}
    return frozenset(shown | lonely)


def _stubs(tree: DraftTree, shown: set[int] | frozenset[int]) -> dict[int, list[int]]:
    """For each shown node with hidden descendants below a hidden child: those descendants."""
    top: dict[int, int] = {}
    for node, parent in enumerate(tree.parent.tolist()):
        if node not in shown:
            top[node] = top.get(parent, parent)
    folded: dict[int, list[int]] = {}
    for node, keeper in top.items():
        folded.setdefault(keeper, []).append(node)
    return folded


def place_nodes(
    tree: DraftTree, shown: frozenset[int] | None = None, own_after: int | None = None
) -> tuple[Place, ...]:
    """Places of the `shown` nodes in order, then the target's own token after node `own_after`, then the stubs.

    With `own_after` -1 the target's own token stands in the root's column: a drafted root was rejected.
    """
    nodes = sorted(shown) if shown is not None else list(range(len(tree)))
    index = {node: i for i, node in enumerate(nodes)}
    rows: list[tuple[int | None, int, int, int]] = [
        (node, 0, index.get(int(tree.parent[node]), -1), int(tree.depth[node])) for node in nodes
    ]
    if own_after is not None:
        depth = int(tree.depth[own_after]) + 1 if own_after >= 0 else 0
        rows.append((OWN, 0, index.get(own_after, -1), depth))
    rows += [
        (None, len(folded), index[node], int(tree.depth[node]) + 1)
        for node, folded in sorted(_stubs(tree, frozenset(nodes)).items())
    ]
    heights = leaf_rows([row[2] for row in rows])
    return tuple([Place(*row, height) for row, height in zip(rows, heights, strict=True)])


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


def node_radius(path_prob: float) -> float:
    """Area grows with the path probability: 3.5 to 9 pixels."""
    return 3.5 + 5.5 * math.sqrt(min(max(path_prob, 0.0), 1.0))


def scene(
    step: Step,
    position: playback.PlaybackPosition = playback.WHOLE,
    selected: int | None = None,
    limit: int = FOLD_ABOVE,
) -> Scene:
    """Places stay where they are at every position, so a growing tree does not jump."""
    keep = () if selected is None else (selected,)
    shown = choose_nodes(step.tree, step.accepted, keep, limit)
    after = None if step.bonus is None else playback.last_on_path(step)
    places = place_nodes(step.tree, shown, after)
    labels = _labels(step, places)
    columns, ends = _columns(places, labels)
    marks = _marks(step, position, places, labels, columns)
    drawn, known = [i for i, mark in enumerate(marks) if mark is not None], position.reached("verify")
    links = [_link(step, known, places, marks, ends, i) for i in drawn if places[i].parent >= 0]
    return Scene(
        tuple([mark for mark in marks if mark is not None]),
        tuple(links),
        tuple(columns),
        ends[-1] + RIGHT,
        TOP + ROW * (max([place.row for place in places]) + 1),
        len(step.tree) - len(shown),
    )


def _labels(step: Step, places: Sequence[Place]) -> list[str]:
    own = "" if step.bonus is None else markup.label(step.bonus, step.texts, COLUMNS)
    names = markup.labels(step.tree.token.tolist(), step.texts, COLUMNS)
    return [
        f"+{place.folded}" if place.node is None else own if place.node == OWN else names[place.node]
        for place in places
    ]


def _columns(places: Sequence[Place], labels: Sequence[str]) -> tuple[list[float], list[float]]:
    """Columns: x of each depth, and where its longest label ends."""
    widest = [LEAST] * (max([place.depth for place in places]) + 1)
    for place, label in zip(places, labels, strict=True):
        widest[place.depth] = max(widest[place.depth], markup.width(label))
    columns, ends, x = [], [], LEFT
    for columns_wide in widest:
        columns.append(round(x, 1))
        ends.append(x + LABEL_X + CHAR * columns_wide)
        x = ends[-1] + GUTTER
    return columns, ends


def _marks(
    step: Step,
    position: playback.PlaybackPosition,
    places: Sequence[Place],
    labels: Sequence[str],
    columns: Sequence[float],
) -> list[Mark | None]:
    present, kinds, fresh = (
        playback.present(step, position),
        playback.verdicts(step, position),
        playback.fresh(step, position),
    )
    known, notes = position.reached("verify"), _notes(step, position)
    drawn = [place.node for place in places if place.node is not None and place.node != OWN and present[place.node]]
    tips = dict(zip(drawn, hovers(step, drawn, known), strict=True))
    marks: list[Mark | None] = []
    for place, label in zip(places, labels, strict=True):
        at = (columns[place.depth], TOP + ROW * (place.row + 0.5))
        if place.node is None:
            drafted = present[_below(step, places, place)].any()
            marks.append(_stub_mark(place, label, at) if drafted else None)
        elif place.node == OWN:
            marks.append(_own_mark(step, position, place, label, at))
        elif present[place.node]:
            record = step.nodes[place.node]
            width = 0.75 + 2.5 * (record.target_prob or 0.0 if known else 0.0)
            kind = kinds[place.node]
            size = node_radius(record.path_prob)
            note = markup.clip(notes[place.node], LEAST + 2) if place.node in notes else ""
            new = place.node in fresh
            marks.append(Mark(place.node, kind, *at, size, width, label, note, tips[place.node], place.parent, new))
        else:
            marks.append(None)
    return marks


def _below(step: Step, places: Sequence[Place], stub: Place) -> list[int]:
    """The folded children that a stub stands for."""
    shown = {place.node for place in places}
    keeper = places[stub.parent].node
    return [child for child in step.tree.children[keeper or 0] if child not in shown]


def _notes(step: Step, position: playback.PlaybackPosition) -> dict[int, str]:
    """A second line under a label: while drafting what was decided there, then what the target chose after it."""
    if position.phase in {"verify", "accept"}:
        return {node.index: f"→{markup.label(node.target_choice, step.texts)}" for node in step.nodes}
    if position.phase != "draft":
        return {}
    decisions: dict[int, list[Event]] = {}
    for event in playback.events_until(step, position):
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
    sure = max([one for event in grown if isinstance(one := event.values.get("confidence"), float)], default=None)
    counts = [count for event in grown if (count := children(event)) is not None]
    pruned = sum(map(dropped, events))
    shown = "" if sure is None else f"{sure:.2f} ".removeprefix("0")
    return shown + (f"×{sum(counts)}" if counts else "") + (f"−{pruned}" if pruned else "")


def _stub_mark(place: Place, label: str, at: tuple[float, float]) -> Mark:
    text = (f"{place.folded} more nodes are folded here",)
    return Mark(None, "stub", *at, 5.0, 1.0, label, "", text, place.parent, fresh=False)


def _own_mark(
    step: Step, position: playback.PlaybackPosition, place: Place, label: str, at: tuple[float, float]
) -> Mark | None:
    if not playback.own_shown(step, position) or step.bonus is None:
        return None
    kind = playback.own_kind(step)
    text = (
        f"{markup.quoted(step.bonus, step.texts)} · id {step.bonus}",
        f"{kind}: the target's own token; it is the next root",
    )
    return Mark(OWN, kind, *at, 7.0, 1.0, label, "", text, place.parent, position.phase == "accept")


def _link(
    step: Step,
    known: bool,
    places: Sequence[Place],
    marks: Sequence[Mark | None],
    ends: Sequence[float],
    child: int,
) -> Link:
    place, mark, parent = places[child], marks[child], marks[places[child].parent]
    assert mark is not None
    assert parent is not None
    start = parent.x + LABEL_X + CHAR * markup.width(parent.label) + 4
    kind = "plain"
    if mark.kind in {"accepted", "bonus", "corrected"}:
        kind = "path"
    elif known and place.node is not None and place.node >= 0 and parent.node is not None:
        kind = "choice" if step.nodes[parent.node].target_choice == step.tree.token[place.node] else "plain"
    return Link((start, parent.y), ends[places[place.parent].depth] + 6, (mark.x - mark.radius - 3, mark.y), kind)
