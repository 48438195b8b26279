"""The draft tree, left to right: x is depth, so that tree, mask columns and text align.

Size is path probability, colour and symbol the verdict, border the target's probability; a dark line leads to the child
that the target chose, a thick blue one along the committed path. Beside a node stand its number and its token.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speclab.trace.records import Event, Step
from speclab.views import markup, networks, playback
from speclab.views.explain import children, dropped, hovers, position_summary, sentence, summary
from speclab.views.figures import FONT, INK, LINE, MUTED, PAPER, Spec, escape, lines, spec
from speclab.views.networks import LABEL_X, OWN, Graph, Places, fold, graph, places
from speclab.views.palette import LOOKS, PLOT_MONO, Look
from speclab.views.playback import WHOLE, PlaybackPosition

LEFT, RIGHT, TOP, BOTTOM, LAST = 10, 4, 26, 4, 6
"""Pixels around the tree at scale 1: the depths stand above it, `LAST` is for the second line of the last row."""
PITCH = 24.0, 52.0
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
_LOOKS = {
    **LOOKS,
    GONE: Look("would not be drafted", MUTED, "circle", filled=False),
    "folded": Look("folded", MUTED, "square", filled=False),
}
_COMMITTED = {"root", "accepted", "bonus", "corrected"}


def tree_spec(
    step: Step,
    selected: int | None = None,
    *,
    position: PlaybackPosition = WHOLE,
    width: float = 640,
    height: float = 420,
    scale: float = 1.0,
    marked: frozenset[int] | None = None,
) -> Spec:
    """The tree as a figure of `width` by `height` pixels; what is too high for it is folded into `+37` stubs.

    Places are the same at every position, so a growing tree does not jump. `scale`: of type and marks.
    `marked`: nodes that a person predicted to be accepted.
    """
    whole = graph(step, tops=False)
    now = whole if position == WHOLE else graph(step, position, tops=False)
    fresh, decided = playback.fresh(step, position), defaultdict[Any, list[Event]](list)
    for event in playback.events_until(step, position) if position.phase == "draft" else ():
        decided[event.node].append(event)

    def tips(nodes: Sequence[Any]) -> dict[Any, str]:
        own = [node for node in nodes if isinstance(node, int)]
        facts = hovers(step, own, position.reached("verify"))
        return {node: lines(*tip, *map(sentence, decided.get(node, ()))) for node, tip in zip(own, facts, strict=True)}

    notes = {node: _brief(events) for node, events in decided.items()}
    if position.phase in {"verify", "accept"}:
        notes = {node.index: f"→{markup.label(node.target_choice, step.texts)}" for node in step.nodes}
    if marked is not None:
        signs = _signs(step, marked, position)
        notes |= {node: f"{sign[0]} {notes[node]}" if node in notes else sign for node, sign in signs.items()}
    rings = fresh | {OWN} if position.phase == "accept" else fresh | (marked or set())
    faint, name = position.phase == "commit", f"tree-{step.index + 1}"
    ink = Ink(tips, notes, rings, selected, faint=faint, name=name)
    said = summary(step) if position == WHOLE else position_summary(step, position)
    return staged(whole, now, f"Draft tree. {said}", ink, width, height, scale)


@dataclass(frozen=True, slots=True)
class Ink:
    """What a tree is drawn with, besides its graph.

    `tips`: gives tooltips of nodes, as plotly takes them. `notes`: second lines. `rings`: nodes that changed. `faint`:
    whether what is not committed is faint. `stage`: whether depths stand above, and symbols are large; `pick`: whether
    nodes can be selected. `name`: of saved files.
    """

    tips: Callable[[Sequence[Any]], Mapping[Any, str]] = lambda _: {}
    notes: Mapping[Any, str] = field(default_factory=dict)
    rings: Collection[Any] = ()
    selected: int | None = None
    faint: bool = False
    stage: bool = True
    pick: bool = True
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

    A node may have a `symbol` of its own, a name of plotly's. `labels`: what a screen reader says of each. `width`: of
    each, in pixels; the height follows from the `rows`, its leaves at most, the rest is folded. `pick`: which of them
    is the tree shown: its nodes can be selected.
    """
    scale, pitch = scale * 11 / FONT, 18.0
    folded = [fold(made, rows) for made in graphs]
    found = networks.columns(folded, width - (LEFT + RIGHT) * scale, scale)
    made = []
    for i, (small, now, said) in enumerate(zip(folded, graphs, labels, strict=True)):
        where = places(small, found, 0.0, (pitch * scale, pitch * scale))
        ink = Ink(stage=False, pick=i == pick)
        made.append(draw(where, now, said, ink, width, where.height + 2 * BOTTOM * scale))
    return made


