"""Plain decoding, and linear speculative decoding: one chain of drafted tokens (Leviathan et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from speclab.drafters.base import Context, Depth, Draft, Drafter, Strategy, TokenProbability
from speclab.drafters.draft_pass import Head
from speclab.drafters.grow import GrownStrategy, Shape
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.pair import ModelPair


class Autoregressive(Strategy):
    """The target alone, one token per pass: the baseline of every comparison."""

    group: ClassVar[str] = "baselines"

    def drafter(self, pair: ModelPair) -> Drafter:
        return RootAlone(self)


class RootAlone(Drafter):
    """Drafts nothing: the pass verifies the root alone."""

    def draft(self, context: Context) -> Draft:
        return Draft(DraftTree.root(context.tokens[-1]))


class LinearSpeculation(GrownStrategy):
    """One chain of tokens from the draft model or a head: the most probable ones, or samples."""

    group: ClassVar[str] = "baselines"

    draft_tokens: Depth = Field(
        3, ge=1, le=64, title="K", description="tokens drafted per iteration"
    )
    confidence_stop: TokenProbability = Field(
        0.0,
        ge=0,
        lt=1,
        description="stop after a less likely token; 0 never stops (not in the paper)",
    )
    candidates: Literal["top", "independent", "block"] = Field(
        "top",
        description="the most probable tokens (as in DynaTree), or above temperature 0 samples, accepted one by one "
        "(Leviathan et al.) or as a block (Sun et al.)",
    )
    head: Head = None

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper, WikiText-2 (K = 8)": cls(draft_tokens=8),
            "paper, PG-19 (K = 5)": cls(draft_tokens=5),
            "sampled, as Leviathan et al. (γ = 5)": cls(draft_tokens=5, candidates="independent"),
            "accepted as a block, as Sun et al. (γ = 8)": cls(draft_tokens=8, candidates="block"),
        }

    def shape(self) -> Shape:
        return Shape(
            max_depth=self.draft_tokens,
            # one more than needed, so that `draft_tokens` is the limit
            node_budget=self.draft_tokens + 2,
            branches=(1, 1, 1),
            token_probability=self.confidence_stop,
            names={"max_depth": "draft_tokens", "token_probability": "confidence_stop"},
        )
