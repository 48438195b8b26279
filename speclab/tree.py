"""The draft tree: plain arrays in breadth-first order, and the masks that follow from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from speclab.display import line
from speclab.errors import SettingsError

if TYPE_CHECKING:
    import networkx

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class CandidateSampling(StrEnum):
    """How the candidates were chosen; the acceptance rule must fit it (Dual-Draft Routing, section 6.2)."""

    DETERMINISTIC = "deterministic"
    INDEPENDENT = "independent draws"
    WITHOUT_REPLACEMENT = "draws without replacement"
    BLOCK = "a block of draws"


@dataclass(frozen=True, eq=False)
class DraftTree:
    """Candidate tokens for one verification pass: `n` nodes, breadth-first, parents before
    children.

    Node 0 is the root (parent -1). `log_prob[i]` is the natural log-probability of token `i` given
    the path to its parent, under the source that proposed it. A node's position in the text is
    prefix length + depth.

    Args:
        token: `[n]` int64, vocabulary ids.
        parent: `[n]` int64, -1 for the root only.
        log_prob: `[n]` float64, nats; 0 for a verified root.
        source: `n` names, which part of the drafter proposed the node.

    Raises:
        SettingsError: the arrays hold something else, differ in length, are empty, or are not in
            breadth-first order.
    """

    token: Ints
    parent: Ints
    log_prob: Floats
    source: tuple[str, ...]
    candidate_sampling: CandidateSampling = CandidateSampling.DETERMINISTIC

    def __post_init__(self) -> None:
        for name, kind in (("token", np.int64), ("parent", np.int64), ("log_prob", np.float64)):
            values = np.asarray(getattr(self, name))
            fits = values.size == 0 or np.can_cast(values.dtype, kind, "same_kind")
            if values.ndim != 1 or not fits:
                raise SettingsError(
                    f"A draft tree's {name} is a flat list of {np.dtype(kind)}, one for each node, "
                    f"not {values.dtype} of shape {list(values.shape)}"
                )
            column = values.astype(kind)
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        object.__setattr__(self, "source", tuple(self.source))
        _check(self)

    @classmethod
    def root(cls, token: int) -> DraftTree:
        """A tree of one node, as plain decoding verifies it."""
        return cls.of([token], [-1], [0.0], "target")

    @classmethod
    def of(
        cls,
        token: Sequence[int],
        parent: Sequence[int],
        log_prob: Sequence[float],
        source: str | Sequence[str],
        candidate_sampling: CandidateSampling = CandidateSampling.DETERMINISTIC,
    ) -> DraftTree:
        """Build a tree from sequences; a single `source` applies to every node."""
        names = _names(source, len(token))
        return cls(
            np.asarray(token), np.asarray(parent), np.asarray(log_prob), names, candidate_sampling
        )

    @classmethod
    def grown(
        cls,
        token: Sequence[int],
        parent: Sequence[int],
        log_prob: Sequence[float],
        source: str | Sequence[str],
    ) -> tuple[DraftTree, list[int]]:
        """Sort nodes that were grown parents first; returns the tree and, for each of its nodes, the given index.

        A single `source` applies to every node.

        Raises:
            SettingsError: the columns differ in length, or a node does not lie below node 0.
        """
        names = _names(source, len(token))
        if not 0 < len(token) == len(parent) == len(log_prob) == len(names):
            raise SettingsError(_COLUMNS)
        children: dict[int, list[int]] = defaultdict(list)
        for node, above in enumerate(parent[1:], 1):
            children[above].append(node)
        order = [0]
        for node in order:
            order += children[node]
        if lost := set(range(len(token))) - set(order):
            raise SettingsError(
                f"Node {min(lost)} of a draft tree does not lie below node 0: give it the parent "
                "that it was drafted after."
            )
        place = np.full(len(token) + 1, -1)  # the last one is that of -1, above the root
        place[order] = np.arange(len(order))
        tree = cls(
            np.take(token, order),
            place[np.take(parent, order)],
            np.take(log_prob, order),
            tuple([names[node] for node in order]),
        )
        return tree, order

    def __len__(self) -> int:
        return len(self.token)

    def __repr__(self) -> str:
        sources = ", ".join(dict.fromkeys(self.source))
        return line("DraftTree", nodes=len(self), depth=int(self.depth[-1]), source=sources)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DraftTree) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @cached_property
    def _content(self) -> tuple[object, ...]:
        return (
            self.token.tobytes(),
            self.parent.tobytes(),
            self.log_prob.tobytes(),
            self.source,
            self.candidate_sampling,
        )

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        """Each node and its parent, parents first; the root has none."""
        return list(enumerate(self.parent.tolist()))[1:]

    @cached_property
    def depth(self) -> Ints:
        """`[n]` int64, edges from the root; computed from `parent`."""
        depth = np.zeros(len(self.token), dtype=np.int64)
        for node, parent in self._edges:
            depth[node] = depth[parent] + 1
        depth.flags.writeable = False
        return depth

    @cached_property
    def path_log_prob(self) -> Floats:
        """`[n]` float64, the sum of `log_prob` from the root to each node (DynaTree, section 3.3)."""
        total = self.log_prob.copy()
        for node, parent in self._edges:
            total[node] += total[parent]
        total.flags.writeable = False
        return total

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        lists: list[list[int]] = [[] for _ in range(len(self.token))]
        for node, parent in self._edges:
            lists[parent].append(node)
        return tuple(map(tuple, lists))

    def child(self, parent: int, token: int) -> int | None:
        """The first child of a node that has this token; None if there is none."""
        for child in self.children[parent]:
            if self.token[child] == token:
                return child
        return None

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from the root to `node`, both included."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = int(self.parent[node])
        return tuple(reversed(nodes))

    def follow(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """The nodes below the root that `tokens` lead through, until no child matches."""
        reached = [0]
        last = 0
        for token in tokens:
            below: list[int] = []
            for node in reached:
                below += [child for child in self.children[node] if self.token[child] == token]
            if not below:
                break
            reached = below
            last = reached[0]
        return self.path(last)[1:]

    def ancestor_mask(self) -> Bools:
        """`[n, n]` bool: row `i` is true at `i` and at every ancestor of `i`."""
        mask = np.eye(len(self.token), dtype=np.bool_)
        for node, parent in self._edges:
            mask[node] |= mask[parent]
        return mask

    def attention_mask(self, prefix_length: int) -> Bools:
        """`[n, prefix_length + n]` bool: the whole prefix, then the ancestors (matrix A in DynaTree, section 3.4)."""
        prefix = np.ones((len(self.token), prefix_length), dtype=np.bool_)
        return np.concatenate([prefix, self.ancestor_mask()], axis=1)

    def select(self, keep: Sequence[bool]) -> DraftTree:
        """The tree without the nodes where `keep` is false; a kept node needs a kept parent."""
        rows = np.flatnonzero(np.asarray(keep, dtype=np.bool_))
        place = np.full(len(self.token) + 1, -2, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        place[-1] = -1
        source = tuple([self.source[node] for node in rows.tolist()])
        return DraftTree(
            self.token[rows],
            place[self.parent[rows]],
            self.log_prob[rows],
            source,
            self.candidate_sampling,
        )

    def to_networkx(self) -> networkx.DiGraph[int]:
        """A `networkx.DiGraph`, edges from parent to child, every column as a node attribute.

        `Step.to_networkx` adds what the target said.
        """
        import networkx

        graph: networkx.DiGraph[int] = networkx.DiGraph()
        for node in range(len(self)):
            graph.add_node(
                node,
                token=int(self.token[node]),
                depth=int(self.depth[node]),
                log_prob=float(self.log_prob[node]),
                source=self.source[node],
            )
        graph.add_edges_from((parent, node) for node, parent in self._edges)
        return graph


_COLUMNS = "a draft tree needs at least a root, and columns of one length"


def _names(source: str | Sequence[str], n: int) -> tuple[str, ...]:
    if isinstance(source, str):
        return (source,) * n
    return tuple(source)


def _check(tree: DraftTree) -> None:
    n = len(tree.token)
    if not 0 < n == len(tree.parent) == len(tree.log_prob) == len(tree.source):
        raise SettingsError(_COLUMNS)
    parents = tree.parent[1:]
    if tree.parent[0] != -1 or (parents < 0).any() or (parents >= np.arange(1, n)).any():
        raise SettingsError(
            "node 0 of a draft tree must be its only root, and parents come before their children"
        )
    if (np.diff(parents) < 0).any():
        raise SettingsError("the nodes of a draft tree must be in breadth-first order")
