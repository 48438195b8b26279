"""An iteration as a networkx graph, and where each of its nodes is drawn: what every picture of a tree is made of.

networkx has no tidy tree. Here x is the depth and y the order of the leaves, a parent midway between its first and
last child, so no two links cross; one unit is a pixel. What is too high is folded into stubs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import exp
from typing import Any, TypeAlias

import networkx as nx
import numpy as np

from speclab.trace.records import Step
from speclab.tree import DraftTree
from speclab.views import playback
from speclab.views.markup import clip, label, quoted, width
from speclab.views.playback import WHOLE, PlaybackPosition

Graph: TypeAlias = "nx.DiGraph[Any]"
OWN = "own"
"""The node of the target's own token, the bonus or the correction; drafted nodes have their numbers."""


def graph(step: Step, position: PlaybackPosition = WHOLE, *, tops: bool = True) -> Graph:
    """An iteration as a graph, edges from parent to child; what is not known at `position`, or is nothing, is left out.

    Nodes are the numbers of the drafted tokens, and "own" for the target's own token. Attributes of nodes: token,
    text, label, parent, depth, position, source, draft_prob, log_prob, path_prob, mask_row, kv_slot, verdict, reason,
    accepted, target_prob, target_choice, target_choice_text, entropy, draft_top, target_top. Of the graph: index,
    prefix_length, phase, rule, note and the settings in force.

    Args:
        tops: whether the most probable next tokens are among them, as text: most of what there is to be read.
    """
    verdicts, known, texts = playback.verdicts(step, position), position.reached("verify"), step.texts
    own = (step.bonus, playback.own_kind(step)) if playback.own_shown(step, position) else None
    accepted = [node for node in step.accepted if verdicts[node] == "accepted"]
    made = tree_graph(step.tree, texts, verdicts, accepted, own)
    about = {"rule": step.rule or None, "note": step.note or None, **step.settings}
    made.graph |= {"index": step.index, "prefix_length": step.prefix_length, "phase": position.phase}
    made.graph |= {name: value for name, value in about.items() if value is not None}
    for record in step.nodes:
        at = made.nodes[record.index]
        at["position"] = step.prefix_length + at["depth"]
        at["mask_row"], at["kv_slot"] = record.index, record.kv_slot
        if known:
            at["target_choice"], at["entropy"] = record.target_choice, record.entropy
            at["target_choice_text"] = label(record.target_choice, texts)
            if record.target_prob is not None:
                at["target_prob"] = record.target_prob
        if at["verdict"] == record.verdict:
            at["reason"] = record.reason
        for name, top in (("draft_top", record.draft_top), ("target_top", record.target_top)) if tops else ():
            if top and (known or name == "draft_top"):
                at[name] = ", ".join([f"{quoted(token, texts)} {prob:.4g}" for token, prob in top])
    made.remove_nodes_from(np.flatnonzero(~playback.present(step, position)).tolist())
    return made


def tree_graph(
    tree: DraftTree,
    texts: Mapping[int, str],
    verdicts: Sequence[str],
    path: Sequence[int] = (),
    own: tuple[int | None, str] | None = None,
) -> Graph:
    """A tree and what came of it, or would have come of it.

    Args:
        verdicts: of each node a key of `LOOKS`; "drafted" where the target was not asked.
        path: the accepted nodes, without a verified root.
        own: the target's own token after the path and its kind, "bonus" or "corrected".
    """
    made: Graph = tree.to_networkx()
    taken, rest = set(path), (tree.parent.tolist(), np.exp(tree.path_log_prob).tolist(), verdicts)
    for (node, at), parent, path_prob, verdict in zip(made.nodes.items(), *rest, strict=True):
        known = {"parent": parent, "draft_prob": exp(at["log_prob"]), "path_prob": path_prob}
        at.update(_named(at["token"], texts), **known, verdict=verdict, accepted=node in taken)
    if own is not None and own[0] is not None:
        attach(made, OWN, own[0], texts, path[-1] if path else 0 if verdicts[0] == "root" else -1, verdict=own[1])
    return made


