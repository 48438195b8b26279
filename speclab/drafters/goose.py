"""GOOSE: a deep spine of copied tokens with wide branches of transitions, drafted without a model.

Goose, "Anisotropic Speculation Trees for Training-Free Speculative Decoding", sections 4.1 to 4.3, appendices B and C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from speclab.drafters.base import Budget, Drafter, Strategy
from speclab.drafters.checks import check_order
from speclab.drafters.ngrams import LongestNgram, ShortestNgram, Which
from speclab.drafters.table_drafter import BigramEntries, Carry, Megabytes, Successors
from speclab.measures import Nodes

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class Goose(Strategy):
    """A spine copied from the text so far, branches from a table of transitions, in a shape that follows acceptance."""

    node_budget: Nodes = Field(60, ge=1, le=512, title="N", description="most nodes a tree may have, root included")
    budget: Budget = "fixed"
    branch_depth: int = Field(6, ge=1, le=64, title="D", description="longest branch, from where it leaves the spine")
    max_spine: int = Field(20, ge=1, le=256, description="longest spine, and longest chain of a bypass")
    successors: Successors = 10
    score_threshold: float = Field(0.01, ge=0, lt=1, description="successors less likely than this are not drafted")
    spine_branch_ratio: float = Field(
        0.5,
        ge=0,
        le=1,
        title="β",
        description="share of the branches that goes along the spine; the root gets the rest",
    )
    low_ratio: float = Field(0.15, ge=0, le=1, description="share of the nodes for the spine where copies often fail")
    mid_ratio: float = Field(0.30, ge=0, le=1, description="the same in between")
    high_ratio: float = Field(0.50, ge=0, le=1, description="the same where copies are mostly right")
    low_acceptance: float = Field(
        0.5, ge=0, le=1, description="copies accepted less often than this get low_ratio (bounds of ours)"
    )
    high_acceptance: float = Field(0.8, ge=0, le=1, description="copies accepted at least so often get high_ratio")
    smoothing: float = Field(0.3, gt=0, le=1, description="weight of the newest iteration in the running acceptance")
    longest_ngram: LongestNgram = 5
    shortest_ngram: ShortestNgram = 3
    pick: Which = "last"
    bypass: Literal["either", "both", "consensus", "length", "off"] = Field(
        "either", description="a chain instead of a tree: where n-gram lengths agree, where the match is long, or never"
    )
    bypass_length: int = Field(8, ge=1, le=256, description="tokens from which a match is long")
    bypass_acceptance: float = Field(
        0.8, ge=0, le=1, description="a bypass needs copies to be accepted at least so often (ours); 0 as in the paper"
    )
    spine: Literal["context", "transitions", "off"] = Field(
        "context", description="what the spine is made of; the others are ablations: its shape kept, and none at all"
    )
    spine_branches: bool = Field(True, description="branches along the spine, not only at the root")
    schedule: Literal["harmonic", "optimal"] = Field(
        "harmonic", description="branches along the spine: as 1, 1/2, 1/3, … (paper), or the straight line of theory"
    )
    bigram_entries: BigramEntries = 32768
    carry: Carry = "cold"
    table_megabytes: Megabytes = 64

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_order(self, "shortest_ngram", "longest_ngram")
        check_order(self, "low_ratio", "mid_ratio")
        check_order(self, "mid_ratio", "high_ratio")
        check_order(self, "low_acceptance", "high_acceptance")
        return self

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper, but for the bypass": cls(),
            "the paper's bypass": cls(bypass_acceptance=0),
            "ablation: no spine branches": cls(spine_branches=False),
            "ablation: no bigrams": cls(bigram_entries=0),
            "ablation: no bypass": cls(bypass="off"),
            "ablation: no spine": cls(spine="off"),
            "ablation: spine of transitions": cls(spine="transitions"),
            "straight line of branches": cls(schedule="optimal"),
            "carried over between prompts": cls(carry="carried"),
            "as many nodes as pay (ours)": cls(budget="auto"),
        }

    def baselines(self) -> tuple[Strategy, ...]:
        """Each source alone, with the same lengths and the same budget (section 5.4)."""
        from speclab.drafters.prompt_lookup import PromptLookup
        from speclab.drafters.token_recycling import TokenRecycling

        copies = PromptLookup(
            longest_ngram=self.longest_ngram,
            shortest_ngram=self.shortest_ngram,
            pick=self.pick,
            draft_tokens=self.max_spine,
        )
        return copies, TokenRecycling(node_budget=self.node_budget, table_megabytes=self.table_megabytes)

    def spine_ratio(self, acceptance: float) -> float:
        """Share of the nodes for the spine, ρ, at this running acceptance of copied tokens (section 4.3)."""
        if acceptance < self.low_acceptance:
            return self.low_ratio
        return self.mid_ratio if acceptance < self.high_acceptance else self.high_ratio

    def drafter(self, pair: ModelPair) -> Drafter:
        from speclab.drafters.goose_drafter import GooseDrafter

        return GooseDrafter(self, pair)
