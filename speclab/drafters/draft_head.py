"""A draft head that proposes from the target's hidden states, and EAGLE-2's dynamic tree of its candidates.

EAGLE: Li et al. 2024, arXiv 2401.15077; the tree: EAGLE-2, Li et al. 2024, arXiv 2406.16858, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field

from speclab.drafters import measures
from speclab.drafters.base import Budget, Context, Draft, Drafter, Outcome, ReplayContext, Strategy
from speclab.drafters.best_first import Limits, best_first, restrict
from speclab.drafters.head_passes import Passes, passes, watch
from speclab.errors import NoDraftError

if TYPE_CHECKING:
    from speclab.models.head_runner import HeadRunner
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner
    from speclab.tree import DraftTree

NodeBudget = Annotated[
    measures.Nodes, Field(ge=1, le=1024, description="nodes kept, root included: the likeliest paths of all")
]
Depth = Annotated[measures.Depth, Field(ge=1, le=32, description="levels below the root, one pass each")]
Children = Annotated[
    int, Field(ge=1, le=64, title="k", description="nodes expanded a level, and candidates that each of them gives")
]


class DraftHead(Strategy):
    """EAGLE-2's dynamic tree from one draft head; from the draft model where the pair has no heads."""

    node_budget: NodeBudget = 60
    budget: Budget = "fixed"
    depth: Depth = 7
    children: Children = 10
    head: int = Field(0, ge=0, le=15, description="which of the pair's heads, counted from 0")

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "EAGLE-2 (60 nodes, depth 7, 10 a level)": cls(),
            "EAGLE-2's code (710 candidates: its depth counts from the second level)": cls(depth=8),
            "small, for a CPU (ours)": cls(node_budget=12, depth=5, children=4),
            "as many nodes as pay (ours)": cls(budget="auto"),
        }

    def grow(self, passes: Passes, context: Context, source: str = "draft") -> Draft:
        return best_first(self.limits, passes, context, source)

    def replay(self, record: ReplayContext) -> Draft:
        return self.grow(record.passes, record.context, record.step.tree.source[-1])

    def restrict(self, tree: DraftTree, was: Self) -> DraftTree | None:
        return restrict(tree, was.limits, self.limits) if was.head == self.head else None

    @property
    def limits(self) -> Limits:
        """The bounds of its trees."""
        return Limits(self.node_budget, self.depth, self.children)

    @property
    def draft_source(self) -> int:
        return self.head

    def drafter(self, pair: ModelPair) -> Drafter:
        return HeadDrafter(self, pair)


class HeadDrafter(Drafter):
    """Drafts with one head of the pair, or with its draft model."""

    settings: DraftHead

    def __init__(self, settings: DraftHead, pair: ModelPair) -> None:
        super().__init__(settings)
        self._runner, self._name = _source(pair, settings.head)
        self._target = pair.target
        self._passes: Passes | None = None
        self.runners = (self._runner,)
        watch(self._runner, self._target)

    def draft(self, context: Context) -> Draft:
        self._passes = passes(self._runner, self._target, self.settings.children)
        return self.settings.grow(self._passes, context, self._name)

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        if self._passes is not None:
            self._passes.renumber(new_index)

    def commit_cache(self, outcome: Outcome) -> None:
        """A draft model keeps the rows of the committed path; a head runs them on the target's hidden states."""
        if self._passes is not None:
            self._passes.commit_cache((0, *outcome.accepted)[: len(outcome.committed)])


def _source(pair: ModelPair, head: int) -> tuple[Runner | HeadRunner, str]:
    if head < len(pair.heads):
        return pair.heads[head], pair.head_names[head]
    if not pair.heads and not head and pair.draft is not None:
        return pair.draft, "draft"
    if pair.heads:
        raise NoDraftError(f"{pair.name} has no draft head {head}: choose one from 0 to {len(pair.heads) - 1}.")
    raise NoDraftError(
        f"DraftHead needs draft head {head} and {pair.name} has none: load a pair with heads=…"
        + (", or with draft=… to grow the tree from a draft model." if not head else ".")
    )
