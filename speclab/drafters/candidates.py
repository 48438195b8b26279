"""A draft tree of candidates from several sources, merged under their parents."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import exp, log
from typing import Any, NamedTuple

from speclab.drafters.base import Draft, Outcome, TopK
from speclab.trace.records import Event
from speclab.tree import DraftTree

LEAST_LOG_PROB = -700.0
BOTH = "both"
"""The source of a node that two sources proposed."""


class Successors(NamedTuple):
    """Possible next tokens and their probabilities, above 0; the most probable first."""

    tokens: Sequence[int] = ()
    probs: Sequence[float] = ()

    @classmethod
    def of(cls, top: TopK) -> Successors:
        return cls([token for token, _ in top], [prob_of(log_prob) for _, log_prob in top])

    def by_token(self) -> dict[int, float]:
        """The probability of each token, in their order."""
        return dict(zip(self.tokens, self.probs, strict=True))


class Candidates:
    """Nodes in the order they were added, parents first; node 0 is the newest token of the text.

    Attributes:
        token, parent, depth, source: columns.
        prob: each node's probability given its parent, from its source; above 0.
        path_prob: the product of `prob` from the root to the node.
        children: for each node, its children by token.
        successors: for each node that was looked up, what its source returned.
    """

    def __init__(self, root: int) -> None:
        self.token = [root]
        self.parent = [-1]
        self.depth = [0]
        self.source = ["target"]
        self.prob = [1.0]
        self.path_prob = [1.0]
        self.children: list[dict[int, int]] = [{}]
        self.successors: dict[int, Successors] = {}

    def __len__(self) -> int:
        return len(self.token)

    def add(self, parent: int, token: int, prob: float, source: str) -> int:
        """The child of `parent` with this token, added if it is new."""
        node = self.children[parent].setdefault(token, len(self.token))
        if node == len(self.token):
            self.token.append(token)
            self.parent.append(parent)
            self.depth.append(self.depth[parent] + 1)
            self.source.append(source)
            self.prob.append(prob)
            self.path_prob.append(self.path_prob[parent] * prob)
            self.children.append({})
        return node

    def merge(self, draft: Draft, source: str) -> list[int]:
        """Adds a drafted tree with the same root; for each of its nodes, the number here.

        A node that is here already gets the source "both" and the larger probability.
        """
        part = draft.tree
        nodes = [0]
        for node in range(1, len(part)):  # breadth-first, so its parent has a number
            new = len(self)
            prob = prob_of(part.log_prob[node])
            merged = self.add(nodes[part.parent[node]], int(part.token[node]), prob, source)
            nodes.append(merged)
            # the same token after the same path: one row of the pass serves both
            if merged < new:
                self.source[merged] = BOTH
                self.prob[merged] = max(self.prob[merged], prob)
        # what the draft considered after a node, each token with the larger probability
        for node, top in draft.topk.items():
            best = self.known(nodes[node]).by_token()
            for token, log_prob in top:
                best[token] = max(prob_of(log_prob), best.get(token, 0.0))
            self.successors[nodes[node]] = Successors(list(best), list(best.values()))
        return nodes

    def known(self, node: int) -> Successors:
        """What the source of a node returned; empty if it was not looked up."""
        return self.successors.get(node, Successors())

    def way(self, name: str) -> str:
        """`name`, how the nodes below the root came; "plain" if there are none."""
        if len(self) > 1:
            return name
        return "plain"

    def tree(self) -> tuple[DraftTree, list[int]]:
        """The finished tree, breadth-first, and for each of its nodes the number it had here."""
        log_probs = [log(prob) for prob in self.prob]
        return DraftTree.grown(self.token, self.parent, log_probs, self.source)

    def draft(self, events: Sequence[Event]) -> Draft:
        """The finished tree; its events name nodes by their numbers here."""
        tree, order = self.tree()
        rows = {node: row for row, node in enumerate(order)}
        moved = []
        for event in events:
            if event.node is None:
                moved.append(event)
            else:
                moved.append(replace(event, node=rows[event.node]))
        tops = {}
        for node in order:
            if self.children[node] or node in self.successors:
                tops[rows[node]] = partial(self.top, node)
        return Draft(tree, moved, _Tops(tops))

    def top(self, node: int) -> TopK:
        """Possible next tokens of a node, its children included, with the probability that the tree gives them."""
        probs = self.known(node).by_token()
        for token, child in self.children[node].items():
            probs[token] = self.prob[child]
        top = [(token, log(prob)) for token, prob in probs.items()]
        return tuple(sorted(top, key=lambda pair: -pair[1]))


def followed(outcome: Outcome, part: DraftTree) -> Outcome:
    """The outcome for a drafted part of the verified tree: how far the part had the accepted path."""
    tokens = outcome.tree.token[list(outcome.accepted)].tolist()
    return replace(outcome, tree=part, accepted=part.follow(tokens))


def prob_of(log_prob: float) -> float:
    """At most 1, and above 0 even for a token that the draft excludes."""
    return exp(min(max(log_prob, LEAST_LOG_PROB), 0.0))


class _Tops(UserDict[int, Any]):
    """`Candidates.top` of each node that was looked up, computed on access: only records read it."""

    def __getitem__(self, node: int) -> TopK:
        return tuple(self.data[node]())
