"""Plain decoding: no candidates, one token a pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.drafters.base import Context, Draft, Drafter, Strategy
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class Autoregressive(Strategy):
    """The target alone, one token a pass: the baseline of every comparison."""

    def drafter(self, pair: ModelPair) -> Drafter:
        return _Nothing(self)


class _Nothing(Drafter):
    def draft(self, context: Context) -> Draft:
        return Draft(DraftTree.root(context.tokens[-1]))
