"""A draft tree of candidates from several sources, merged under their parents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import NamedTuple

from speclab.drafters.base import Draft, TopK
from speclab.trace.records import Event
from speclab.tree import DraftTree


class Successors(NamedTuple):
    """Possible next tokens and their probabilities, above 0; the most probable first."""

    tokens: Sequence[int] = ()
    probs: Sequence[float] = ()


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

    def tree(self) -> tuple[DraftTree, list[int]]:
        """The finished tree, breadth-first, and for each of its nodes the number it had here."""
        return DraftTree.grown(
            self.token, self.parent, [log(prob) for prob in self.prob], self.source
        )

    def draft(self, *events: Event) -> Draft:
        tree, order = self.tree()
        expanded = {index: node for index, node in enumerate(order) if self.children[node]}
        return Draft(tree, events, _Tops(self, expanded))

    def top(self, node: int) -> TopK:
        """Possible next tokens of a node, its children included, with the probability that the tree gives them."""
        children = self.children[node]
        probs = dict(zip(*self.successors.get(node, Successors()), strict=True))
        probs.update((token, self.prob[child]) for token, child in children.items())
        return tuple(
            sorted(((token, log(prob)) for token, prob in probs.items()), key=lambda pair: -pair[1])
        )


class _Tops(Mapping[int, TopK]):
    """`Candidates.top` of each expanded node, computed on access: only records read it."""

    def __init__(self, candidates: Candidates, nodes: Mapping[int, int]) -> None:
        self._candidates = candidates
        self._nodes = nodes

    def __getitem__(self, index: int) -> TopK:
        return self._candidates.top(self._nodes[index])

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)
