"""Where each node stands: x is its depth, y the order of the leaves, a parent midway between first and last child.

So no two edges cross (leaf order of a breadth-first tree), and the picture takes one row a leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from speclab.tree import DraftTree

FOLD_ABOVE = 64
OWN = -1
"""`Place.node` of the target's own token."""


@dataclass(frozen=True, slots=True)
class Place:
    """One thing to draw: tree node `node`, the target's own token (`OWN`), or a stub (None) for `folded` nodes.

    `parent` is an index into the list of places, -1 for the root; `row` counts leaves from the top.
    """

    node: int | None
    folded: int
    parent: int
    depth: int
    row: float


def tidy(parents: Sequence[int]) -> list[float]:
    """The row of each of `n` items, parents before children; children keep their order."""
    children: list[list[int]] = [[] for _ in parents]
    for item, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(item)
    order, stack = [], [item for item, parent in enumerate(parents) if parent < 0][::-1]
    while stack:
        item = stack.pop()
        order.append(item)
        stack.extend(reversed(children[item]))
    rows = [0.0] * len(parents)
    leaves = 0
    for item in order:
        if not children[item]:
            rows[item] = float(leaves)
            leaves += 1
    for item in reversed(order):
        if children[item]:
            rows[item] = (rows[children[item][0]] + rows[children[item][-1]]) / 2
    return rows


def choose(tree: DraftTree, path: Sequence[int], keep: Iterable[int] = (), limit: int = FOLD_ABOVE) -> frozenset[int]:
    """The nodes to draw: all, or above `limit` the path, its siblings, `keep`, and the likeliest.

    Closed under parents. A stub costs as much room as a node, so both count towards `limit`; what must be shown may
    exceed it.
    """
    if len(tree) <= limit:
        return frozenset(range(len(tree)))
    shown = {0}
    for node in [*path, *keep]:
        shown.update(tree.path(node))
        if node in path and node:
            shown.update(tree.children[int(tree.parent[node])])
    if path:
        shown.update(tree.children[path[-1]])
    hidden = {node: sum(child not in shown for child in tree.children[node]) for node in shown}
    stubs = sum(count > 0 for count in hidden.values())
    for node in sorted(range(len(tree)), key=lambda node: (-tree.path_log_prob[node], node)):  # parents come first
        parent, below = int(tree.parent[node]), len(tree.children[node])
        wider = stubs + (below > 0) - (hidden.get(parent) == 1)
        if node not in shown and parent in shown and len(shown) + 1 + wider <= limit:
            shown.add(node)
            hidden[node], stubs = below, wider
            hidden[parent] -= 1
    lonely = {nodes[0] for nodes in _stubs(tree, shown).values() if len(nodes) == 1}
    return frozenset(shown | lonely)


def _stubs(tree: DraftTree, shown: set[int] | frozenset[int]) -> dict[int, list[int]]:
    """For each shown node with hidden descendants below a hidden child: those descendants."""
    top: dict[int, int] = {}
    for node, parent in enumerate(tree.parent.tolist()):
        if node not in shown:
            top[node] = top.get(parent, parent)
    folded: dict[int, list[int]] = {}
    for node, keeper in top.items():
        folded.setdefault(keeper, []).append(node)
    return folded


def place(tree: DraftTree, shown: frozenset[int] | None = None, own_after: int | None = None) -> tuple[Place, ...]:
    """Places of the `shown` nodes in order, then the target's own token after node `own_after`, then the stubs.

    With `own_after` -1 the target's own token stands in the root's column: a drafted root was rejected.
    """
    nodes = sorted(shown) if shown is not None else list(range(len(tree)))
    index = {node: i for i, node in enumerate(nodes)}
    rows: list[tuple[int | None, int, int, int]] = [
        (node, 0, index.get(int(tree.parent[node]), -1), int(tree.depth[node])) for node in nodes
    ]
    if own_after is not None:
        depth = int(tree.depth[own_after]) + 1 if own_after >= 0 else 0
        rows.append((OWN, 0, index.get(own_after, -1), depth))
    rows += [
        (None, len(folded), index[node], int(tree.depth[node]) + 1)
        for node, folded in sorted(_stubs(tree, frozenset(nodes)).items())
    ]
    heights = tidy([row[2] for row in rows])
    return tuple(Place(*row, height) for row, height in zip(rows, heights, strict=True))
