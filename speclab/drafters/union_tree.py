"""Several draft trees as one: their nodes, next tokens and extra rows (Dual-Draft Routing, section 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from speclab.drafters.base import ExtraRows, TopK
from speclab.tree import DraftTree

BOTH = "both"
"""What a node is said to come from that both trees have."""
Places = tuple[int, ...]
"""For each node of a draft's own tree, its place in the tree that is verified."""


def union(trees: Sequence[DraftTree], names: Sequence[str]) -> tuple[DraftTree, list[Places]]:
    """The prefix trie of all trees, and for each of them the places of its nodes there; a node says whose it is."""
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


def merged_tops(tree: DraftTree, tops: Sequence[Mapping[int, TopK]], places: Sequence[Places]) -> dict[int, TopK]:
    """Of a node that several expanded, each token with the larger of its log-probabilities; a child with its own."""
    best: dict[int, dict[int, float]] = {}
    for own, place in zip(tops, places, strict=True):
        for node, top in own.items():
            known = best.setdefault(place[node], {})
            known.update((token, max(log_prob, known.get(token, log_prob))) for token, log_prob in top)
    for node, known in best.items():
        known.update((int(tree.token[child]), float(tree.log_prob[child])) for child in tree.children[node])
    return {node: tuple(sorted(top.items(), key=lambda pair: -pair[1])) for node, top in best.items()}


def stacked(extras: Sequence[ExtraRows]) -> ExtraRows:
    """All extra rows, of which none sees those of another draft."""
    count = sum(len(rows.token) for rows in extras)
    visible, start = np.zeros((count, count), dtype=np.bool_), 0
    for rows in extras:
        end = start + len(rows.token)
        visible[start:end, start:end] = rows.visible
        start = end
    token = [one for rows in extras for one in rows.token]
    return ExtraRows(token, [one for rows in extras for one in rows.depth], visible)
