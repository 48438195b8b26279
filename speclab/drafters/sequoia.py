"""Sequoia: the best tree of a budget by dynamic programming, from the acceptance of each rank (Chen et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, field_validator

from speclab.drafters.base import Budget, Draft, Drafter, ReplayContext, Strategy
from speclab.drafters.measures import Depth, Nodes
from speclab.drafters.ranks import RankRates, parsed
from speclab.drafters.table_drafter import Carry, Megabytes
from speclab.theory.sequoia import hardware_choice, sequoia_shape

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

TIMED = 3
"""A cost curve is the fastest of so many passes of each size."""


class SequoiaTree(Strategy):
    """A tree whose shape is the best one for the acceptance of each rank, filled by the draft or by transitions."""

    node_budget: Nodes = Field(60, ge=1, le=512, description="most nodes a tree may have, root included")
    budget: Budget = "fixed"
    depth: Depth = Field(6, ge=1, le=32, description="most levels below the root")
    source: Literal["transitions", "draft"] = Field(
        "transitions", description="where candidates come from: a table of transitions, or the draft model"
    )
    successors: int = Field(8, ge=1, le=64, description="children that a node may have")
    rank_acceptance: str = Field(
        "", description="acceptance by rank, such as 0.6, 0.2, 0.1; empty: measured on the way, from a prior of ours"
    )
    carry: Carry = "cold"
    table_megabytes: Megabytes = 64

    @field_validator("rank_acceptance", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        if isinstance(text, str):
            parsed(text)
        return text

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {"from transitions": cls(), "from transitions, carried over": cls(carry="carried")}

    @classmethod
    def for_hardware(
        cls, pair: ModelPair, rank_acceptance: Sequence[float], budgets: Sequence[int], depths: Sequence[int]
    ) -> SequoiaTree:
        """The budget and depth that decode fastest here, from passes of the target timed on this machine.

        With transitions a level is drafted in no time, so the cost is the target's pass (Sequoia, section 4.3).

        Args:
            pair: its target is timed on a cache of its own, behind 16 tokens.
            rank_acceptance: rates by rank, such as an earlier run measured.
            budgets: numbers of drafted nodes to choose from.
            depths: numbers of levels to choose from.
        """
        seconds = {budget: _pass_seconds(pair, budget + 1) for budget in sorted(set(budgets))}
        choice = hardware_choice(rank_acceptance, 0.0, seconds, budgets, depths)
        return cls(node_budget=choice.node_budget + 1, depth=max(choice.depth, 1), rank_acceptance=rank_acceptance)

    def shape(self, measured: RankRates) -> tuple[int, ...]:
        """Parents of the tree's nodes, breadth-first, -1 for the root; siblings in order of rank."""
        given = parsed(self.rank_acceptance)[: self.successors]
        return _shape(given or measured.rounded, self.node_budget - 1, self.depth)

    @property
    def draft_source(self) -> str | None:
        return None if self.source == "draft" else self.source

    def replay(self, record: ReplayContext) -> Draft:
        from speclab.drafters.sequoia_filling import replay

        return replay(self, record)

    def drafter(self, pair: ModelPair) -> Drafter:
        from speclab.drafters.sequoia_drafters import from_draft, from_transitions

        return from_draft(self, pair) if self.source == "draft" else from_transitions(self, pair)


@lru_cache(maxsize=64)
def _shape(rates: tuple[float, ...], nodes: int, depth: int) -> tuple[int, ...]:
    return sequoia_shape(rates, nodes, depth).parents


def _pass_seconds(pair: ModelPair, rows: int) -> float:
    runner = pair.target.fork()
    runner.extend([0] * 16)
    visible, positions = np.eye(rows, dtype=np.bool_), [16] * rows
    best = float("inf")
    for _ in range(TIMED):
        began = perf_counter()
        float(runner.forward([0] * rows, positions, visible).sum())  # reading the value waits for the device
        best = min(best, perf_counter() - began)
        runner.crop(16)
    return best