def attach(made: Graph, node: Any, token: int, texts: Mapping[int, str], parent: Any, **more: Any) -> None:
    """Adds a node after another; after -1 in the root's column: there the target's own token replaces the root."""
    depth = 0 if parent == -1 else made.nodes[parent]["depth"] + 1
    made.add_node(node, **{**_named(token, texts), "parent": parent, "depth": depth, "accepted": False, **more})
    if parent != -1:
        made.add_edge(parent, node)


def _named(token: int, texts: Mapping[int, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"token": token, "label": label(token, texts)}
    return found | {"text": texts[token]} if token in texts else found


def fold(made: Graph, rows: int, first: Iterable[Any] = (), then: Iterable[Any] = ()) -> Graph:
    """The graph with at most `rows` leaves: accepted path, its siblings, then the most probable; the rest in stubs.

    A stub has the id "+" and its parent's, and the nodes it stands for as `folded`. `first`: nodes that must be shown,
    with what is above them; they and the path may take more rows. `then`: nodes that come before the more probable.
    """
    if sum([not degree for _, degree in made.out_degree()]) <= rows:
        return made
    path = [node for node, at in made.nodes.items() if at["parent"] == -1 or at["accepted"] or node == OWN]
    shown: set[Any] = set()
    for node in (*path, *first):
        if node not in shown:
            shown |= nx.ancestors(made, node) | {node}
    hidden = {node: sum([child not in shown for child in made.successors(node)]) for node in shown}
    used = sum([hidden[node] > 0 or not made.out_degree(node) for node in shown])
    early = {child for node in path for child in made.successors(node)}.union(then)
    order = sorted(made, key=lambda node: (node not in early, -made.nodes[node].get("path_prob", 1.0)))
    for node in order:  # a parent is at least as probable as its children, and comes first
        parent = made.nodes[node]["parent"]
        if node in shown or parent not in shown:
            continue
        wider = used + (hidden[parent] > 1)  # it takes a row; with its last child a parent's stub goes
        if wider <= rows:
            shown.add(node)
            hidden[node], used = made.out_degree(node), wider
            hidden[parent] -= 1
    return _with_stubs(made, shown)


def _with_stubs(made: Graph, shown: set[Any]) -> Graph:
    tops: dict[Any, Any] = {}
    held: dict[Any, list[Any]] = {}
    for node, at in made.nodes.items():
        if node not in shown:
            tops[node] = tops.get(at["parent"], at["parent"])
            held.setdefault(tops[node], []).append(node)
    small: Graph = made.copy()
    for keeper, folded in held.items():
        if len(folded) > 1:  # one node takes no more room than its stub
            small.remove_nodes_from(folded)
            depth, stub = made.nodes[keeper]["depth"] + 1, f"+{keeper}"
            small.add_node(stub, label=f"+{len(folded)}", parent=keeper, depth=depth, verdict="folded", accepted=False,
                           folded=folded)  # fmt: skip
            small.add_edge(keeper, stub)
    return small


def leaf_rows(made: Graph) -> dict[Any, float]:
    """The row of each node: leaves from the top in the order of the tree, a parent midway between its children."""
    rows: dict[Any, float] = {}
    leaves = count()
    for node in nx.dfs_postorder_nodes(made):
        below = list(made.successors(node))
        rows[node] = (rows[below[0]] + rows[below[-1]]) / 2 if below else float(next(leaves))
    return rows


CHAR, LABEL_X, LEFT, RIGHT = 7.25, 15.0, 14.0, 8.0
"""Pixels at scale 1: a character of a label, from a node to its label, and left and right of everything."""
_FITS = ((16, 64), (16, 52), (16, 40), (14, 36), (12, 32), (10, 28), (8, 24), (7, 22), (6, 20), (5, 18), (4, 16))
"""From roomy to tight: characters of a token that are shown, and pixels from a column's labels to the next nodes."""
_TIGHTER = ((3, 14), (0, 12))
"""Further ones, where else the root and the path would not both be seen."""
SQUEEZE = 1.1
"""By how much the gaps of the tightest may shrink, so that all is seen."""
_NOTE = 8
"""Characters that a column has room for at least, for the notes, unless it is tight."""


@dataclass(frozen=True, slots=True)
class Columns:
    """`x` of each depth, where its labels `ends`, how many characters its labels have, and where the path ends."""

    x: tuple[float, ...]
    ends: tuple[float, ...]
    chars: tuple[int, ...]
    clip: int
    path_end: float
    scale: float

    @property
    def width(self) -> float:
        """Pixels of all."""
        return self.ends[-1] + RIGHT * self.scale


def columns(graphs: Sequence[Graph], room: float, scale: float = 1.0) -> Columns:
    """Columns for these graphs in `room` pixels; where not all fits, the path does, and the rest is further right."""
    sizes: dict[int, set[tuple[int, int]]] = {}
    last = 0
    for made in graphs:
        for node, at in made.nodes.items():
            number = len(str(node)) + 1 if isinstance(node, int) else 0
            sizes.setdefault(at["depth"], set()).add((number, width(at["label"])))
            if at["accepted"] or node == OWN:
                last = max(last, at["depth"])
    roomy = (_columns(sizes, last, *fit, scale) for fit in _FITS)
    found = next((each for each in roomy if each.width <= room), tight := _columns(sizes, last, *_FITS[-1], scale))
    if found is not tight or tight.width <= SQUEEZE * room:
        return found
    narrow = [_columns(sizes, last, *fit, scale) for fit in (*_FITS[-2:], *_TIGHTER)]
    ways = [*(each for each in narrow if each.path_end <= room), narrow[-1]]
    return ways[0] if ways[0].path_end <= SQUEEZE * room else tight


def _columns(sizes: Mapping[int, set[tuple[int, int]]], last: int, clipped: int, gutter: int, scale: float) -> Columns:
    x, ends, chars = [], [], []
    left = LEFT * scale
    for depth in range(len(sizes)):
        room = max([number + min(wide, clipped) for number, wide in sizes[depth]])
        chars.append(max(room, _NOTE if clipped > 5 else 3))
        x.append(round(left, 1))
        ends.append(round(left + (LABEL_X + CHAR * chars[-1]) * scale, 1))
        left = ends[-1] + gutter * scale
    return Columns(tuple(x), tuple(ends), tuple(chars), clipped, ends[last] + RIGHT * scale, scale)


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything is drawn, in pixels from the top left: `at` of each node of `graph`, which may hold stubs."""

    graph: Graph
    columns: Columns
    at: Mapping[Any, tuple[float, float]]
    height: float

    def label(self, node: Any) -> str:
        """What stands beside a node: `4 ␣the`; number and token, which may be cut off or left out."""
        at, most = self.graph.nodes[node], self.columns.clip
        if not isinstance(node, int):
            return clip(at["label"], max(most, 4))
        return f"{node} {clip(at['label'], most)}" if most else str(node)

    def label_end(self, node: Any) -> float:
        """Where that ends, about."""
        return self.at[node][0] + (LABEL_X + CHAR * width(self.label(node))) * self.columns.scale


def places(made: Graph, found: Columns, room: float, pitch: tuple[float, float]) -> Places:
    """Places in `room` pixels of height, in the middle of it; `pitch`: of two rows, at least and at most."""
    rows = leaf_rows(made)
    count_rows = round(max(rows.values())) + 1
    high = min(max(room / count_rows, pitch[0]), pitch[1])
    top = max((room - high * count_rows) / 2, 0.0) + high / 2
    at = {node: (found.x[made.nodes[node]["depth"]], round(top + high * row, 1)) for node, row in rows.items()}
    return Places(made, found, at, max(high * count_rows, room))
