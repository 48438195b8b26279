"""The draft tree, left to right.

A node's size is its path probability, its colour and symbol the verdict, its border the target's
probability. A dark line leads to the child that the target chose, a thick blue line follows the
accepted path. `page/tree.js` draws the same in the page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import floor, sqrt
from typing import Any

from speclab.trace.records import Event, Step
from speclab.views.networks import OWN, Graph, columns, fold, leaf_rows, least_room, step_graph
from speclab.views.phases import (
    WHOLE,
    Position,
    events_until,
    fresh,
    node_kinds,
    own_kind,
    own_shown,
)
from speclab.views.sentences import findings_at, mark, position_sentence, verdict_words
from speclab.views.theme import (
    COMMITTED,
    INK,
    LOOKS,
    MUTED,
    PAPER,
    PLOT_MONO,
    STYLE,
    Spec,
    spec,
    trace,
)
from speclab.views.tokens import clip, fixed, label, percent, plot_text, table, width
from speclab.views.words import WORDS

SIZES = STYLE["tree"]
HEIGHT: int = SIZES["heights"][1]
MARK = SIZES["mark"]
CHAR = SIZES["char"]
BEND = SIZES["bend"]
"""Shares of the way from the end of a column to a node."""
NEVER_FOLDED = 4
"""Nodes with findings."""
Kinds = Mapping[Any, str | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """A node or stub of a drawing.

    `parent`: index of an entry, -1 for none. `row`: from the top. `size`, `border`: pixels.
    `choice`: whether the target chose this child. `folded`: nodes of a stub.
    """

    id: Any
    parent: int
    depth: int
    row: float
    label: str
    size: float
    border: float
    choice: bool
    folded: Sequence[Any] = ()

    def text(self, chars: Sequence[int] | None = None) -> str:
        """Number and token, cut to the characters of its column."""
        number = f"{self.id} " if isinstance(self.id, int) else ""
        if chars is None:
            return number + self.label
        return number + clip(self.label, max(chars[self.depth] - len(number), 2))


Shown = list[tuple[Entry, str]]
"""Entries with their looks."""


def tree_table(graph: Graph, rows: int, first: Sequence[Any] = ()) -> list[Entry]:
    """The drawing of a graph in at most `rows` rows. `first`: nodes that are never folded."""
    small = fold(graph, rows, first)
    places = leaf_rows(small)
    index = {node: place for place, node in enumerate(small)}
    return [
        Entry(
            id=node,
            parent=index.get(data["parent"], -1),
            depth=data["depth"],
            row=places[node],
            label=data["label"],
            size=14.0 if node == OWN else 7 + 10 * sqrt(min(data.get("path_prob", 0.0), 1.0)),
            border=0.75 + 2.5 * data.get("target_prob", 0.0),
            choice=_is_choice(small, node),
            folded=data.get("folded", ()),
        )
        for node, data in small.nodes.items()
    ]


def _is_choice(graph: Graph, node: Any) -> bool:
    parent = graph.nodes.get(graph.nodes[node]["parent"], {})
    return "target_choice" in parent and parent["target_choice"] == graph.nodes[node].get("token")


def entry_kinds(entries: Sequence[Entry], kinds: Kinds) -> list[str | None]:
    """A look for each entry, None if it is not drawn yet."""
    looks = []
    for entry in entries:
        if entry.folded:
            known = any(kinds.get(node) for node in entry.folded)
            looks.append("folded" if known else None)
        else:
            looks.append(kinds.get(entry.id))
    return looks


def step_kinds(step: Step, position: Position = WHOLE) -> dict[Any, str | None]:
    """A key of `LOOKS` for each node and for the target's own token; None if not known yet."""
    kinds: dict[Any, str | None] = dict(enumerate(node_kinds(step, position)))
    kinds[OWN] = own_kind(step) if own_shown(step, position) else None
    return kinds


def notes(step: Step, position: Position) -> dict[Any, str]:
    """The second lines of nodes: the drafting decision; from verify on findings, and the target's choice."""
    lines: dict[Any, list[str]] = defaultdict(list)
    if position.reached("verify"):
        for record in step.nodes:
            lines[record.index] += map(mark, findings_at(step, record.index))
            if position.phase in {"verify", "accept"}:
                lines[record.index].append(f"→{label(record.target_choice, step.texts)}")
    elif position.phase == "draft":
        decided = defaultdict[int | None, list[Event]](list)
        for event in events_until(step, position):
            decided[event.node].append(event)
        lines |= {node: _decided(events) for node, events in decided.items() if node is not None}
    return {node: " ".join(parts) for node, parts in lines.items() if parts}


