"""Trees as networkx graphs: an iteration's, and any tree for `views.tree`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import exp
from typing import TYPE_CHECKING, Any

from speclab.errors import SettingsError, named
from speclab.trace.records import Step, step_of
from speclab.views.drawing import call
from speclab.views.run_data import looks

if TYPE_CHECKING:
    from networkx import DiGraph

OWN = "own"
"""The node of the target's own token, bonus or correction; drafted nodes have numbers."""


def step_graph(step: Step) -> DiGraph[Any]:
    """See `speclab.views.graph`."""
    tree = step.tree
    texts = step.texts
    graph: DiGraph[Any] = step.to_networkx()
    settings = {"rule": step.rule, **step.settings}
    graph.graph |= {"index": step.index, "prefix_length": step.prefix_length}
    graph.graph |= {name: value for name, value in settings.items() if value is not None}
    for record in step.nodes:
        node = record.index
        facts = {name: value for name, value in asdict(record).items() if value is not None}
        facts |= {
            "target_choice_text": texts.get(record.target_choice, ""),
            "parent": int(tree.parent[node]),
            "position": step.prefix_length + int(tree.depth[node]),
            "mask_row": node,
            "draft_top": _top(step, record.draft_top),
            "target_top": _top(step, record.target_top),
        }
        del facts["index"]
        graph.nodes[node].update(facts)
    if step.bonus is not None:
        _attach_own(graph, step)
    labels = call("labels", [data["token"] for _, data in graph.nodes(data=True)], texts)
    for data, label in zip(graph.nodes.values(), labels, strict=True):
        data["label"] = label
    return graph


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
    roots = [node for node, degree in graph.in_degree() if not degree]
    merged = [node for node, degree in graph.in_degree() if degree > 1]
    if len(roots) > 1:
        raise SettingsError(
            f"The graph has {len(roots)} roots, {roots[0]!r} and {roots[1]!r} among them: draw a "
            "tree with one root."
        )
    if merged:
        raise SettingsError(
            f"Node {merged[0]!r} has more than one parent: draw a tree, in which each node has one."
        )
    order = [*nx.bfs_tree(graph, roots[0])] if roots else []
    if len(order) < len(graph):
        raise SettingsError("The graph has a cycle: draw a tree, whose edges lead to children.")
    if not order:
        raise SettingsError("The graph has no node: draw a tree with a root.")
    nodes: dict[Any, dict[str, Any]] = {}
    for node in order:
        above = nodes.get(next(iter(graph.predecessors(node)), None))
        nodes[node] = _tree_node(node, graph.nodes[node], above)
    return [*nodes.values()]


def _tree_node(node: Any, facts: Any, above: dict[str, Any] | None) -> dict[str, Any]:
    """One node for the page."""
    text = facts.get("text", facts.get("token"))
    if text is None:
        raise SettingsError(
            f"Node {node!r} has no token: set its attribute `text`, or `token`, to draw it."
        )
    accepted = bool(facts.get("accepted"))
    kind = facts.get("verdict") or ("accepted" if accepted else "drafted" if above else "root")
    kinds = looks()["nodes"]
    if kind not in kinds:
        raise SettingsError(
            f"Node {node!r} has the verdict {named(kind)}: choose one of {', '.join(kinds)}."
        )
    return {
        "id": node_id(node),
        "parent": above["id"] if above else -1,
        "text": text if isinstance(text, str) else f"#{text}",
        "path_prob": (above["path_prob"] if above else 1.0) * exp(facts.get("log_prob", 0.0)),
        "kind": kind,
        "accepted": accepted,
    }


def node_id(node: Any) -> int | str:
    """A node in a picture: its number, which stands beside its text, or its name."""
    return node if isinstance(node, int) and node >= 0 else str(node)
