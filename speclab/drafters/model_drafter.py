"""A drafter that grows its tree from the pair's draft model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speclab.drafters.base import Commit, Context, Draft, Drafter, Outcome, Root, Strategy
from speclab.drafters.drawn import Candidates, drawing
from speclab.drafters.growth import Drafting, Shape, grow
from speclab.drafters.passes import DraftPasses
from speclab.errors import NoDraftError

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class ModelDrafter(Drafter):
    """Grows a tree of the given `shape`; `shape` may be replaced between iterations."""

    def __init__(
        self,
        settings: Strategy,
        pair: ModelPair,
        shape: Shape,
        *,
        root: Root = "verified",
        commit: Commit = "gather",
        drafting: Drafting = "level",
        candidates: Candidates = "top",
    ) -> None:
        super().__init__(settings)
        if pair.draft is None:
            raise NoDraftError(
                f"{type(settings).__name__} drafts with a draft model and {pair.name} has none: "
                "load a pair with draft=…, or take a strategy that needs no draft"
            )
        self.shape, self.root, self.commit, self.drafting = shape, root, commit, drafting
        self.candidates = candidates
        self._runner = pair.draft
        self._passes: DraftPasses | None = None

    def draft(self, context: Context) -> Draft:
        draws = drawing(self.candidates, context)
        self._passes = DraftPasses(self._runner, self.shape.breadth.many, context.sampling if draws else None)
        return grow(self.shape, self._passes, context, self.root, self.drafting, draws)

    def settle(self, outcome: Outcome) -> None:
        """Keeps the draft rows of the committed path; "rebuild" throws the cache away, to be prefilled anew."""
        if self.commit == "rebuild":
            self._runner.crop(0)
        elif self._passes is not None:
            path = outcome.accepted if self.root == "drafted" else (0, *outcome.accepted)
            self._passes.settle(path[: len(outcome.committed)])