def draw(found: Places, now: Graph, said: str, ink: Ink, width: float, height: float) -> Spec:
    """The nodes of `now` at their places, in a fixed number of traces; stubs for what of it is folded."""
    painter, scale, wide = _Painter(found, now, ink), found.columns.scale, found.columns
    top, bottom, left, right = (TOP if ink.stage else BOTTOM) * scale, BOTTOM * scale, LEFT * scale, RIGHT * scale
    across, down = width - left - right, height - top - bottom
    path = [y for node, (_, y) in found.at.items() if found.graph.nodes[node]["accepted"] or node in {0, OWN}]
    begin = max(min((min(path) + max(path) - down) / 2, found.height + LAST * scale - down), 0)
    ends = (end for end in (wide.width, wide.path_end) if across < end <= networks.SQUEEZE * across)
    seen = next(ends, across)  # all, or the path; of a longer one its beginning
    fit = {"x": [0, max(across, wide.width)], "y": [max(down, found.height), 0]}
    keys = {"selected": ink.selected, "nodes": painter.keys()} if ink.stage else {}
    depths = {"tickvals": wide.x, "ticktext": ["depth 0", *map(str, range(1, len(wide.x)))], "side": "top"}
    return spec(
        painter.traces(), label=said, width=width, height=height, meta={"name": ink.name, "fit": fit, **keys},
        dragmode="pan" if ink.stage else False,
        margin={"l": round(left), "r": round(right), "t": round(top), "b": round(bottom)},
        xaxis={"range": [0, seen], "showgrid": False, "visible": ink.stage, **depths, "tickangle": 0,
               "tickfont": {"size": round(11 * scale), "color": MUTED}},
        yaxis={"range": [begin + down, begin], "visible": False},
        legend={"orientation": "h", "x": 0, "y": 0, "yanchor": "top", "itemsizing": "constant"},
    )  # fmt: skip


