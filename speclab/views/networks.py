"""Trees as networkx graphs: an iteration's, and any tree for `views.tree`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import exp
from typing import TYPE_CHECKING, Any

from speclab.errors import SettingsError, named
from speclab.trace.columns import computed
from speclab.trace.records import Step, step_of
from speclab.views.drawing import call
from speclab.views.run_data import LOOKS

if TYPE_CHECKING:
    from networkx import DiGraph

OWN = "own"
"""The node of the target's own token, bonus or correction; drafted nodes have numbers."""


def graph(step: Step) -> DiGraph[int | str]:
    """The draft tree as a networkx graph with an edge from each parent to its children.

    Nodes have the numbers of the tree; "own" is the target's own token. Node attributes: token,
    text, label, parent, depth, position, source, log_prob, draft_prob, path_prob, target_prob,
    target_choice, target_choice_text, choice_prob, entropy, draft_top, target_top, verdict, accepted,
    kv_slot, mask_row, and the columns of the page's table (`trace/columns.py`), as far as they were
    recorded.
    Graph attributes: index, prefix_length, rule and the settings of the iteration.
    """
    tree = step_of(step).tree
    texts = step.texts
    made: DiGraph[Any] = step.to_networkx()
    settings = {"rule": step.rule, **step.settings}
    made.graph |= {"index": step.index, "prefix_length": step.prefix_length}
    made.graph |= {name: value for name, value in settings.items() if value is not None}
    for name, values in computed(step).items():
        for node, value in enumerate(values):
            if value is not None:
                made.nodes[node].setdefault(name, value)
    for record in step.nodes:
        node = record.index
        facts = {name: value for name, value in asdict(record).items() if value is not None}
        facts |= {
            "target_choice_text": texts.get(record.target_choice, ""),
            "position": step.prefix_length + int(tree.depth[node]),
            "mask_row": node,
            "draft_top": _top(step, record.draft_top),
            "target_top": _top(step, record.target_top),
        }
        del facts["index"]
        made.nodes[node].update(facts)
    if step.bonus is not None:
        _attach_own(made, step)
    labels = call("labels", [data["token"] for _, data in made.nodes(data=True)], texts)
    for data, label in zip(made.nodes.values(), labels, strict=True):
        data["label"] = label
    return made


def _attach_own(graph: DiGraph[Any], step: Step) -> None:
    """The target's own token after the path; it takes the root's place if that was rejected."""
    last = call("lastOnPath", step)
    depth = 0 if last < 0 else int(step.tree.depth[last]) + 1
    facts = {"token": step.bonus, "text": step.texts.get(step.bonus or 0, ""), "parent": last}
    graph.add_node(OWN, **facts, depth=depth, verdict=call("ownKind", step), accepted=False)
    if last >= 0:
        graph.add_edge(last, OWN)


def _top(step: Step, top: Sequence[tuple[int, float]]) -> str:
    """As text, which every graph format can hold."""
    return ", ".join([f"{step.texts.get(token, token)!r} {prob:.4g}" for token, prob in top])


def tree_nodes(graph: object) -> list[dict[str, Any]]:
    """The nodes of any tree for the page, breadth-first.

    Raises:
        SettingsError: it is no networkx DiGraph, no tree, or a node has no token.
    """
    import networkx as nx

    if not isinstance(graph, nx.DiGraph):
        step_of(graph)
        raise SettingsError(f"Expected an iteration or a networkx DiGraph, got {named(graph)}.")
    if not len(graph) or not nx.is_arborescence(graph):
        raise SettingsError(
            "The graph is not a tree: draw one with a single root, in which each other node has one "
            "parent."
        )
    (root,) = [node for node, degree in graph.in_degree() if not degree]
    nodes: dict[Any, dict[str, Any]] = {}
    for node in nx.bfs_tree(graph, root):
        above = nodes.get(next(iter(graph.predecessors(node)), None))
        nodes[node] = _tree_node(node, graph.nodes[node], above)
    return list(nodes.values())


def _tree_node(node: Any, facts: Any, above: dict[str, Any] | None) -> dict[str, Any]:
    """One node for the page."""
    text = facts.get("text", facts.get("token"))
    if text is None:
        raise SettingsError(
            f"Node {node!r} has no token: set its attribute `text`, or `token`, to draw it."
        )
    accepted = bool(facts.get("accepted"))
    kind = facts.get("verdict")
    if not kind:
        kind = "root"
        if above:
            kind = "drafted"
        if accepted:
            kind = "accepted"
    kinds = LOOKS["nodes"]
    if kind not in kinds:
        raise SettingsError(
            f"Node {node!r} has the verdict {named(kind)}: choose one of {', '.join(kinds)}."
        )
    if not isinstance(text, str):
        text = f"#{text}"
    parent = -1
    path_prob = exp(facts.get("log_prob", 0.0))
    if above:
        parent = above["id"]
        path_prob *= above["path_prob"]
    return {
        "id": node_id(node),
        "parent": parent,
        "text": text,
        "path_prob": path_prob,
        "kind": kind,
        "accepted": accepted,
    }


def node_id(node: Any) -> int | str:
    """A node in a picture: its number, which stands beside its text, or its name."""
    return node if isinstance(node, int) and node >= 0 else str(node)
