"""The trees that a strategy chose between, and an iteration beside the same one decoded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from speclab.trace.records import Proposal, Step
from speclab.views.networks import OWN, attach, step_graph, tree_graph
from speclab.views.phases import last_on_path, own_kind
from speclab.views.theme import STYLE, Spec, note, spec
from speclab.views.tokens import plot_text
from speclab.views.tree_picture import (
    Entry,
    column_widths,
    entry_kinds,
    row_count,
    step_kinds,
    tree_table,
    tree_traces,
)
from speclab.views.words import fill

GAP = 24
PITCH = 24
TITLE = 44
"""Pixels: between two trees, per row, and above the trees for titles."""


class _Tree(NamedTuple):
    entries: Sequence[Entry]
    kinds: Sequence[str | None]
    title: str


def drafts_sentence(step: Step) -> str:
    """Name the proposed trees and the verified one."""
    if not step.proposals:
        return ""
    trees = [fill("drafts", "tree", _values(one)) for one in step.proposals]
    chosen = [one.name for one in step.proposals if one.chosen]
    values = {
        "count": len(trees),
        "token": int(step.tree.token[0]),
        "trees": "; ".join(trees),
        "name": next(iter(chosen), ""),
    }
    return fill("drafts", "routed" if len(chosen) == 1 else "merged", values, step.texts)


def _values(one: Proposal) -> dict[str, Any]:
    return {"name": one.name, "nodes": len(one.tree) - 1, "confidence": one.confidence}


def draw_drafts(step: Step, width: int = 1040) -> Spec:
    """The proposed trees side by side, on the same columns.

    In a tree that was not verified, nodes that the committed text follows count as accepted, other
    children of such nodes as rejected, and all others as not reached.
    """
    trees = []
    for one in step.proposals:
        verified = one.chosen and len(one.tree) == len(step.tree)
        kinds: dict[Any, str | None] = {node.index: node.verdict for node in step.nodes}
        if not verified:
            kinds = {**_followed(step, one)}
        verdicts = [str(kinds[node]) for node in range(len(one.tree))]
        path = [node for node, verdict in enumerate(verdicts) if verdict == "accepted"]
        graph = tree_graph(one.tree, step.texts, verdicts, path)
        if verified and step.bonus is not None:
            kinds[OWN] = own_kind(step)
            attach(graph, OWN, step.bonus, step.texts, last_on_path(step), own_kind(step))
        entries = tree_table(graph, 16)
        title = fill("drafts", "verified" if one.chosen else "other", _values(one))
        trees.append(_Tree(entries, entry_kinds(entries, kinds), title))
    return trees_beside(trees, drafts_sentence(step), width)


def _followed(step: Step, one: Proposal) -> dict[int, str]:
    """Verdicts of a tree that was not verified, as far as the committed text tells."""
    kinds = {0: "root"}
    tree = one.tree
    for node in range(1, len(tree)):
        depth = int(tree.depth[node])
        above = kinds[int(tree.parent[node])]
        kinds[node] = "not reached"
        if above in {"root", "accepted"} and depth <= len(step.committed):
            same = tree.token[node] == step.committed[depth - 1]
            kinds[node] = "accepted" if same else "rejected"
    return kinds


def draw_pair(
    before: Step, after: Step, names: tuple[str, str] = ("before", "decoded again")
) -> Spec:
    """An iteration and the same iteration decoded again, side by side on the same columns."""
    trees = []
    for name, step in zip(names, (before, after), strict=True):
        entries = tree_table(step_graph(step), 64)
        counts = {"name": name, "drafted": step.counts.drafted, "accepted": len(step.accepted)}
        title = fill("drafts", "pair", counts)
        trees.append(_Tree(entries, entry_kinds(entries, step_kinds(step)), title))
    return trees_beside(trees, "; ".join([tree.title for tree in trees]) + ".")


def trees_beside(trees: Sequence[_Tree], sentence: str, width: int = 1040) -> Spec:
    """Trees side by side, aligned at the top, each below its title."""
    room = (width - GAP * (len(trees) - 1)) // len(trees)
    rows = max(row_count(tree.entries) for tree in trees)
    widths = column_widths([tree.entries for tree in trees])
    style = STYLE["layouts"]["trees"]
    data: list[Spec] = []
    axes: Spec = {}
    notes = []
    for number, (entries, kinds, title) in enumerate(trees):
        key = str(number + 1) if number else ""
        traces, own = tree_traces(entries, kinds, room, PITCH * rows, widths=widths)
        data += [{**one, "xaxis": f"x{key}", "yaxis": f"y{key}"} for one in traces]
        start = number * (room + GAP) / width
        domain = [start, start + room / width]
        across = {**own["xaxis"], "domain": domain, "anchor": f"y{key}"}
        axes[f"xaxis{key}"] = {**style["xaxis"], **across}
        axes[f"yaxis{key}"] = {**style["yaxis"], "range": [rows - 0.5, -0.5], "anchor": f"x{key}"}
        notes.append(note(f"<b>{plot_text(title)}</b>", start, 1, yshift=6))
    height = PITCH * rows + TITLE + 4
    return spec(data, sentence, "trees", height=height, annotations=notes, **axes)
