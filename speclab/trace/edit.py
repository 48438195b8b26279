"""A draft tree while a person edits it, with the probabilities that a recorded step has for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

import numpy as np

from speclab.errors import NotRecordedError, SettingsError, named
from speclab.trace.records import Step, step_of
from speclab.tree import CandidateSampling, DraftTree

MOST = 512
"""Most nodes of a tree that one pass verifies."""
HAND = "hand"
"""The source of a node that was added by hand."""
NEUTRAL = 0.0
"""Log-probability of a node without a recorded one: probability 1 leaves its path's unchanged."""


@dataclass(frozen=True, eq=False)
class TreeEdit:
    """A draft tree while a person edits it; every operation returns a new one, so undo keeps the
    old.

    Nodes have the breadth-first numbers of `tree`, which change as nodes are added and pruned.

    Args:
        tree: `n` nodes; their candidates count as chosen beforehand.
        step: an iteration with the same root, which provides recorded draft probabilities.
    """

    tree: DraftTree
    step: Step | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tree, DraftTree):
            raise SettingsError(
                f"Expected a DraftTree such as DraftTree.root(token), got {named(self.tree)}."
            )
        object.__setattr__(
            self, "tree", replace(self.tree, candidate_sampling=CandidateSampling.DETERMINISTIC)
        )

    @classmethod
    def of(cls, step: Step) -> TreeEdit:
        """The tree of an iteration.

        Raises:
            NotRecordedError: its root was drafted.
        """
        if 0 in step_of(step).drafted:
            raise NotRecordedError(
                f"The root of iteration {step.index + 1} was drafted, but a tree built by hand "
                "starts at the newest token of the text: start from the root alone."
            )
        return cls(step.tree, step)

    def add(self, parent: int, token: int) -> TreeEdit:
        """Adds a child after the node's other children.

        Its log-probability is the draft's if the step recorded it, else `NEUTRAL`.

        Raises:
            SettingsError: no such parent or token, or the child exists already.
        """
        tree = self.tree
        self._check(parent)
        # `Session.verify` checks the target's vocabulary
        if not (_is_whole(token) and 0 <= token < 1 << 31):
            raise SettingsError(f"Expected a token id, a whole number from 0 on, got {token!r}.")
        child = tree.child(parent, token)
        if child is not None:
            raise SettingsError(
                f"Node {parent} already has this token as a child, node {child}: add another."
            )
        grown, _ = DraftTree.grown(
            tree.token.tolist() + [token],
            tree.parent.tolist() + [parent],
            tree.log_prob.tolist() + [self._log_prob(parent, token)],
            tree.source + (HAND,),
        )
        return replace(self, tree=grown)

    def prune(self, node: int) -> TreeEdit:
        """Removes a node and everything below it.

        Raises:
            SettingsError: no such node, or the root.
        """
        self._check(node)
        if node == 0:
            raise SettingsError(
                "Node 0 is the root, the newest token of the text: it cannot be pruned."
            )
        return replace(self, tree=self.tree.select((~self.tree.ancestor_mask()[:, node]).tolist()))

    def recorded(self, node: int) -> int | None:
        """The node of `step` with the same path, or None."""
        root, *path = self.tree.token[list(self.tree.path(node))].tolist()
        if self.step is None or self.step.tree.token[0] != root:
            return None
        nodes = (0,) + self.step.tree.follow(path)
        if len(nodes) <= len(path):
            return None
        return nodes[-1]

    def topk(self) -> dict[int, tuple[tuple[int, float], ...]]:
        """The step's recorded draft tokens after each node: tokens and log-probabilities, best first."""
        topk = {}
        for node in range(len(self.tree)):
            recorded = self.recorded(node)
            if self.step is not None and recorded is not None:
                top = self.step.nodes[recorded].draft_top
                if top:
                    topk[node] = tuple([(token, log(prob)) for token, prob in top if prob > 0])
        return topk

    def _log_prob(self, parent: int, token: int) -> float:
        recorded = self.recorded(parent)
        if self.step is None or recorded is None:
            return NEUTRAL
        child = self.step.tree.child(recorded, token)
        if child is not None:
            return float(self.step.tree.log_prob[child])
        prob = dict(self.step.nodes[recorded].draft_top).get(token, 0.0)
        if prob > 0:
            return log(prob)
        return NEUTRAL

    def _check(self, node: int) -> None:
        if not (_is_whole(node) and 0 <= node < len(self.tree)):
            raise SettingsError(
                f"There is no node {node!r}: this tree has {len(self.tree)} nodes, numbered from 0."
            )


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)
