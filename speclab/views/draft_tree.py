"""The draft tree, left to right: x is depth, so that tree, mask columns and text align.

Size is path probability, colour and symbol the verdict, border the target's probability; a dark line leads to the child
that the target chose, a thick blue one along the committed path. Beside a node stand its number and its token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speclab.trace.records import Event, Step
from speclab.views import explain, markup, networks, playback
from speclab.views.explain import children, dropped, hovers, position_summary, summary
from speclab.views.figures import FONT, INK, LINE, MUTED, PAPER, Spec, escape, lines, spec
from speclab.views.networks import LABEL_X, OWN, Graph, Places, fold, graph, places
from speclab.views.palette import LOOKS, PLOT_MONO
from speclab.views.playback import WHOLE, PlaybackPosition

LEFT, RIGHT, TOP, BOTTOM, LAST = 10, 4, 26, 4, 6
"""Pixels around the tree at scale 1: the depths stand above it, `LAST` is for the second line of the last row."""
PITCH = 24.0, 44.0
"""Pixels from one row to the next: at least, with room for a second line of type, and at most."""
NARROW = 21.0
"""Pixels between rows at least, where there is more to be shown than was drafted."""
GONE = "gone"
"""The verdict of nodes that are struck out."""
_LINKS: Mapping[str, tuple[str, float, str, str]] = {
    "plain": (LINE, 1.2, "solid", ""),
    "struck": (LINE, 1.2, "dot", ""),
    "choice": (INK, 1.4, "solid", "the target's choice"),
    "path": (LOOKS["accepted"].color, 3.2, "solid", "committed"),
}
"""Colour, width, dash and name of each kind of link."""
_BENDS = tuple((t, 3 * t**2 - 2 * t**3) for t in (0.0, 0.12, 0.26, 0.42, 0.58, 0.74, 0.88, 1.0))
_NAMES = {GONE: "would not be drafted", "folded": "folded"}
_COMMITTED = {"root", "accepted", "bonus", "corrected"}


def tree_spec(
    step: Step,
    selected: int | None = None,
    *,
    position: PlaybackPosition = WHOLE,
    width: float = 640,
    height: float = 420,
    scale: float = 1.0,
) -> Spec:
    """The tree as a figure of `width` by `height` pixels; what is too high for it is folded into `+37` stubs.

    Places are the same at every position, so a growing tree does not jump. `scale`: of type and marks.
    """
    whole = graph(step)
    now = whole if position == WHOLE else graph(step, position)
    known = position.reached("verify")

    def tips(nodes: Sequence[Any]) -> dict[Any, str]:
        own = [node for node in nodes if isinstance(node, int)]
        return {node: lines(*tip) for node, tip in zip(own, hovers(step, own, known), strict=True)}

    fresh = playback.fresh(step, position)
    ink = Ink(
        tips,
        _notes(step, position),
        fresh | {OWN} if position.phase == "accept" else fresh,
        selected,
        faint=position.phase == "commit",
        name=f"tree-{step.index + 1}",
    )
    said = summary(step) if position == WHOLE else position_summary(step, position)
    return staged(whole, now, f"Draft tree. {said}", ink, width, height, scale)


@dataclass(frozen=True, slots=True)
class Ink:
    """What a tree is drawn with, besides its graph.

    `tips`: gives tooltips of nodes, as plotly takes them. `notes`: second lines. `rings`: nodes that changed. `faint`:
    whether what is not committed is faint. `stage`: whether depths stand above; `pick`: whether nodes can be selected.
    `marks`: the size of symbols. `name`: of saved files.
    """

    tips: Callable[[Sequence[Any]], Mapping[Any, str]] = lambda _: {}
    notes: Mapping[Any, str] = field(default_factory=dict)
    rings: Collection[Any] = ()
    selected: int | None = None
    faint: bool = False
    stage: bool = True
    pick: bool = True
    marks: float = 1.0
    name: str = "tree"


def staged(
    whole: Graph, now: Graph, said: str, ink: Ink, width: float, height: float, scale: float, base: Graph | None = None
) -> Spec:
    """What `now` holds of a tree, on a stage of this size.

    `base`: the tree that was on it before; its nodes stay, and what `whole` holds besides may make the rows narrower.
    """
    room, least = height - (TOP + BOTTOM + LAST) * scale, PITCH[0]
    rows, first = int(room / (least * scale)), [] if ink.selected is None else [ink.selected]
    folded = fold(base or whole, rows)
    if ink.selected is not None and ink.selected not in folded:
        folded = fold(base or whole, rows, first)
    on_columns = [folded]
    if base is not None:
        added = [node for node in whole if node not in base]
        least = NARROW if added else least
        first = [node for node in folded if node in whole and node != OWN]
        folded = fold(whole, min(rows + len(added), int(room / (least * scale))), first, added)
        on_columns.append(folded)
    found = networks.columns(on_columns, width - (LEFT + RIGHT) * scale, scale)
    where = places(folded, found, room, (least * scale, PITCH[1] * scale))
    return draw(where, now, said, ink, width, height)


def small_tree_specs(
    graphs: Sequence[Graph],
    labels: Sequence[str],
    *,
    width: float = 420,
    scale: float = 1.0,
    rows: int = 18,
    pick: int | None = None,
) -> list[Spec]:
    """Trees to compare (of `networks.graph` or `tree_graph`), each a small figure, all on the same columns.

    A node may have a `hover` of its own, lines of plain text, and a `symbol`, a name of plotly's.

    Args:
        labels: what a screen reader says of each.
        width: of each, in pixels; the height follows from the rows.
        rows: leaves of each at most, the rest is folded.
        pick: which of them is the tree shown: its nodes can be selected.
    """
    scale, pitch = scale * 11 / FONT, 18.0
    folded = [fold(made, rows) for made in graphs]
    found = networks.columns(folded, width - (LEFT + RIGHT) * scale, scale)
    made = []
    for i, (small, now, said) in enumerate(zip(folded, graphs, labels, strict=True)):
        where = places(small, found, 0.0, (pitch * scale, pitch * scale))
        tips = {node: lines(*at["hover"].split("\n")) for node, at in now.nodes.items() if "hover" in at}
        ink = Ink(lambda _, tips=tips: tips, stage=False, pick=i == pick, marks=0.85)  # type: ignore[misc]
        made.append(draw(where, now, said, ink, width, where.height + 2 * BOTTOM * scale))
    return made


def draw(found: Places, now: Graph, said: str, ink: Ink, width: float, height: float) -> Spec:
    """The nodes of `now` at their places, in a fixed number of traces; stubs for what of it is folded."""
    scale, wide = found.columns.scale, found.columns
    kinds: dict[str, list[Any]] = {kind: [] for kind in (*LOOKS, GONE, "folded")}
    for node, at in found.graph.nodes.items():
        if node in now:
            kinds[now.nodes[node]["verdict"]].append(node)
        elif any(one in now for one in at.get("folded", ())):
            kinds["folded"].append(node)
    drawn = [node for nodes in kinds.values() for node in nodes]
    tips = ink.tips(drawn)
    marks = [_marks(kind, nodes, found, now, ink, tips) for kind, nodes in kinds.items()]
    data = [*_links(found, now, drawn, ink), _rings(found, now, drawn, ink), *marks, *_texts(found, kinds, ink)]
    top, left, right = TOP * scale if ink.stage else BOTTOM * scale, LEFT * scale, RIGHT * scale
    across, down = width - left - right, height - top - BOTTOM * scale
    begin = max(min(_middle(found) - down / 2, found.height + LAST * scale - down), 0)
    seen = wide.width if across < wide.width <= 1.1 * across else max(across, wide.path_end)
    fit = {"x": [0, max(across, wide.width)], "y": [max(down, found.height), 0]}
    keys = {"selected": ink.selected, "nodes": _keys(found, now, drawn)} if ink.stage else {}
    depths = {"tickvals": wide.x, "ticktext": ["depth 0", *map(str, range(1, len(wide.x)))], "side": "top"}
    return spec(
        data, label=said, width=width, height=height, meta={"name": ink.name, "fit": fit, **keys},
        dragmode="pan" if ink.stage else False,
        margin={"l": round(left), "r": round(right), "t": round(top), "b": round(BOTTOM * scale)},
        xaxis={"range": [0, seen], "showgrid": False, "visible": ink.stage, **depths,
               "tickfont": {"size": round(11 * scale), "color": MUTED}},
        yaxis={"range": [begin + down, begin], "visible": False},
        legend={"orientation": "h", "x": 0, "y": 0, "yanchor": "top", "itemsizing": "constant"},
    )  # fmt: skip


def _middle(found: Places) -> float:
    """The height at which the root and the accepted path are."""
    heights = [y for node, (_, y) in found.at.items() if found.graph.nodes[node]["accepted"] or node in {0, OWN}]
    return (min(heights) + max(heights)) / 2


def _keys(found: Places, now: Graph, drawn: Sequence[Any]) -> list[list[Any]]:
    """What arrow keys reach: [node, parent, x, y, name]; a stub is its most probable node."""
    rows = []
    for node in drawn:
        at = found.graph.nodes[node]
        name = _most_probable(now, at["folded"]) if "folded" in at else node
        if isinstance(name, int):
            rows.append([name, at["parent"], *found.at[node], found.label(node)])
    return sorted(rows, key=lambda row: row[0])


def _most_probable(now: Graph, nodes: Sequence[Any]) -> Any:
    return max((node for node in nodes if node in now), key=lambda node: now.nodes[node]["path_prob"])


def node_radius(path_prob: float) -> float:
    """Area grows with the path probability: 3.5 to 8.5 pixels."""
    return 3.5 + 5 * math.sqrt(min(max(path_prob, 0.0), 1.0))


def _size(found: Places, at: Mapping[str, Any], ink: Ink) -> tuple[float, float]:
    """Diameter and border of a node; the target's own token and stubs have no probability."""
    radius = node_radius(at["path_prob"]) if "path_prob" in at else 7.0 if at["verdict"] != "folded" else 3.5
    return 2 * radius * ink.marks * found.columns.scale, 0.75 + 2.5 * at.get("target_prob", 0.0)


