"""A tree edited by hand: what a person would have drafted, verified as any other.

`TreeEdit` is the tree while it is edited, `Session.verify` has it verified. A session of `ByHand` that is stepped
without a tree verifies the root alone, as plain decoding does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from speclab.drafters.base import Draft, Drafter, Strategy, TopK
from speclab.drafters.chain import RootAlone
from speclab.errors import NotRecordedError, SettingsError, named
from speclab.trace.records import Step
from speclab.tree import CandidateSampling, DraftTree

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

MOST = 512
"""Nodes of a tree at most, as in the budgets of other strategies."""
HAND = "hand"
"""The source of a node that was added by hand."""
NEUTRAL = 0.0
"""Log-probability of a node that no draft was asked about: probability 1, which leaves its path's as it is."""

REDRAWN = (
    "The mask was redrawn by hand: what the target chose here, and so the text, need not be its own any more; the "
    "caches were built anew from the text."
)
"""The note of a step whose mask is not the one that its tree implies."""


class ByHand(Strategy):
    """Trees that a person builds, one for each iteration; without one the root alone is verified."""

    by_hand: ClassVar[bool] = True

    def drafter(self, pair: ModelPair) -> Drafter:
        return RootAlone(self)


@dataclass(frozen=True, eq=False)
class TreeEdit:
    """A draft tree while a person edits it; every operation returns a new one, so undo keeps the old.

    Nodes have the numbers of `tree`, which is breadth-first: they change as nodes come and go.

    Args:
        tree: `n` nodes; however its candidates were chosen, by hand they are chosen beforehand.
        step: an iteration with the same root, whose record says what the draft gave a token.
    """

    tree: DraftTree
    step: Step | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tree, DraftTree):
            raise SettingsError(f"Expected a DraftTree such as DraftTree.root(token), got {named(self.tree)}.")
        object.__setattr__(self, "tree", replace(self.tree, candidate_sampling=CandidateSampling.DETERMINISTIC))

    @classmethod
    def of(cls, step: Step) -> TreeEdit:
        """The tree of an iteration.

        Raises:
            NotRecordedError: its root was drafted.
        """
        if step.root_choice is not None:
            raise NotRecordedError(
                f"The root of iteration {step.index + 1} was drafted, and a tree built by hand grows from the newest "
                "token of the text: start from the root alone."
            )
        return cls(step.tree, step)

    def add(self, parent: int, token: int) -> TreeEdit:
        """With one more child of a node, behind its others.

        Its log-probability is the draft's where the step recorded it, else `NEUTRAL`: no draft is asked.

        Raises:
            SettingsError: no such parent, no such token, a child that is there already, or too many nodes.
        """
        tree = self.tree
        self._check(parent)
        if not (_is_whole(token) and 0 <= token < 1 << 31):  # whether the target has it, `Session.verify` checks
            raise SettingsError(f"Expected a token id, a whole number from 0 on, got {token!r}.")
        for child in tree.children[parent]:
            if tree.token[child] == token:
                raise SettingsError(f"Node {parent} has a child of token {token} already, node {child}: add another.")
        if len(tree) >= MOST:
            raise SettingsError(f"The tree has {MOST} nodes, the most that one pass takes: prune some first.")
        columns = tree.token.tolist(), tree.parent.tolist(), tree.log_prob.tolist(), tree.source
        new = token, parent, self._log_prob(parent, token), HAND
        grown, _ = DraftTree.grown(*([*column, value] for column, value in zip(columns, new, strict=True)))
        return replace(self, tree=grown)

    def prune(self, node: int) -> TreeEdit:
        """Without a node and everything below it.

        Raises:
            SettingsError: no such node, or the root.
        """
        self._check(node)
        if node == 0:
            raise SettingsError("Node 0 is the root, the newest token of the text: it cannot be pruned.")
        return replace(self, tree=self.tree.select((~self.tree.ancestor_mask()[:, node]).tolist()))

    def recorded(self, node: int) -> int | None:
        """The node of `step` that has the same path; None where there is none."""
        root, *path = self.tree.token[list(self.tree.path(node))].tolist()
        if self.step is None or self.step.tree.token[0] != root:
            return None
        nodes = (0, *self.step.tree.follow(path))
        return nodes[-1] if len(nodes) == len(path) + 1 else None

    def topk(self) -> dict[int, TopK]:
        """What the step recorded of the draft after each node: tokens and their log-probabilities, best first."""
        topk = {}
        for node in range(len(self.tree) if self.step is not None else 0):
            recorded = self.recorded(node)
            if self.step is not None and recorded is not None and (top := self.step.nodes[recorded].draft_top):
                topk[node] = tuple([(token, log(prob)) for token, prob in top if prob > 0])
        return topk

    def _log_prob(self, parent: int, token: int) -> float:
        """Of a token after a node, by the step."""
        recorded = self.recorded(parent)
        if self.step is None or recorded is None:
            return NEUTRAL
        tree = self.step.tree
        for child in tree.children[recorded]:
            if tree.token[child] == token:
                return float(tree.log_prob[child])
        prob = dict(self.step.nodes[recorded].draft_top).get(token, 0.0)
        return log(prob) if prob > 0 else NEUTRAL

    def _check(self, node: int) -> None:
        if not (_is_whole(node) and 0 <= node < len(self.tree)):
            raise SettingsError(f"There is no node {node!r}: this tree has {len(self.tree)}, numbered from 0.")


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def given_draft(given: DraftTree | TreeEdit, mask: Any) -> Draft:
    """A tree that was handed over, as a draft.

    Args:
        mask: `[n, n]`, which nodes each row sees; None: its ancestors.

    Raises:
        SettingsError: it is no tree, too large, or does not fit the mask; `checked_draft` sees to the rest.
    """
    edit = given if isinstance(given, TreeEdit) else TreeEdit(given)
    n = len(edit.tree)
    if n > MOST:
        raise SettingsError(f"The tree has {n} nodes, and one pass takes {MOST}: prune it.")
    if mask is None:
        return Draft(edit.tree, topk=edit.topk())
    shown = np.asarray(mask)
    if shown.shape != (n, n) or not (shown.dtype == np.bool_ or np.isin(shown, (0, 1)).all()):
        raise SettingsError(
            f"The mask of a tree of {n} nodes is {n} × {n} truths, which nodes each row sees, and this one is "
            f"{list(shown.shape)} of {shown.dtype}: tree.ancestor_mask() is one."
        )
    implied = bool((shown == edit.tree.ancestor_mask()).all())
    return Draft(edit.tree, topk=edit.topk(), mask=None if implied else shown.astype(np.bool_))
