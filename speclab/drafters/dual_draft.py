"""Dual-Draft Routing: two drafters, two trees from one root, and the better-scoring tree verified.

"Dual-Draft Routing: Two Trees Enter, One Tree Gets Verified" (2026): confidence section 4, routing rule section 5,
interchangeability section 7, both trees verified as one section 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, cast

from pydantic import Field, field_serializer, field_validator, model_validator

from speclab.drafters.base import Budget, Draft, Drafter, ReplayContext, Strategy
from speclab.drafters.draft_head import Children, Depth, DraftHead, NodeBudget
from speclab.drafters.dual_draft_record import replay
from speclab.drafters.dual_drafter import DualDrafter, Part
from speclab.drafters.dynatree import DynaTree
from speclab.drafters.prompt_lookup import PromptLookup
from speclab.drafters.written import read, written
from speclab.errors import NoDraftError, SettingsError

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair


class DualDraft(Strategy):
    """Two draft heads, or any two strategies: both draft, and the tree of the larger mean confidence is verified."""

    mode: Literal["route", "merge", "first", "second"] = Field(
        "route",
        description="verify the tree of the larger mean confidence, or both trees as one; or draft with one alone",
    )
    confidence: Literal["mean", "recent"] = Field(
        "mean",
        title="μ_h",
        description="trees are compared by their mean confidence, as in the paper; or, ours, by this times the "
        "square of the tokens that each part got right lately",
    )
    node_budget: NodeBudget = 60
    budget: Budget = "fixed"
    depth: Depth = 7
    children: Children = 10
    first: Strategy | None = Field(
        None, description="a strategy in place of the first head, such as DynaTree(base_depth=3); its own budget holds"
    )
    second: Strategy | None = Field(
        None, description="a strategy in place of the second head, such as PromptLookup; its own budget holds"
    )

    @field_validator("first", "second", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if value is None or isinstance(value, Strategy):
            return value
        return read(str(value))

    @field_serializer("first", "second")
    def _written(self, value: Strategy | None) -> str | None:
        return None if value is None else written(value)

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        for part in (self.first, self.second):
            if part is not None and part.chooses_budget:
                raise ValueError(
                    "DualDraft: the budget is chosen of the tree that is verified: set budget='auto' of DualDraft, and "
                    f"leave it 'fixed' in {type(part).__name__}"
                )
        return self

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper, routing": cls(),
            "paper, section 10: both trees as one": cls(mode="merge"),
            "routing that remembers (ours)": cls(confidence="recent"),
            "small, for a CPU (ours)": cls(node_budget=12, depth=5, children=4),
            "as many nodes as pay (ours)": cls(budget="auto"),
            "draft model against copies (ours)": cls(first=DynaTree.for_unsure_draft(), second=PromptLookup()),
        }

    def baselines(self) -> tuple[Strategy, ...]:
        return (self.changed(mode="first"), self.changed(mode="second"))

    def describe(self) -> dict[str, float | int | str | bool | None]:
        return super().describe() | {"first": self._written(self.first), "second": self._written(self.second)}

    def replay(self, record: ReplayContext) -> Draft | None:
        return replay(self, cast("Self", record.was), record)

    def part(self, place: int) -> Strategy:
        """What drafts the first tree (0), or the second (1)."""
        own = (self.first, self.second)[place]
        return own or DraftHead(node_budget=self.node_budget, depth=self.depth, children=self.children, head=place)

    def drafter(self, pair: ModelPair) -> Drafter:
        parts = [self._part(pair, place, own) for place, own in enumerate((self.first, self.second))]
        _check_caches(*(part.drafter for part in parts))
        if parts[0].name == parts[1].name:
            parts = [Part(name, part.drafter) for name, part in zip(("first", "second"), parts, strict=True)]
        return DualDrafter(self, parts)

    def _part(self, pair: ModelPair, place: int, own: Strategy | None) -> Part:
        if own is not None:
            drafter = own.drafter(pair)
            if drafter.root != "verified" or drafter.commit != "gather":
                raise SettingsError(
                    f"DualDraft: {written(own)} does not draft from the target's newest token on caches that live on: "
                    "set its root to 'verified' and its commit to 'gather'"
                )
            return Part(type(own).__name__, drafter)
        if place >= len(pair.heads):
            raise NoDraftError(
                f"DualDraft drafts with two heads and {pair.name} has {len(pair.heads) or 'none'}: load a pair with "
                "heads=[…, …], or name two strategies, as in DualDraft(first=DynaTree(), second=PromptLookup())"
            )
        return Part(pair.head_names[place], self.part(place).drafter(pair))


def _check_caches(first: Drafter, second: Drafter) -> None:
    shared = [runner for runner in first.runners if any(runner is other for other in second.runners)]
    if shared:
        raise SettingsError(
            f"DualDraft: both parts draft with {shared[0].name}, whose one cache follows one tree: load a second draft "
            "model with heads=…, or take a strategy without a model for one of them"
        )