def _links(found: Places, now: Graph, drawn: Sequence[Any], ink: Ink) -> list[Spec]:
    kinds: dict[str, tuple[list[Any], list[Any]]] = {kind: ([], []) for kind in _LINKS}
    scale, ends = found.columns.scale, found.columns.ends
    for node in drawn:
        at = now.nodes[node] if node in now else found.graph.nodes[node]
        parent = at["parent"]
        if parent not in now:
            continue
        xs, ys = kinds[_kind(at, now.nodes[parent])]
        (x1, y1), y0 = found.at[node], found.at[parent][1]
        x1 -= _size(found, at, ink)[0] / 2 + 3
        start = round(found.label_end(parent) + 3, 1)
        if y0 == y1:
            xs += [start, round(x1, 1), None]
            ys += [y0, y1, None]
            continue
        bend = max(start, ends[at["depth"] - 1] + 2 * scale)
        xs += [start, *(round(bend + t * (x1 - bend), 1) for t, _ in _BENDS), None]
        ys += [y0, *(round(y0 + t * (y1 - y0), 1) for _, t in _BENDS), None]
    return [
        {"type": "scatter", "mode": "lines", "x": xs, "y": ys, "hoverinfo": "skip", "name": name,
         "showlegend": bool(name and xs), "opacity": 0.4 if ink.faint and kind != "path" else 1,
         "line": {"color": color, "width": wide * scale, "dash": dash}}
        for kind, (xs, ys) in kinds.items()
        for color, wide, dash, name in [_LINKS[kind]]
    ]  # fmt: skip


