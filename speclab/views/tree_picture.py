"""The draft tree, left to right.

A node's size is its path probability, its colour and symbol the verdict, its border the target's
probability. A dark line leads to the child that the target chose, a thick blue line follows the
committed path. `tree_table` contains the drawing as columns; `draw_tree` turns it into a plotly
figure, and `drawTree` in page.js draws it in the browser.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from speclab.trace.records import Event, Step
from speclab.views.networks import CHAR, MARK, OWN, Graph, columns, fold, leaf_rows, step_graph
from speclab.views.phases import (
    WHOLE,
    Position,
    events_until,
    fresh,
    node_kinds,
    own_kind,
    own_shown,
)
from speclab.views.sentences import (
    SIGNS,
    findings_at,
    mark,
    position_sentence,
    tip,
    verdict_words,
)
from speclab.views.theme import (
    ABSENT,
    COMMITTED,
    INK,
    LINE,
    LOOKS,
    MUTED,
    PAPER,
    PLOT_MONO,
    Spec,
    spec,
)
from speclab.views.tokens import clip, labels, plot_lines, plot_text, table, width

HEIGHT = 380
TOP = 26
BOTTOM = 10
"""Pixels: the whole picture, above the tree for the depths, below it."""
PITCH = (24, 48)
"""Least and most pixels between rows."""
FIRST_FINDINGS = 4
"""Nodes with findings that are never folded."""
ROWS = (HEIGHT - TOP - BOTTOM) // PITCH[0]
LINKS = {
    "link": {"color": LINE, "width": 1.2},
    "gone": {"color": LINE, "width": 1.2, "dash": "dot"},
    "choice": {"color": INK, "width": 1.4},
    "path": {"color": LOOKS["accepted"].color, "width": 3.2},
}
BEND = (0.0, 0.12, 0.26, 0.42, 0.58, 0.74, 0.88, 1.0)
FACTS = ("node", "token", "depth", "parent", "source", "draft p", "path p", "target p", "target's choice", "verdict",
         "why")  # fmt: skip
"""Columns of the table of nodes."""
CODES = {look.code: kind for kind, look in LOOKS.items()}


def tree_table(
    made: Graph,
    tooltips: Mapping[Any, str] | None = None,
    rows: int = ROWS,
    first: Sequence[Any] = (),
) -> dict[str, Any]:
    """The drawing of a graph in columns, one entry per node or stub.

    `parent`: index of the entry, -1 for none. `row`: from the top. `size`, `border`: pixels.
    `choice`: whether the target chose this child. `tip`: tooltips of stubs and of the target's own
    token. `folded`: nodes of a stub. `first`: nodes that are never folded.
    """
    small = fold(made, rows, first)
    places = leaf_rows(small)
    ids = list(small)
    index = {node: place for place, node in enumerate(ids)}
    data = [small.nodes[node] for node in ids]
    own = {index[node]: _own_tip(small, node) for node in ids if not isinstance(node, int)}
    own |= {index[node]: tip for node, tip in (tooltips or {}).items() if node in index}
    return {
        "id": ids,
        "parent": [index.get(each["parent"], -1) for each in data],
        "depth": [each["depth"] for each in data],
        "row": [places[node] for node in ids],
        "rows": round(max(places.values())) + 1,
        "label": [each["label"] for each in data],
        "size": [_size(each, node) for node, each in zip(ids, data, strict=True)],
        "border": [round(0.75 + 2.5 * each.get("target_prob", 0.0), 2) for each in data],
        "choice": [_is_choice(small, node) for node in ids],
        "tip": own,
        "folded": {
            index[node]: each["folded"]
            for node, each in zip(ids, data, strict=True)
            if "folded" in each
        },
    }


def _size(data: Mapping[str, Any], node: Any) -> float:
    if node == OWN:
        return 14.0
    return round(7 + 10 * sqrt(min(data.get("path_prob", 0.0), 1.0)), 1)


def _is_choice(made: Graph, node: Any) -> bool:
    parent = made.nodes.get(made.nodes[node]["parent"], {})
    return "target_choice" in parent and parent["target_choice"] == made.nodes[node].get("token")


def _own_tip(made: Graph, node: Any) -> str:
    data = made.nodes[node]
    name = f"'{data['label']}'"
    if "folded" in data:
        return plot_lines(f"{data['label'][1:]} nodes are folded here")
    if node == OWN:
        return plot_lines(
            f"{name} · id {data['token']}",
            f"{data['verdict']}: the target's own token, the next root",
        )
    return plot_lines(name)


def codes(made: dict[str, Any], kinds: Mapping[Any, str | None]) -> str:
    """One letter per entry of a table: the code of its look, or `ABSENT`."""
    letters = []
    for place, node in enumerate(made["id"]):
        folded = made["folded"].get(place)
        kind = kinds.get(node)
        if folded is not None and any(kinds.get(each) for each in folded):
            kind = "folded"
        letters.append(LOOKS[kind].code if kind else ABSENT)
    return "".join(letters)


def step_kinds(step: Step, position: Position = WHOLE) -> dict[Any, str | None]:
    """A key of `LOOKS` for each node and for the target's own token; None if not known yet."""
    kinds: dict[Any, str | None] = dict(enumerate(node_kinds(step, position)))
    if own_shown(step, position):
        kinds[OWN] = own_kind(step)
    return kinds