class _Painter:
    """Traces of what `now` holds: links, rings, symbols by verdict, labels, second lines."""

    def __init__(self, found: Places, now: Graph, ink: Ink) -> None:
        self.found, self.now, self.ink, self.scale = found, now, ink, found.columns.scale
        self.drawn: dict[Any, Mapping[str, Any]] = {
            node: now.nodes[node] if node in now else at
            for node, at in found.graph.nodes.items()
            if node in now or any(one in now for one in at.get("folded", ()))
        }
        self.kinds: dict[str, list[Any]] = {kind: [] for kind in _LOOKS}
        for node, at in self.drawn.items():
            self.kinds[at["verdict"]].append(node)
        self.tips = ink.tips(list(self.drawn))

    def traces(self) -> list[Spec]:
        """All, in a fixed number."""
        return [*self._links(), self._rings(), *map(self._marks, self.kinds), *self._texts()]

    def keys(self) -> list[list[Any]]:
        """What arrow keys reach: [node, parent, x, y, name]; a stub is its most probable node."""
        rows = [
            [self._number(node), at["parent"], *self.found.at[node], self.found.label(node)]
            for node, at in self.drawn.items()
        ]
        return sorted([row for row in rows if row[0] is not None], key=lambda row: row[0])

    def _number(self, node: Any) -> int | None:
        """The number of a drafted node; a stub has that of its most probable one."""
        held = self._held(node)
        node = held[0] if held else node
        return node if isinstance(node, int) else None

    def _held(self, stub: Any) -> list[Any]:
        """The nodes folded into it, the most probable first."""
        nodes, folded = self.now.nodes, self.drawn[stub].get("folded", ())
        return sorted((one for one in folded if one in nodes), key=lambda one: -nodes[one]["path_prob"])

    def _trace(self, mode: str, name: str, nodes: Sequence[Any], dx: float = 0, dy: float = 0, **more: Any) -> Spec:
        at, dx, dy = self.found.at, dx * self.scale, dy * self.scale
        return {
            "type": "scatter", "mode": mode, "name": name, "hoverinfo": "skip", "showlegend": False,
            "x": [round(at[node][0] + dx, 1) for node in nodes],
            "y": [round(at[node][1] + dy, 1) for node in nodes], **more,
        }  # fmt: skip

    def _size(self, node: Any) -> tuple[float, float]:
        """Diameter and border, by the probabilities; the target's own token and stubs have none."""
        at, scale = self.drawn[node], self.scale
        radius = 3.5 + 5 * math.sqrt(min(at["path_prob"], 1)) if "path_prob" in at else 7.0 if node == OWN else 3.5
        size = 2 * radius * (1 if self.ink.stage else 0.85) * scale
        return round(size, 1), round((0.75 + 2.5 * at.get("target_prob", 0)) * scale, 2)

    def _links(self) -> list[Spec]:
        kinds: dict[str, tuple[list[Any], list[Any]]] = {kind: ([], []) for kind in _LINKS}
        found, faint = self.found, self.ink.faint
        for node, at in self.drawn.items():
            parent = at["parent"]
            if parent not in self.now:
                continue
            xs, ys = kinds[_kind(at, self.now.nodes[parent])]
            (x1, y1), y0 = found.at[node], found.at[parent][1]
            start, end = found.label_end(parent) + 3, x1 - self._size(node)[0] / 2 - 3
            bend = max(start, found.columns.ends[at["depth"] - 1] + 2 * self.scale)
            curve = _BENDS if y0 != y1 else ((1.0, 1.0),)
            xs += [round(start, 1), *(round(bend + t * (end - bend), 1) for t, _ in curve), None]
            ys += [y0, *(round(y0 + t * (y1 - y0), 1) for _, t in curve), None]
        return [
            self._trace("lines", name, (), line={"color": color, "width": wide * self.scale, "dash": dash})
            | {"x": xs, "y": ys, "showlegend": bool(name and xs), "opacity": 0.4 if faint and kind != "path" else 1}
            for kind, (xs, ys) in kinds.items()
            for color, wide, dash, name in [_LINKS[kind]]
        ]

    def _rings(self) -> Spec:
        """Around what the last tick changed, and around the selected node."""
        picked = self.ink.selected
        nodes = [node for node in self.drawn if node in self.ink.rings or (node == picked and node in self.now)]
        ways = [(INK, 2, 5) if node == picked else (MUTED, 1.2, 4) for node in nodes]
        line = {"color": [color for color, *_ in ways], "width": [wide * self.scale for _, wide, _ in ways]}
        sizes = [sum(self._size(node)) + gap * self.scale for node, (*_, gap) in zip(nodes, ways, strict=True)]
        marker = {"symbol": "circle", "size": sizes, "color": "rgba(0,0,0,0)", "opacity": 1, "line": line}
        return self._trace("markers", "changed, selected", nodes, marker=marker)

    def _marks(self, kind: str) -> Spec:
        look, nodes = _LOOKS[kind], self.kinds[kind]
        sizes = [self._size(node) for node in nodes]
        faint = kind == GONE or (self.ink.faint and kind not in _COMMITTED)
        color, symbol = MUTED if kind == "root" else look.color, look.symbol.removesuffix("-open")
        symbols: Any = [self.drawn[node].get("symbol", symbol) for node in nodes]
        line = {"color": INK if look.filled else color, "width": [border for _, border in sizes]}
        marker = {"symbol": symbols if {*symbols} - {symbol} else symbol, "size": [size for size, _ in sizes]}
        tips = [self.tips.get(node) or self._tip(node) for node in nodes]
        pick: Spec = {"meta": {"click": "node"}, "customdata": list(map(self._number, nodes))} if self.ink.pick else {}
        return self._trace("markers", look.label, nodes, **pick) | {
            "showlegend": bool(nodes), "hoverinfo": "text", "hovertext": tips, "opacity": 0.45 if faint else 1,
            "marker": marker | {"opacity": 1, "line": line, "color": color if look.filled else PAPER},
        }  # fmt: skip

    def _tip(self, node: Any) -> str:
        at, every = self.drawn[node], self.now.nodes
        quote = f"'{at['label']}'"
        if node == OWN:
            return lines(f"{quote} · id {at['token']}", f"{at['verdict']}: the target's own token; it is the next root")
        if "folded" not in at:
            return lines(f"{quote} · draft {at['draft_prob']:.3f} · path {at['path_prob']:.3f}", at["verdict"])
        held = self._held(node)
        some = [f"{one} '{every[one]['label']}' · path {every[one]['path_prob']:.3f}" for one in held[:5]]
        more = [f"and {len(held) - 5} more"] if len(held) > 5 else []
        return lines(f"{len(held)} nodes are folded here, below node {at['parent']}:", *some, *more)

    def _texts(self) -> Iterator[Spec]:
        """The labels, those of what is committed in bold, and the second lines, as long as their column is wide."""
        opacity = 0.5 if self.ink.faint else 1
        for name, kinds, seen, font in (
            ("labels", _COMMITTED, 1, {"color": INK, "weight": 600}),
            ("other labels", self.kinds.keys() - _COMMITTED - {GONE}, opacity, {"color": MUTED}),
            ("struck labels", {GONE}, 0.5, {"color": MUTED, "lineposition": "through"}),
        ):
            nodes = [node for kind, nodes in self.kinds.items() for node in nodes if kind in kinds]
            yield self._text(name, nodes, map(self.found.label, nodes), 0, FONT, font) | {"opacity": seen}
        chars, notes = self.found.columns.chars, self.ink.notes
        noted = [node for node, at in self.drawn.items() if notes.get(node) and at["verdict"] != GONE]
        cut = [markup.clip(notes[node], chars[self.drawn[node]["depth"]]) for node in noted]
        yield self._text("notes", noted, cut, 11.5, 11, {"color": MUTED})

    def _text(self, name: str, nodes: Sequence[Any], said: Iterable[str], dy: float, size: float, font: Spec) -> Spec:
        font = {"family": PLOT_MONO, "size": round(size * self.scale, 1), **font}
        text = [escape(one) for one in said]
        return self._trace("text", name, nodes, LABEL_X - 2, dy, text=text, textposition="middle right", textfont=font)