def _kind(at: Mapping[str, Any], parent: Mapping[str, Any]) -> str:
    if at["verdict"] in {"accepted", "bonus", "corrected"}:
        return "path"
    if at["verdict"] == GONE:
        return "struck"
    return "choice" if "target_choice" in parent and parent["target_choice"] == at.get("token") else "plain"


def _marks(kind: str, nodes: Sequence[Any], found: Places, now: Graph, ink: Ink, tips: Mapping[Any, str]) -> Spec:
    look, scale = LOOKS.get(kind), found.columns.scale
    every = [now.nodes[node] if node in now else found.graph.nodes[node] for node in nodes]
    sizes = [_size(found, at, ink) for at in every]
    faint = kind == GONE or (ink.faint and kind not in _COMMITTED)
    filled, color = look is not None and look.filled, look.color if look and kind != "root" else MUTED
    symbol = look.symbol.removesuffix("-open") if look else "square" if kind == "folded" else "circle"
    trace: Spec = {
        "type": "scatter", "mode": "markers", "name": look.label if look else _NAMES[kind], "showlegend": bool(nodes),
        "x": [found.at[node][0] for node in nodes], "y": [found.at[node][1] for node in nodes],
        "hovertext": [tips.get(node) or _tip(node, at, now) for node, at in zip(nodes, every, strict=True)],
        "hoverinfo": "text",
        "opacity": 0.45 if faint else 1,
        "marker": {
            "symbol": [at.get("symbol", symbol) for at in every] if any("symbol" in at for at in every) else symbol,
            "size": [round(size, 1) for size, _ in sizes], "color": color if filled else PAPER, "opacity": 1,
            "line": {"color": INK if filled else color, "width": [round(border * scale, 2) for _, border in sizes]},
        },
    }  # fmt: skip
    if ink.pick:
        trace["meta"] = {"click": "node"}
        trace["customdata"] = [
            _most_probable(now, at["folded"]) if "folded" in at else node if isinstance(node, int) else None
            for node, at in zip(nodes, every, strict=True)
        ]
    return trace