def _decided(events: Sequence[Event]) -> list[str]:
    """`62 % ×3 −1`: confidence, children, pruned children; `■ stop` if a gate closed.

    `#5 2.1 %`: its number in the order of a heap, and the probability of its path.
    """
    values: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        values[event.kind].append(event.values)
    for popped in values["pop"]:
        return [f"#{popped['order']}", percent(popped["path_prob"] or 0)]
    if not values["expand"]:
        return ["■ stop"] if values["stop"] else []
    sure = [grown["confidence"] for grown in values["expand"] if "confidence" in grown]
    children = sum(grown.get("added", grown.get("branches", 0)) for grown in values["expand"])
    pruned = sum(cut.get("dropped") or 1 for cut in values["prune"])
    parts = [percent(max(sure))] if sure else []
    parts += [f"×{children}"] if children else []
    parts += [f"−{pruned}"] if pruned else []
    return parts


def draw_tree(
    step: Step,
    selected: int | None = None,
    *,
    position: Position = WHOLE,
    width: int = 900,
    height: int = HEIGHT,
) -> Spec:
    """The tree of an iteration as known at `position`; `height` is the most that it takes."""
    marked = [finding.node for finding in step.findings if finding.node is not None]
    entries = tree_table(step_graph(step), most_rows(height), marked[:NEVER_FOLDED])
    if not position.reached("verify"):
        entries = [replace(entry, choice=False, border=1.0) for entry in entries]
    kinds = entry_kinds(entries, step_kinds(step, position))
    rings = {*fresh(step, position), *([] if selected is None else [selected])}
    sentence = f"Draft tree. {position_sentence(step, position)}"
    return tree_figure(entries, kinds, sentence, width, height, notes(step, position), rings)


