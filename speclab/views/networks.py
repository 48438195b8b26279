"""An iteration as a networkx graph, and the layout of its nodes.

x is the depth and y the order of the leaves, with a parent midway between its first and last child,
so links never cross. Nodes that do not fit are folded into stubs such as `+37`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from math import ceil, exp
from typing import Any, TypeAlias

import networkx as nx

from speclab.trace.records import Step
from speclab.tree import DraftTree
from speclab.views.phases import last_on_path, own_kind
from speclab.views.theme import STYLE
from speclab.views.tokens import label, quoted

Graph: TypeAlias = "nx.DiGraph[Any]"
OWN = "own"
"""The node of the target's own token, bonus or correction; drafted nodes have numbers."""


def step_graph(step: Step) -> Graph:
    """See `speclab.views.graph`."""
    texts = step.texts
    made = tree_graph(step.tree, texts, [node.verdict for node in step.nodes], step.accepted)
    made.graph |= {"index": step.index, "prefix_length": step.prefix_length}
    made.graph |= {
        name: value
        for name, value in {"rule": step.rule, **step.settings}.items()
        if value is not None
    }
    for record in step.nodes:
        node = made.nodes[record.index]
        node |= {
            "position": step.prefix_length + node["depth"],
            "mask_row": record.index,
            "kv_slot": record.kv_slot,
        }
        node |= {
            "target_choice": record.target_choice,
            "entropy": record.entropy,
            "choice_prob": record.choice_prob,
        }
        node["target_choice_text"] = label(record.target_choice, texts)
        if record.target_prob is not None:
            node["target_prob"] = record.target_prob
    if step.bonus is not None:
        attach(made, OWN, step.bonus, texts, last_on_path(step), own_kind(step))
    return made


def with_tops(made: Graph, step: Step) -> Graph:
    """The graph with the recorded top-k of draft and target as texts."""
    for record in step.nodes:
        made.nodes[record.index]["draft_top"] = _top(record.draft_top, step.texts)
        made.nodes[record.index]["target_top"] = _top(record.target_top, step.texts)
    return made


def tree_graph(
    tree: DraftTree, texts: Mapping[int, str], verdicts: Sequence[str], path: Sequence[int] = ()
) -> Graph:
    """Convert a tree to a graph.

    `verdicts`: a key of `LOOKS` per node. `path`: the accepted nodes.
    """
    made: Graph = tree.to_networkx()
    for node, data in made.nodes.items():
        data |= _token(data["token"], texts)
        data |= {
            "parent": int(tree.parent[node]),
            "verdict": verdicts[node],
            "accepted": node in path,
        }
        data |= {"draft_prob": exp(tree.log_prob[node]), "path_prob": exp(tree.path_log_prob[node])}
    return made


def attach(
    made: Graph,
    node: Any,
    token: int,
    texts: Mapping[int, str],
    parent: Any,
    verdict: str,
    **more: Any,
) -> None:
    """Add a node after another; after -1 it goes to the root's column and replaces the root."""
    depth = 0 if parent == -1 else made.nodes[parent]["depth"] + 1
    data = {
        **_token(token, texts),
        "parent": parent,
        "depth": depth,
        "verdict": verdict,
        "accepted": False,
        **more,
    }
    made.add_node(node, **data)
    if parent != -1:
        made.add_edge(parent, node)


def _token(token: int, texts: Mapping[int, str]) -> dict[str, Any]:
    return {"token": token, "text": texts.get(token, ""), "label": label(token, texts)}


def _top(top: Sequence[tuple[int, float]], texts: Mapping[int, str]) -> str:
    return ", ".join([f"{quoted(token, texts)} {probability:.4g}" for token, probability in top])


def leaf_rows(made: Graph) -> dict[Any, float]:
    """The row of each node: leaves from the top in tree order, a parent midway between its children."""
    rows: dict[Any, float] = {}
    leaves = count()
    for node in nx.dfs_postorder_nodes(made):
        below = list(made.successors(node))
        rows[node] = (rows[below[0]] + rows[below[-1]]) / 2 if below else float(next(leaves))
    return rows


