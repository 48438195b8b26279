"""The tree that another setting would have drafted, over the drafted one.

Nodes that would go are struck out, new nodes are marked. `page/tree.js` draws the same in the page.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any

from speclab.trace.records import Step
from speclab.views.networks import OWN, attach, step_graph
from speclab.views.phases import verified_root
from speclab.views.theme import Spec
from speclab.views.tree_picture import HEIGHT, entry_kinds, most_rows, tree_figure, tree_table
from speclab.views.words import fill

if TYPE_CHECKING:
    from speclab.analysis.whatif import WhatIf


def draw_whatif(step: Step, found: WhatIf) -> Spec:
    """The tree of a what-if laid over that of its iteration."""
    names: list[Any] = [
        f"new {node}" if same is None else same for node, same in enumerate(found.recorded)
    ]
    path = {names[node] for node in found.accepted}
    graph = step_graph(step)
    if OWN in graph:
        graph.remove_node(OWN)
    kinds: dict[Any, str | None] = {}
    for node, data in graph.nodes.items():
        data["accepted"] = node in path
        kinds[node] = data["verdict"]
        if node not in names:
            kinds[node] = "gone"
        elif node in path:
            kinds[node] = "accepted"
    tree = found.tree
    for node, name in enumerate(names):
        if name in graph:
            continue
        kinds[name] = "accepted" if name in path else "new"
        parent = names[int(tree.parent[node])]
        path_prob = exp(tree.path_log_prob[node])
        token = int(tree.token[node])
        attach(graph, name, token, step.texts, parent, "new", path_prob=path_prob)
        graph.nodes[name]["accepted"] = name in path
    if found.bonus is not None:
        last = found.accepted[-1] if found.accepted else 0
        follows = bool(found.accepted) or verified_root(step)
        kinds[OWN] = "bonus" if follows and not tree.children[last] else "corrected"
        parent = names[last] if follows else -1
        attach(graph, OWN, found.bonus, step.texts, parent, str(kinds[OWN]))
    new = [node for node in graph if not isinstance(node, int)]
    entries = tree_table(graph, most_rows(HEIGHT), new)
    second = {names[node]: "→ ?" for node in found.unknown}
    sentence = whatif_sentence(step, found)
    return tree_figure(entries, entry_kinds(entries, kinds), sentence, second=second)


def whatif_sentence(step: Step, found: WhatIf) -> str:
    """`Preview: 17 drafted instead of 18, 2 accepted.` and what the record does not contain."""
    drafted = len(found.tree) - 1
    own = len(step.tree) - 1
    values = {
        "drafted": drafted,
        "own": own,
        "accepted": len(found.accepted),
        "was": len(step.accepted),
    }
    least = "" if found.settled or found.unknown else "least."
    same = "same" if len(found.accepted) == len(step.accepted) else "other"
    parts = [
        fill("preview", f"drafted.{'same' if drafted == own else 'other'}", values),
        fill("preview", f"accepted.{least}{same}", values),
    ]
    whole = not found.unknown and found.recorded == tuple(range(len(step.tree)))
    start = fill("preview", "same" if whole else "start", {"parts": ", ".join(parts)})
    if not found.unknown:
        return start
    first = {"token": int(found.tree.token[found.unknown[0]]), "others": len(found.unknown) - 1}
    name = "unknowns" if first["others"] else "unknown"
    return f"{start} {fill('preview', name, first, step.texts)}"
