"""A draft tree under construction: candidates are merged under their parent, in the order in which they come."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from speclab.tree import DraftTree

LookedUp = tuple[Sequence[int], Sequence[float], float]
"""What a source had after a node: tokens, their scores, and what a score is multiplied by to give a probability."""


class Trie:
    """Nodes in the order they were added, parents first; node 0 is the root, the target's newest token.

    Attributes:
        token, parent, depth, prob, source: columns; `prob` is the source's probability of the token, above 0.
        children: for each node, its children by token.
        looked_up: for a node, what its source had; some of the tokens became children.
    """

    def __init__(self, root: int) -> None:
        self.token, self.parent, self.depth = [root], [-1], [0]
        self.prob, self.source = [1.0], ["target"]
        self.children: list[dict[int, int]] = [{}]
        self.looked_up: dict[int, LookedUp] = {}

    def __len__(self) -> int:
        return len(self.token)

    def add(self, parent: int, token: int, prob: float, source: str) -> int:
        """The child of `parent` with this token; one that is there already stays as it is."""
        siblings, node = self.children[parent], len(self.token)
        if token in siblings:
            return siblings[token]
        siblings[token] = node
        self.token.append(token)
        self.parent.append(parent)
        self.depth.append(self.depth[parent] + 1)
        self.prob.append(prob)
        self.source.append(source)
        self.children.append({})
        return node

    def grown(self) -> tuple[DraftTree, list[int]]:
        """The finished tree, breadth-first, and for each of its nodes the number it had here."""
        return DraftTree.grown(self.token, self.parent, [log(prob) for prob in self.prob], self.source)