def most_rows(height: int) -> int:
    """How many rows fit."""
    return int((height - SIZES["top"] - SIZES["bottom"]) // SIZES["pitch"][0])


def row_count(entries: Sequence[Entry]) -> int:
    return round(max(entry.row for entry in entries)) + 1


def tree_figure(
    entries: Sequence[Entry],
    kinds: Sequence[str | None],
    sentence: str,
    width: int = 900,
    height: int = HEIGHT,
    second: Mapping[Any, str] | None = None,
    rings: set[int] | None = None,
) -> Spec:
    """The figure of a table, wider where labels would be cut to nothing. `second`: second lines.
    `rings`: ringed nodes."""
    width = max(width, least_room(column_widths([entries])))
    margins = SIZES["top"] + SIZES["bottom"]
    needed = margins + row_count(entries) * SIZES["row"]
    high = min(height, max(SIZES["heights"][0], needed))
    data, axes = tree_traces(entries, kinds, width, high - margins, second, rings)
    return spec(data, sentence, "tree", width=width, height=high, **axes)


def tree_traces(
    entries: Sequence[Entry],
    kinds: Sequence[str | None],
    width: int,
    height: int,
    second: Mapping[Any, str] | None = None,
    rings: set[int] | None = None,
    widths: Sequence[int] | None = None,
) -> tuple[list[Spec], Spec]:
    """The traces and axes of a table. `widths`: columns' widths, by default from the labels."""
    xs, chars = columns(widths or column_widths([entries]), width)
    rows = row_count(entries)
    low, high = SIZES["pitch"]
    pitch = min(max(height / rows, low), high)
    shown = [(entry, kind) for entry, kind in zip(entries, kinds, strict=True) if kind]
    data = _links(entries, shown, xs, chars)
    data += [_marks(shown, xs, rings or set()), _labels(shown, xs, chars)]
    noted = [one for one in shown if (second or {}).get(one[0].id) and one[1] != "gone"]
    if second and noted:
        edges = pairwise([*xs, width])
        rooms = [floor((right - left - MARK) / CHAR) for left, right in edges]
        lines = [clip(second[entry.id], max(rooms[entry.depth], 2)) for entry, _ in noted]
        signs = tuple(STYLE["signs"].values())
        color = [INK if line.startswith(signs) else MUTED for line in lines]
        y = [entry.row + 12.5 / pitch for entry, _ in noted]
        font = {"family": PLOT_MONO, "size": 11, "color": color}
        data.append(_text(noted, xs, y, [plot_text(line) for line in lines], font))
    half = height / pitch / 2
    middle = (rows - 1) / 2
    ends = xs[-1] + MARK + CHAR * chars[-1]
    depths = ["depth 0", *map(str, range(1, len(xs)))]
    xaxis = {"tickvals": xs, "ticktext": depths, "range": [0, max(width, ends)]}
    return data, {"xaxis": xaxis, "yaxis": {"range": [middle + half, middle - half]}}


def column_widths(tables: Sequence[Sequence[Entry]]) -> list[int]:
    """Characters of the widest label at each depth over several tables."""
    widths: dict[int, int] = defaultdict(int)
    for entries in tables:
        for entry in entries:
            widths[entry.depth] = max(widths[entry.depth], width(entry.text()))
    return [widths[depth] for depth in range(len(widths))]


def _links(
    entries: Sequence[Entry], shown: Shown, xs: Sequence[float], chars: Sequence[int]
) -> list[Spec]:
    """One trace per kind of link: from the parent's label straight to the end of its column, then a curve."""
    lines: dict[str, tuple[list[Any], list[Any]]] = {kind: ([], []) for kind in STYLE["links"]}
    for entry, kind in shown:
        if entry.parent < 0:
            continue
        parent = entries[entry.parent]
        column = xs[parent.depth] + MARK
        start = column + CHAR * width(parent.text(chars)) + 3
        bend = column + CHAR * chars[parent.depth] + 2
        end = xs[entry.depth] - entry.size / 2 - 3
        drop = entry.row - parent.row
        x, y = lines[_link_kind(entry, kind)]
        x += [start, *(bend + share * (end - bend) for share in BEND), None]
        y += [parent.row, *(parent.row + _eased(share) * drop for share in BEND), None]
    return [
        trace("links", x=x, y=y, line=STYLE["links"][kind]) for kind, (x, y) in lines.items() if x
    ]


def _eased(share: float) -> float:
    return 3 * share**2 - 2 * share**3


def _link_kind(entry: Entry, kind: str) -> str:
    if kind in STYLE["links"]:
        return kind
    if kind in COMMITTED:
        return "path"
    return "choice" if entry.choice else "link"


def _marks(shown: Shown, xs: Sequence[float], rings: set[int]) -> Spec:
    """The symbols; there are no hover boxes, the page's node line says more."""
    looks = [LOOKS[kind] for _, kind in shown]
    ringed = [entry.id in rings for entry, _ in shown]
    marker = {
        "symbol": [look.symbol for look in looks],
        "size": [entry.size for entry, _ in shown],
        "opacity": 1,
        "color": [look.color if look.filled else PAPER for look in looks],
        "line": {
            "color": [
                INK if look.filled or ring else look.color
                for look, ring in zip(looks, ringed, strict=True)
            ],
            "width": [
                max(entry.border, 2.5 * ring)
                for (entry, _), ring in zip(shown, ringed, strict=True)
            ],
        },
    }
    ids = [entry.id for entry, _ in shown]
    x = [xs[entry.depth] for entry, _ in shown]
    return trace("nodes", x=x, y=[entry.row for entry, _ in shown], customdata=ids, marker=marker)


def _labels(shown: Shown, xs: Sequence[float], chars: Sequence[int]) -> Spec:
    bold = [kind in COMMITTED for _, kind in shown]
    texts = [plot_text(entry.text(chars)) for entry, _ in shown]
    font = {
        "family": PLOT_MONO,
        "size": 12,
        "color": [INK if one else MUTED for one in bold],
        "weight": [600 if one else 400 for one in bold],
    }
    struck = [
        f"<s>{text}</s>" if kind == "gone" else text
        for text, (_, kind) in zip(texts, shown, strict=True)
    ]
    return _text(shown, xs, [entry.row for entry, _ in shown], struck, font)


def _text(
    shown: Shown, xs: Sequence[float], y: Sequence[float], text: Sequence[str], font: Spec
) -> Spec:
    x = [xs[entry.depth] + MARK - 2 for entry, _ in shown]
    return trace("labels", x=x, y=list(y), text=list(text), textfont=font)


def tree_rows(step: Step) -> str:
    """Every node, as an HTML table."""
    return table(f"Draft tree of iteration {step.index + 1}", WORDS["facts"], node_rows(step))


def node_rows(step: Step) -> list[list[int | str]]:
    """The facts of every node as texts."""
    depth = step.tree.depth.tolist()
    parent = step.tree.parent.tolist()
    return [
        [
            node,
            label(record.token, step.texts),
            depth[node],
            parent[node],
            step.tree.source[node],
            fixed(record.draft_prob, 3),
            fixed(record.path_prob, 3),
            "" if record.target_prob is None else fixed(record.target_prob, 3),
            label(record.target_choice, step.texts),
            verdict_words(step, node),
        ]
        for node, record in enumerate(step.nodes)
    ]