def notes(step: Step, position: Position) -> dict[int, str]:
    """The second lines of nodes: the drafting decision; from verify on findings, and the target's choice."""
    if position.reached("verify"):
        lines = {
            node.index: " ".join(map(mark, findings_at(step, node.index))) for node in step.nodes
        }
        if position.phase in {"verify", "accept"}:
            words = labels([node.target_choice for node in step.nodes], step.texts)
            lines = {
                node.index: f"{lines[node.index]} →{words[node.target_choice]}".strip()
                for node in step.nodes
            }
        return {node: line for node, line in lines.items() if line}
    decided = defaultdict[int, list[Event]](list)
    for event in events_until(step, position) if position.phase == "draft" else []:
        if event.node is not None:
            decided[event.node].append(event)
    return {node: note for node, events in decided.items() if (note := _decided(events))}


def _decided(events: Sequence[Event]) -> str:
    """`62% ×3 −1`: confidence, children, pruned children; `■ stop` if a gate closed.

    `#5 2.1%`: its number in the order of a heap, and the probability of its path.
    """
    popped = [event.values for event in events if event.kind == "pop"]
    if popped:
        return f"#{popped[0]['order']} {float(popped[0]['path_prob'] or 0):.1%}"
    grown = [event.values for event in events if event.kind == "expand"]
    if not grown:
        return "■ stop" if any(event.kind == "stop" for event in events) else ""
    sure = [sure for values in grown if isinstance(sure := values.get("confidence"), float)]
    counts = [values.get("added", values.get("branches")) for values in grown]
    pruned = sum(int(event.values.get("dropped") or 1) for event in events if event.kind == "prune")
    parts = [f"{max(sure):.0%}"] if sure else []
    parts += [f"×{sum(int(count or 0) for count in counts)}"] if any(counts) else []
    parts += [f"−{pruned}"] if pruned else []
    return " ".join(parts)


def draw_tree(
    step: Step,
    selected: int | None = None,
    *,
    position: Position = WHOLE,
    width: int = 900,
    height: int = HEIGHT,
) -> Spec:
    """The tree of an iteration as known at `position`, in `width` by `height` pixels."""
    made = tree_table(
        step_graph(step),
        node_tips(step, position),
        (height - TOP - BOTTOM) // PITCH[0],
        marked(step),
    )
    kinds = codes(made, step_kinds(step, position))
    rings = {*fresh(step, position), *([] if selected is None else [selected])}
    sentence = f"Draft tree. {position_sentence(step, position)}"
    if not position.reached("verify"):
        made |= {"choice": [False] * len(made["id"]), "border": [1.0] * len(made["id"])}
    return tree_figure(made, kinds, sentence, width, height, notes(step, position), rings)


def marked(step: Step) -> list[int]:
    """The nodes of the first findings, which the tree does not fold."""
    return [finding.node for finding in step.findings if finding.node is not None][:FIRST_FINDINGS]


def node_tips(step: Step, position: Position = WHOLE) -> dict[int, str]:
    """The tooltips of drafted nodes; the target's part appears after verification."""
    tips = [tip(step, node) for node in range(len(step.tree))]
    known = position.reached("verify")
    return {
        node: plot_lines(*drafted, *(verified if known else []))
        for node, (drafted, verified) in enumerate(tips)
    }


