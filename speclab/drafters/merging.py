"""Two drafts from one root as one: the union of their trees as a prefix trie (Dual-Draft Routing, section 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from speclab.drafters.base import Draft, ExtraRows, TopK
from speclab.trace.records import Event
from speclab.tree import DraftTree

BOTH = "both"
"""What a node is said to come from that every draft has."""

Places = tuple[int, ...]
"""For each node of a draft's own tree, its place in the union."""


def merged(drafts: Sequence[Draft], names: Sequence[str]) -> tuple[Draft, list[Places]]:
    """The union of drafts, and for each of them the places of its nodes there.

    A node says which draft it is from by `names`, or "both". Where they agree on a token its log-probability is the
    larger one. The union of trees of n and m nodes has max(n, m) to n + m - 1 nodes.
    """
    tree, places = _union([draft.tree for draft in drafts], names)
    events = tuple(
        _told(event, name, place)
        for draft, name, place in zip(drafts, names, places, strict=True)
        for event in draft.events
    )
    tops = _tops(tree, [draft.topk for draft in drafts], places)
    return Draft(tree, events, tops, _beside([draft.extra for draft in drafts])), places


def _union(trees: Sequence[DraftTree], names: Sequence[str]) -> tuple[DraftTree, list[Places]]:
    root = trees[0]
    token, parent, log_prob = [int(root.token[0])], [-1], [float(root.log_prob[0])]
    source, children = [root.source[0]], [dict[int, int]()]
    found: list[list[int]] = []
    for tree, name in zip(trees, names, strict=True):
        place = [0]
        rows = zip(tree.token.tolist(), tree.parent.tolist(), tree.log_prob.tolist(), strict=True)
        for own, above, prob in list(rows)[1:]:
            node = children[place[above]].setdefault(own, len(token))
            if node == len(token):
                token.append(own)
                parent.append(place[above])
                log_prob.append(prob)
                source.append(name)
                children.append({})
            else:
                log_prob[node] = max(log_prob[node], prob)
                source[node] = source[node] if source[node] == name else BOTH
            place.append(node)
        found.append(place)
    union, order = DraftTree.grown(token, parent, log_prob, source)
    at = {node: index for index, node in enumerate(order)}
    return union, [tuple(at[node] for node in place) for place in found]


def _told(event: Event, name: str, place: Places) -> Event:
    node = None if event.node is None else place[event.node]
    return replace(event, node=node, reason=f"{name}: {event.reason}")


def _tops(tree: DraftTree, tops: Sequence[Mapping[int, TopK]], places: Sequence[Places]) -> dict[int, TopK]:
    """Of a node that several expanded, each token with the larger of its log-probabilities; a child with its own."""
    best: dict[int, dict[int, float]] = {}
    for own, place in zip(tops, places, strict=True):
        for node, top in own.items():
            known = best.setdefault(place[node], {})
            known.update((token, max(log_prob, known.get(token, log_prob))) for token, log_prob in top)
    for node, known in best.items():
        known.update((int(tree.token[child]), float(tree.log_prob[child])) for child in tree.children[node])
    return {node: tuple(sorted(top.items(), key=lambda pair: -pair[1])) for node, top in best.items()}


def _beside(extras: Sequence[ExtraRows]) -> ExtraRows:
    """All extra rows, of which none sees those of another draft."""
    count = sum(len(rows.token) for rows in extras)
    visible, start = np.zeros((count, count), dtype=np.bool_), 0
    for rows in extras:
        end = start + len(rows.token)
        visible[start:end, start:end] = rows.visible
        start = end
    token = [one for rows in extras for one in rows.token]
    return ExtraRows(token, [one for rows in extras for one in rows.depth], visible)
