"""A drafter that grows its tree from the pair's draft model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy
from speclab.drafters.draft_forward import DraftForward
from speclab.drafters.drawn import drawing
from speclab.drafters.growth import Plan, grow
from speclab.errors import NoDraftError

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class ModelDrafter(Drafter):
    """Grows its trees by `plan`, whose shape may change from one iteration to the next."""

    def __init__(self, settings: Strategy, pair: ModelPair, plan: Plan) -> None:
        super().__init__(settings)
        if pair.draft is None:
            raise NoDraftError(
                f"{type(settings).__name__} drafts with a draft model and {pair.name} has none: "
                "load a pair with draft=…, or take a strategy that needs no draft"
            )
        self.plan, self.root, self.commit = plan, plan.root, plan.commit
        self._runner = pair.draft
        self.runners = (pair.draft,)
        self._passes: DraftForward | None = None

    def draft(self, context: Context) -> Draft:
        draws = drawing(self.plan.candidates, context)
        self._passes = DraftForward(self._runner, self.plan.shape.breadth.many, context.sampling if draws else None)
        return grow(self.plan, self._passes, context)

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        if self._passes is not None:
            self._passes.renumber(new_index)

    def commit_cache(self, outcome: Outcome) -> None:
        """Keeps the draft rows of the committed path; "rebuild" throws the cache away, to be prefilled anew."""
        if self.commit == "rebuild":
            self._runner.crop(0)
        elif self._passes is not None:
            path = outcome.accepted if self.root == "drafted" else (0, *outcome.accepted)
            self._passes.commit_cache(path[: len(outcome.committed)])
