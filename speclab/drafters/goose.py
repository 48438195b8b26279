"""GOOSE: a deep spine of copied tokens with wide branches of transitions, drafted without a model.

Goose, "Anisotropic Speculation Trees for Training-Free Speculative Decoding", sections 4.1 to 4.3, appendices B and C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from speclab.drafters.acceptance_rates import Statistic
from speclab.drafters.base import Budget, Drafter, Strategy, check_order
from speclab.drafters.measures import Nodes
from speclab.drafters.ngrams import LongestNgram, ShortestNgram, Which
from speclab.drafters.table_drafter import BigramEntries, Carry, Megabytes, Successors

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class Goose(Strategy):
    """A spine copied from the text so far, branches from a table of transitions, in a shape that follows acceptance."""

    node_budget: Nodes = Field(60, ge=1, le=512, title="N", description="most nodes a tree may have, root included")
    budget: Budget = "fixed"
    reserved_share: float = Field(
        0.0, ge=0, le=1, description="share of the node budget that only confidence in a match releases (authors' code)"
    )
    branch_depth: int = Field(6, ge=1, le=64, title="D", description="longest branch, counted as depth_from says")
    depth_from: Literal["branch", "root"] = Field(
        "branch",
        description="D counts from where a branch leaves the spine; or, as in the authors' code, from the root, and a "
        "branch that leaves deeper has one token",
    )
    max_spine: int = Field(20, ge=1, le=256, description="most tokens that one match copies")
    extended_spine: int = Field(
        0,
        ge=0,
        le=512,
        description="where confidence is above 0.6, the chain is matched again at its own end up to so many tokens "
        "(authors' code: 100); 0 is off",
    )
    filling: Literal["best", "breadth"] = Field(
        "best",
        description="branches grow by the probability of their path; or level by level, each as wide as its score "
        "allows (authors' code)",
    )
    successors: Successors = 10
    scores: Literal["vocabulary", "kept"] = Field(
        "kept",
        description="a successor's score is its share among the successors kept (authors' code; the paper's text does "
        "not say); or its probability",
    )
    score_threshold: float = Field(0.01, ge=0, lt=1, description="successors with a lower score are not drafted")
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
    statistic: Statistic = Field(
        "tried",
        description="running acceptance of copies: accepted over those the verification came to; or the mean accepted "
        "share of the spine (authors' code)",
    )
    smoothing: float = Field(0.3, gt=0, le=1, description="weight of the newest iteration in the running acceptance")
    longest_ngram: LongestNgram = 5
    shortest_ngram: ShortestNgram = 3
    pick: Which = "last"
    consensus: Literal["lengths", "occurrences"] = Field(
        "lengths",
        description="matches agree where two n-gram lengths give the same next token; or where all occurrences of the "
        "longest match do, two at least (authors' code)",
    )
    bypass: Literal["either", "both", "consensus", "length", "off", "gradual"] = Field(
        "either",
        description="a chain instead of a tree: where matches agree, where the match is long, or never; gradual: "
        "confidence moves nodes from the branches to the spine (authors' code)",
    )
    bypass_length: int = Field(8, ge=1, le=256, description="tokens from which a match is long")
    bypass_acceptance: float = Field(
        0.8, ge=0, le=1, description="a bypass needs copies to be accepted at least so often (ours); 0 as in the paper"
    )
    spine: Literal["context", "transitions", "off"] = Field(
        "context", description="what the spine is made of; the others are ablations: its shape kept, and none at all"
    )
    spine_branches: bool = Field(True, description="branches along the spine, not only at the root")
    schedule: Literal["harmonic", "optimal", "equal"] = Field(
        "harmonic",
        description="branches along the spine: as 1, 1/2, 1/3, … (paper), the straight line of theory, or as many "
        "everywhere",
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
            "authors' code": cls.of_authors_code(),
            "probabilities as scores": cls(scores="vocabulary"),
            "ablation: no spine branches": cls(spine_branches=False),
            "ablation: no bigrams": cls(bigram_entries=0),
            "ablation: no bypass": cls(bypass="off"),
            "ablation: no spine": cls(spine="off"),
            "ablation: spine of transitions": cls(spine="transitions"),
            "straight line of branches": cls(schedule="optimal"),
            "carried over between prompts": cls(carry="carried"),
            "as many nodes as pay (ours)": cls(budget="auto"),
        }

    @classmethod
    def of_authors_code(cls) -> Goose:
        """The settings that come nearest to the published code; docs/strategies.md says what is left."""
        return cls(
            node_budget=100,
            reserved_share=0.4,
            depth_from="root",
            extended_spine=100,
            filling="breadth",
            scores="kept",
            low_acceptance=0.2,
            high_acceptance=0.4,
            statistic="spine",
            pick="first",
            consensus="occurrences",
            bypass="gradual",
        )

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
