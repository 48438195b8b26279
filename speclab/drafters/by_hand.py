"""Trees edited by hand, verified like any other.

`TreeEdit` is the tree while it is edited; `Session.verify` verifies it. With the strategy `ByHand`,
a step without a tree verifies only the root, as plain decoding does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from speclab.drafters.base import Draft, Drafter, Strategy
from speclab.drafters.chain import RootAlone
from speclab.errors import SettingsError
from speclab.trace.edit import MOST, TreeEdit
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.pair import ModelPair


class ByHand(Strategy):
    """You build the tree of each iteration; without a tree only the root is verified."""

    by_hand: ClassVar[bool] = True

    def drafter(self, pair: ModelPair) -> Drafter:
        return RootAlone(self)


def draft_of(given: DraftTree | TreeEdit) -> Draft:
    """A tree built by hand, as a draft.

    Raises:
        SettingsError: it is not a tree, or is too large.
    """
    edit = given if isinstance(given, TreeEdit) else TreeEdit(given)
    n = len(edit.tree)
    if n > MOST:
        raise SettingsError(f"The tree has {n} nodes, but one pass takes at most {MOST}: prune it.")
    return Draft(edit.tree, topk=edit.topk())