def tree_figure(
    made: dict[str, Any],
    kinds: str,
    sentence: str,
    width: int = 900,
    height: int = HEIGHT,
    second: Mapping[Any, str] | None = None,
    rings: set[int] | None = None,
) -> Spec:
    """The figure of a table. `kinds`: its codes. `second`: second lines. `rings`: ringed nodes."""
    data, axes = tree_traces(
        made, kinds, width, height - TOP - BOTTOM, second or {}, rings or set()
    )
    margin = {"l": 0, "r": 0, "t": TOP, "b": BOTTOM}
    return spec(
        data, sentence, "tree", width=width, height=height, margin=margin, dragmode="pan", **axes
    )


def tree_traces(
    made: dict[str, Any],
    kinds: str,
    width: int,
    height: int,
    second: Mapping[Any, str],
    rings: set[int],
    widths: Sequence[int] | None = None,
) -> tuple[list[Spec], Spec]:
    """The traces and axes of a table. `widths`: columns' widths, by default from the labels."""
    xs, chars = columns(widths or column_widths([made]), width)
    shown = [place for place, code in enumerate(kinds) if code != ABSENT]
    label_of = {place: _label(made, place, chars) for place in shown}
    place_of = {"x": [xs[depth] for depth in made["depth"]], "y": made["row"]}
    data = _links(
        made,
        kinds,
        shown,
        place_of["x"],
        [xs[d] + MARK + CHAR * chars[d] for d in range(len(xs))],
        label_of,
    )
    data.append(_marks(made, kinds, shown, place_of, rings))
    data.append(_labels(made, kinds, shown, place_of, label_of))
    pitch = min(max(height / made["rows"], PITCH[0]), PITCH[1])
    lines = [
        place for place in shown if second.get(made["id"][place]) and CODES[kinds[place]] != "gone"
    ]
    if lines:
        rooms = [
            int((right - left - MARK) / CHAR)
            for left, right in zip(xs, [*xs[1:], width], strict=True)
        ]
        text = [
            plot_text(clip(second[made["id"][place]], max(rooms[made["depth"][place]], 2)))
            for place in lines
        ]
        y = [made["row"][place] + 11.5 / pitch for place in lines]
        color = [INK if line.startswith(SIGNS) else MUTED for line in text]
        font = {"family": PLOT_MONO, "size": 11, "color": color}
        data.append(_text([place_of["x"][place] for place in lines], y, text, font))
    half = height / pitch / 2
    middle = (made["rows"] - 1) / 2
    ends = xs[-1] + MARK + CHAR * chars[-1]
    depths = {
        "tickvals": xs,
        "ticktext": ["depth 0", *map(str, range(1, len(xs)))],
        "side": "top",
        "tickangle": 0,
    }
    xaxis = {**depths, "range": [0, max(width, ends)], "showgrid": False}
    return data, {
        "xaxis": xaxis,
        "yaxis": {"range": [middle + half, middle - half], "visible": False},
    }


def column_widths(tables: Sequence[dict[str, Any]]) -> list[int]:
    """Characters of the widest label at each depth over several tables."""
    widths: dict[int, int] = defaultdict(int)
    for made in tables:
        for place, depth in enumerate(made["depth"]):
            widths[depth] = max(widths[depth], width(_label(made, place, None)))
    return [widths[depth] for depth in range(len(widths))]


def _label(made: dict[str, Any], place: int, chars: Sequence[int] | None) -> str:
    node = made["id"][place]
    number = f"{node} " if isinstance(node, int) else ""
    if chars is None:
        return number + str(made["label"][place])
    return number + clip(made["label"][place], max(chars[made["depth"][place]] - len(number), 2))