def _kind(at: Mapping[str, Any], parent: Mapping[str, Any]) -> str:
    if at["verdict"] in _COMMITTED or at["verdict"] == GONE:
        return "struck" if at["verdict"] == GONE else "path"
    return "choice" if "target_choice" in parent and parent["target_choice"] == at.get("token") else "plain"


def _signs(step: Step, marked: frozenset[int], position: PlaybackPosition) -> dict[Any, str]:
    """What is said of each node that was predicted to be accepted, or should have been."""
    known = playback.verdicts(step, position)
    said = {node: {"drafted": "☑ yours", "accepted": "✓ right"}.get(known[node], "✗ wrong") for node in marked}
    return said | {node: "○ missed" for node in step.accepted if known[node] == "accepted" and node not in marked}


def _brief(events: Sequence[Event]) -> str:
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
    head = ("node", "token", "depth", "parent", "source", "draft p", "path p", "target p", "target's choice", "verdict",
            "reason")  # fmt: skip
    rows = (
        (r.index, markup.label(r.token, step.texts), int(step.tree.depth[r.index]), int(step.tree.parent[r.index]),
         step.tree.source[r.index], f"{r.draft_prob:.3f}", f"{r.path_prob:.3f}",
         "" if r.target_prob is None else f"{r.target_prob:.3f}", markup.label(r.target_choice, step.texts),
         r.verdict, r.reason)
        for r in step.nodes
    )  # fmt: skip
    root = "verified" if playback.verified_root(step) else "drafted"
    return markup.table(f"Draft tree of iteration {step.index + 1} ({root} root)", head, rows)