def _tip(node: Any, at: Mapping[str, Any], now: Graph) -> str:
    quote = f"'{at['label']}'"
    if node == OWN:
        return lines(f"{quote} · id {at['token']}", f"{at['verdict']}: the target's own token; it is the next root")
    if "folded" not in at:
        return lines(f"{quote} · draft {at['draft_prob']:.3f} · path {at['path_prob']:.3f}", at["verdict"])
    held = sorted((one for one in at["folded"] if one in now), key=lambda one: -now.nodes[one]["path_prob"])
    some = [f"{one} '{now.nodes[one]['label']}' · path {now.nodes[one]['path_prob']:.3f}" for one in held[:5]]
    more = [f"and {len(held) - 5} more"] if len(held) > 5 else []
    return lines(f"{len(held)} nodes are folded here, below node {at['parent']}:", *some, *more)


def _rings(found: Places, now: Graph, drawn: Sequence[Any], ink: Ink) -> Spec:
    """Around what the last tick changed, and around the selected node."""
    nodes = [node for node in drawn if node in now and (node in ink.rings or node == ink.selected)]
    scale = found.columns.scale
    sizes = [sum(_size(found, now.nodes[node], ink)) + (7 if node == ink.selected else 5) * scale for node in nodes]
    chosen = [node == ink.selected for node in nodes]
    line = {
        "color": [INK if one else MUTED for one in chosen],
        "width": [(2 if one else 1.2) * scale for one in chosen],
    }
    return {
        "type": "scatter", "mode": "markers", "hoverinfo": "skip", "showlegend": False, "name": "changed, selected",
        "x": [found.at[node][0] for node in nodes], "y": [found.at[node][1] for node in nodes],
        "marker": {"symbol": "circle", "size": sizes, "color": "rgba(0,0,0,0)", "opacity": 1, "line": line},
    }  # fmt: skip


def _texts(found: Places, kinds: Mapping[str, Sequence[Any]], ink: Ink) -> list[Spec]:
    """The labels, those of what is committed in bold, and the second lines, as long as their column is wide."""
    strong = [node for kind, nodes in kinds.items() for node in nodes if kind in _COMMITTED]
    plain = [node for kind, nodes in kinds.items() for node in nodes if kind not in _COMMITTED and kind != GONE]
    noted = [node for node in (*strong, *plain) if ink.notes.get(node)]
    chars, label = found.columns.chars, found.label
    notes = [markup.clip(ink.notes[node], chars[found.graph.nodes[node]["depth"]]) for node in noted]
    gone = kinds[GONE]
    return [
        _text("labels", found, strong, map(label, strong), color=INK, weight=600),
        _text("other labels", found, plain, map(label, plain), color=MUTED, opacity=0.5 if ink.faint else 1),
        _text("struck labels", found, gone, map(label, gone), color=MUTED, opacity=0.5, lineposition="through"),
        _text("notes", found, noted, notes, 11.5, color=MUTED, size=11),
    ]


def _text(
    name: str, found: Places, nodes: Sequence[Any], said: Iterable[str], below: float = 0, *,
    opacity: float = 1, size: float = FONT, **font: Any,
) -> Spec:  # fmt: skip
    scale = found.columns.scale
    return {
        "type": "scatter", "mode": "text", "hoverinfo": "skip", "showlegend": False, "name": name,
        "x": [round(found.at[node][0] + (LABEL_X - 2) * scale, 1) for node in nodes],
        "y": [round(found.at[node][1] + below * scale, 1) for node in nodes],
        "text": [escape(one) for one in said], "textposition": "middle right", "opacity": opacity,
        "textfont": {"family": PLOT_MONO, "size": round(size * scale, 1), **font},
    }  # fmt: skip


def _notes(step: Step, position: PlaybackPosition) -> dict[int, str]:
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


def table(step: Step) -> str:
    """Every node, as an HTML table."""
    head = (
        "node",
        "token",
        "depth",
        "parent",
        "source",
        "draft p",
        "path p",
        "target p",
        "target's choice",
        "verdict",
        "reason",
    )
    rows = (
        (r.index, markup.label(r.token, step.texts), int(step.tree.depth[r.index]), int(step.tree.parent[r.index]),
         step.tree.source[r.index], f"{r.draft_prob:.3f}", f"{r.path_prob:.3f}",
         "" if r.target_prob is None else f"{r.target_prob:.3f}", markup.label(r.target_choice, step.texts),
         r.verdict, r.reason)
        for r in step.nodes
    )  # fmt: skip
    return markup.table(f"Draft tree of iteration {step.index + 1} ({explain.roots_origin(step)})", head, rows)