def _links(
    made: dict[str, Any],
    kinds: str,
    shown: Sequence[int],
    x: Sequence[float],
    ends: Sequence[float],
    label_of: Mapping[int, str],
) -> list[Spec]:
    """One trace per kind of link: from the parent's label straight to the end of its column, then a curve."""
    drawn: dict[str, tuple[list[Any], list[Any]]] = {kind: ([], []) for kind in LINKS}
    for place in shown:
        parent = made["parent"][place]
        if parent < 0:
            continue
        kind = CODES[kinds[place]]
        name = "path" if kind in COMMITTED else kind if kind == "gone" else "link"
        if name == "link" and made["choice"][place]:
            name = "choice"
        start = x[parent] + MARK + CHAR * width(label_of[parent]) + 3
        bend = ends[made["depth"][parent]] + 2
        end = x[place] - made["size"][place] / 2 - 3
        top = made["row"][parent]
        bottom = made["row"][place]
        xs, ys = drawn[name]
        xs += [round(start, 1), *(round(bend + share * (end - bend), 1) for share in BEND), None]
        ys += [
            top,
            *(round(top + (3 * share**2 - 2 * share**3) * (bottom - top), 3) for share in BEND),
            None,
        ]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "x": xs,
            "y": ys,
            "line": LINKS[name],
            "hoverinfo": "skip",
        }
        for name, (xs, ys) in drawn.items()
        if xs
    ]


def _marks(
    made: dict[str, Any],
    kinds: str,
    shown: Sequence[int],
    at: Mapping[str, Sequence[float]],
    rings: set[int],
) -> Spec:
    looks = [LOOKS[CODES[kinds[place]]] for place in shown]
    ringed = [made["id"][place] in rings for place in shown]
    line = {
        "color": [
            INK if look.filled or ring else look.color
            for look, ring in zip(looks, ringed, strict=True)
        ],
        "width": [
            max(made["border"][place], 2.5 * ring)
            for place, ring in zip(shown, ringed, strict=True)
        ],
    }
    marker = {
        "symbol": [look.symbol for look in looks],
        "color": [look.color if look.filled else PAPER for look in looks],
        "size": [made["size"][place] for place in shown],
        "line": line,
        "opacity": 1,
    }
    tooltips = [made["tip"].get(place, "") for place in shown]
    return {
        "type": "scatter", "mode": "markers", "x": [at["x"][place] for place in shown],
        "y": [at["y"][place] for place in shown], "customdata": [made["id"][place] for place in shown],
        "marker": marker, "hovertext": tooltips, "hoverinfo": "text", "name": "nodes",
    }  # fmt: skip


def _labels(
    made: dict[str, Any],
    kinds: str,
    shown: Sequence[int],
    at: Mapping[str, Sequence[float]],
    label_of: Mapping[int, str],
) -> Spec:
    committed = [CODES[kinds[place]] in COMMITTED for place in shown]
    gone = [CODES[kinds[place]] == "gone" for place in shown]
    font = {
        "family": PLOT_MONO,
        "size": 12,
        "color": [INK if each else MUTED for each in committed],
        "weight": [600 if each else 400 for each in committed],
    }
    text = [
        f"<s>{plot_text(label_of[place])}</s>" if struck else plot_text(label_of[place])
        for place, struck in zip(shown, gone, strict=True)
    ]
    return _text(
        [at["x"][place] for place in shown], [at["y"][place] for place in shown], text, font
    )


def _text(x: Sequence[float], y: Sequence[float], text: Sequence[str], font: Spec) -> Spec:
    shifted = [each + MARK - 2 for each in x]
    look = {
        "type": "scatter",
        "mode": "text",
        "textposition": "middle right",
        "hoverinfo": "skip",
        "textfont": font,
    }
    return {**look, "x": shifted, "y": list(y), "text": list(text)}


def tree_rows(step: Step) -> str:
    """Every node, as an HTML table."""
    return table(f"Draft tree of iteration {step.index + 1}", FACTS, node_facts(step))


def node_facts(step: Step) -> list[tuple[int | str, ...]]:
    """The `FACTS` of every node as texts."""
    rows: list[tuple[int | str, ...]] = []
    words = labels(
        [token for node in step.nodes for token in (node.token, node.target_choice)], step.texts
    )
    depth = step.tree.depth.tolist()
    parent = step.tree.parent.tolist()
    for record in step.nodes:
        node = record.index
        target = "" if record.target_prob is None else f"{record.target_prob:.3f}"
        rows.append((
            node, words[record.token], depth[node], parent[node], step.tree.source[node], f"{record.draft_prob:.3f}",
            f"{record.path_prob:.3f}", target, words[record.target_choice], record.verdict, verdict_words(step, node),
        ))  # fmt: skip
    return rows