def fold(made: Graph, rows: int, first: Iterable[Any] = ()) -> Graph:
    """Keep at most `rows` leaves: the accepted path, its siblings and the most probable nodes; fold
    others into stubs.

    The id of a stub is "+" and its parent's id; `folded` lists its nodes. `first`: further nodes
    that are never folded; they and the path may take more rows.
    """
    if sum(not degree for _, degree in made.out_degree()) <= rows:
        return made
    path = [
        node
        for node, data in made.nodes.items()
        if data["parent"] == -1 or data["accepted"] or node == OWN
    ]
    shown: set[Any] = set()
    for node in (*path, *first):
        shown |= nx.ancestors(made, node) | {node}
    siblings = {child for node in path for child in made.successors(node)}
    order = sorted(
        made, key=lambda node: (node not in siblings, -made.nodes[node].get("path_prob", 1.0))
    )
    hidden = {node: sum(child not in shown for child in made.successors(node)) for node in shown}
    used = sum(hidden[node] > 0 or not made.out_degree(node) for node in shown)
    for node in order:  # a parent is at least as probable as its children, so it comes first
        parent = made.nodes[node]["parent"]
        # a new row, unless this child takes the row of its parent's stub
        wider = used + (hidden.get(parent, 0) > 1)
        if node in shown or parent not in shown or wider > rows:
            continue
        shown.add(node)
        hidden[node] = made.out_degree(node)
        hidden[parent] -= 1
        used = wider
    return _with_stubs(made, shown)


def _with_stubs(made: Graph, shown: set[Any]) -> Graph:
    small: Graph = made.copy()
    for keeper in [node for node in made if node in shown]:
        hidden = [child for child in made.successors(keeper) if child not in shown]
        folded = [node for child in hidden for node in (child, *nx.descendants(made, child))]
        if len(folded) < 2:  # a single node needs no more room than its stub
            continue
        folded.sort(key=lambda node: -made.nodes[node].get("path_prob", 1.0))
        small.remove_nodes_from(folded)
        data = {
            "label": f"+{len(folded)}",
            "parent": keeper,
            "depth": made.nodes[keeper]["depth"] + 1,
        }
        small.add_node(f"+{keeper}", **data, verdict="folded", accepted=False, folded=folded)
        small.add_edge(keeper, f"+{keeper}")
    return small


def least_room(widths: Sequence[int]) -> int:
    """Pixels of a tree whose labels can be read: 9 characters, a token of about 6."""
    sizes = STYLE["tree"]
    label = sizes["char"] * sum(min(width, sizes["read"]) for width in widths)
    gaps = sizes["gaps"][0] * (len(widths) - 1)
    room = sizes["left"] + sizes["mark"] * len(widths) + gaps + label
    return int(ceil(room) + sizes["after"])


def columns(widths: Sequence[int], room: float) -> tuple[list[float], list[int]]:
    """For each depth, the position of its nodes and the most characters of its labels, in `room`
    pixels.

    Labels are cut only if they do not fit, the longest first. `widths`: characters of the widest
    label at each depth.
    """
    sizes = STYLE["tree"]
    mark = sizes["mark"]
    char = sizes["char"]
    narrow, wide = sizes["gaps"]
    free = room - sizes["left"] - sizes["right"] - mark * len(widths)
    least = narrow * (len(widths) - 1)
    most = max(widths)
    while most > 4 and free < least + char * sum(min(width, most) for width in widths):
        most -= 1
    chars = [min(width, most) for width in widths]
    gap = wide
    if len(widths) > 1:
        gap = (free - char * sum(chars)) / (len(widths) - 1)
    gap = min(max(gap, narrow), wide)
    places = []
    left = float(sizes["left"])
    for most in chars:
        places.append(left)
        left += mark + char * most + gap
    return places, chars
