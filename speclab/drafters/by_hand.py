"""A tree edited by hand: what a person would have drafted, verified as any other.

`TreeEdit` is the tree while it is edited, `Session.verify` has it verified. A session of `ByHand` that is stepped
without a tree verifies the root alone, as plain decoding does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from speclab.drafters.base import Draft, Drafter, Strategy, TopK
from speclab.drafters.chain import RootAlone
from speclab.errors import NotRecordedError, SettingsError, named
from speclab.trace.records import Step
from speclab.tree import Bools, CandidateSampling, DraftTree

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
    """A draft tree and its mask while a person edits them; every operation returns a new one, so undo keeps the old.

    Nodes have the numbers of `tree`, which is breadth-first, so they change as nodes come and go; those of a new node's
    ancestors stay.

    Args:
        tree: `n` nodes; however its candidates were chosen, by hand they are chosen beforehand.
        flipped: cells (row, column) of the mask that show what they should hide, or hide what they should show.
        step: an iteration with the same root, whose record says what the draft gave a token.
    """

    tree: DraftTree
    flipped: frozenset[tuple[int, int]] = frozenset()
    step: Step | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tree, DraftTree):
            raise SettingsError(f"{named(self.tree)} is no tree: give a DraftTree, such as DraftTree.root(token).")
        object.__setattr__(self, "tree", replace(self.tree, candidate_sampling=CandidateSampling.DETERMINISTIC))

    @classmethod
    def of(cls, step: Step) -> TreeEdit:
        """The tree of an iteration, with the mask that the target was given.

        Raises:
            NotRecordedError: its root was drafted.
            SettingsError: it is no step.
        """
        if not isinstance(step, Step):
            raise SettingsError(f"{named(step)} is no iteration: give a step, such as session.steps[0].")
        if step.root_choice is not None:
            raise NotRecordedError(
                f"The root of iteration {step.index + 1} was drafted, and a tree built by hand grows from the newest "
                "token of the text: start from the root alone."
            )
        wrong = np.argwhere(step.mask != step.tree.ancestor_mask())
        return cls(step.tree, frozenset((row, column) for row, column in wrong.tolist()), step)

    @property
    def mask(self) -> Bools | None:
        """`[n, n]` bool, which nodes each row sees; None where it is the one that the tree implies."""
        if not self.flipped:
            return None
        mask = self.tree.ancestor_mask()
        rows, columns = zip(*self.flipped, strict=True)
        mask[list(rows), list(columns)] ^= True
        return mask

    def add(self, parent: int, token: int) -> TreeEdit:
        """With one more child of a node, behind its others.

        Its log-probability is the draft's where the step recorded it, else `NEUTRAL`: no draft is asked.

        Raises:
            SettingsError: no such parent, no such token, a child that is there already, or too many nodes.
        """
        tree = self.tree
        self._check(parent)
        _check_token(token)
        for child in tree.children[parent]:
            if tree.token[child] == token:
                raise SettingsError(f"Node {parent} has a child of token {token} already, node {child}: add another.")
        if len(tree) >= MOST:
            raise SettingsError(f"The tree has {MOST} nodes, the most that one pass takes: prune some first.")
        columns = tree.token.tolist(), tree.parent.tolist(), tree.log_prob.tolist(), tree.source
        new = token, parent, self._log_prob(parent, token), HAND
        grown, order = DraftTree.grown(*([*column, value] for column, value in zip(columns, new, strict=True)))
        return self._renumbered(grown, order)

    def prune(self, node: int) -> TreeEdit:
        """Without a node and all that hangs below it.

        Raises:
            SettingsError: no such node, or the root.
        """
        self._check(node)
        if node == 0:
            raise SettingsError("Node 0 is the root, the newest token of the text: force another one instead.")
        keep = ~self.tree.ancestor_mask()[:, node]
        return self._renumbered(self.tree.select(keep.tolist()), np.flatnonzero(keep).tolist())

    def show(self, row: int, column: int, visible: bool | None = None) -> TreeEdit:
        """With a cell of the mask shown (True), hidden (False) or flipped (None).

        Raises:
            SettingsError: no such row or column.
        """
        self._check(row)
        self._check(column)
        seen = bool(self.tree.ancestor_mask()[row, column]) != ((row, column) in self.flipped)
        return self if visible is seen else replace(self, flipped=self.flipped ^ {(row, column)})

    def force(self, token: int) -> TreeEdit:
        """Another root, alone: the text goes on from it, and what hung below the former was drafted after that one.

        Raises:
            SettingsError: no such token.
        """
        _check_token(token)
        return TreeEdit(DraftTree.root(token, HAND))

    def recorded(self, node: int) -> int | None:
        """The node of `step` that has the same path; None where there is none."""
        root, *path = self.tree.token[list(self.tree.path(node))].tolist()
        if self.step is None or self.step.tree.token[0] != root:
            return None
        nodes = (0, *self.step.tree.follow(path))
        return nodes[-1] if len(nodes) == len(path) + 1 else None

    def topk(self) -> dict[int, TopK]:
        """What the step recorded of the draft after each node: tokens and their log-probabilities, best first."""
        found = {}
        for node in range(len(self.tree) if self.step is not None else 0):
            place = self.recorded(node)
            if self.step is not None and place is not None and (top := self.step.nodes[place].draft_top):
                found[node] = tuple([(token, log(prob)) for token, prob in top if prob > 0])
        return found

    def _log_prob(self, parent: int, token: int) -> float:
        """Of a token after a node, by the step."""
        place = self.recorded(parent)
        if self.step is None or place is None:
            return NEUTRAL
        tree = self.step.tree
        exact = {int(tree.token[child]): float(tree.log_prob[child]) for child in tree.children[place]}
        known = {one: log(prob) for one, prob in self.step.nodes[place].draft_top if prob > 0} | exact
        return known.get(token, NEUTRAL)

    def _renumbered(self, tree: DraftTree, order: Sequence[int]) -> TreeEdit:
        """`order`: the former number of each node."""
        place = {former: node for node, former in enumerate(order)}
        kept = ((place.get(row), place.get(column)) for row, column in self.flipped)
        flipped = frozenset((row, column) for row, column in kept if row is not None and column is not None)
        return replace(self, tree=tree, flipped=flipped)

    def _check(self, node: int) -> None:
        if not (_is_whole(node) and 0 <= node < len(self.tree)):
            raise SettingsError(f"There is no node {node!r}: this tree has {len(self.tree)}, numbered from 0.")


def _check_token(token: int) -> None:
    if not (_is_whole(token) and 0 <= token < 1 << 31):  # that it is the target's is for `Session.verify` to see
        raise SettingsError(f"{token!r} is no token: give an id of the vocabulary, a whole number from 0 on.")


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def given_draft(given: DraftTree | TreeEdit, mask: Any) -> Draft:
    """A tree that was handed over, as a draft.

    Args:
        mask: `[n, n]`, which nodes each row sees; None: as edited, else its ancestors.

    Raises:
        SettingsError: it is no tree, too large, or does not fit the mask; `checked_draft` sees to the rest.
    """
    edit = given if isinstance(given, TreeEdit) else TreeEdit(given)
    tree, mask = edit.tree, edit.mask if mask is None else mask
    if len(tree) > MOST:
        raise SettingsError(f"The tree has {len(tree)} nodes, and one pass takes {MOST}: prune it.")
    return Draft(tree, topk=edit.topk(), mask=None if mask is None else _mask(mask, tree))


def _mask(given: Any, tree: DraftTree) -> Bools | None:
    """The mask as it was handed over; None where it is the one that the tree implies."""
    mask, n = np.asarray(given), len(tree)
    if mask.shape != (n, n) or not (mask.dtype == np.bool_ or np.isin(mask, (0, 1)).all()):
        raise SettingsError(
            f"The mask of a tree of {n} nodes is {n} × {n} truths, which nodes each row sees, and this one is "
            f"{list(mask.shape)} of {mask.dtype}: tree.ancestor_mask() is one."
        )
    shown: Bools = mask.astype(np.bool_)
    return None if (shown == tree.ancestor_mask()).all() else shown


def forced_root(
    steps: tuple[Step, ...], former: int, token: int, texts: Mapping[int, str]
) -> tuple[tuple[Step, ...], str]:
    """What comes before a root that was forced: the steps, whose last now ends in `token`; and a note on the next one.

    No step is changed where the prefill gave the `former` token.
    """
    words = f"{texts[token]!r} was put in by hand for {texts[former]!r}"
    note = f"The root {words}: from here on the text is not the target's own."
    if not steps:
        return steps, note
    last = steps[-1]
    accepted = last.accepted[: len(last.committed) - 1]
    nodes = list(last.nodes)
    for node in last.accepted[len(accepted) :]:
        nodes[node] = replace(nodes[node], verdict="rejected", reason="another token was put in by hand for it")
    changed = replace(
        last,
        nodes=tuple(nodes),
        accepted=accepted,
        committed=(*last.committed[:-1], token),
        bonus=token,
        counts=replace(last.counts, accepted=len(accepted)),
        texts={**last.texts, **texts},
        note=f"{last.note} Its last token {words}.".strip(),
    )
    return (*steps[:-1], changed), note
