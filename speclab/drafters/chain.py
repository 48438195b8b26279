"""Linear speculative decoding: one chain of drafted tokens (Leviathan et al. 2023; DynaTree, section 4.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from speclab.drafters.base import Budget, Context, Draft, Drafter, Strategy
from speclab.drafters.growth import Plan, Shape, grow
from speclab.drafters.measures import Depth, TokenProbability
from speclab.drafters.model_drafter import ModelDrafter
from speclab.drafters.policies import Breadth, confidence_gate, depth_gate

if TYPE_CHECKING:
    from speclab.drafters.draft_forward import DraftForward
    from speclab.models.pair import ModelPair
from typing import TYPE_CHECKING

from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class LinearSpeculation(Strategy):
    """One chain of tokens from the draft model, its likeliest or its draws."""

    needs_draft: ClassVar[bool] = True

    draft_tokens: Depth = Field(5, ge=1, le=64, title="K", description="tokens drafted an iteration")
    budget: Budget = "fixed"
    confidence_stop: TokenProbability = Field(
        0.0,
        ge=0,
        lt=1,
        description="stop after a token that the draft gave less than this; 0 never stops (ours)",
    )

    candidates: Literal["top", "independent"] = Field(
        "top",
        description="each token: the likeliest (as in DynaTree), or a draw (Leviathan et al.); at temperature 0 the "
        "likeliest",
    )

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper, WikiText-2 (K = 8)": cls(draft_tokens=8),
            "paper, PG-19 (K = 5)": cls(draft_tokens=5),
            "drawn, as Leviathan et al. (γ = 5)": cls(draft_tokens=5, candidates="independent"),
            "long while sure (ours)": cls(draft_tokens=20, confidence_stop=0.4),
            "as long as it pays (ours)": cls(draft_tokens=32, budget="auto"),
        }

    def plan(self) -> Plan:
        """One child a node, to a depth."""
        gates = (depth_gate("draft_tokens", self.draft_tokens), confidence_gate(self.confidence_stop))
        shape = Shape(Breadth.fixed(1), gates, node_budget=self.draft_tokens + 1)
        return Plan(shape, candidates=self.candidates)

    def grow(self, passes: DraftForward, context: Context) -> Draft:
        return grow(self.plan(), passes, context)

    def drafter(self, pair: ModelPair) -> Drafter:
        return ModelDrafter(self, pair, self.plan())


class Autoregressive(Strategy):
    """The target alone, one token a pass: the baseline of every comparison."""

    def drafter(self, pair: ModelPair) -> Drafter:
        return _Nothing(self)


class _Nothing(Drafter):
    def draft(self, context: Context) -> Draft:
        return Draft(DraftTree.root(context.tokens[-1]))
