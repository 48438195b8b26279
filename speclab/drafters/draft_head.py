"""EAGLE-2's dynamic tree from a draft head that reads the target's hidden states.

EAGLE: Li et al. 2024, arXiv 2401.15077. The tree: EAGLE-2, Li et al. 2024, arXiv 2406.16858,
section 4: it grows at its most probable nodes and is then cut to the most probable of all
candidates. A candidate's value is the probability of its path, which falls with depth, so the best
candidates always form a tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from speclab.drafters.base import Depth, Drafter, Strategy, lacks_head
from speclab.drafters.cost import NodeBudget
from speclab.drafters.grow import GrownDrafter, GrownStrategy, Shape

if TYPE_CHECKING:
    from speclab.loading.presets import Offer
    from speclab.pair import ModelPair


class DraftHead(GrownStrategy):
    """EAGLE-2's dynamic tree from one draft head, or from the draft model if the pair has no heads."""

    group: ClassVar[str] = "baselines"

    node_budget: NodeBudget = "auto"
    depth: Depth = Field(7, ge=1, le=32, description="levels below the root, one pass each")
    children: int = Field(
        10, ge=1, le=64, title="k", description="nodes expanded per level, children of each"
    )
    head: int = Field(0, ge=0, le=15, description="which of the pair's heads, counted from 0")

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "EAGLE-2 (60 nodes, depth 7, 10 per level)": cls(node_budget=60),
            "EAGLE-2's code (710 candidates: its depth counts from the second level)": cls(
                node_budget=60, depth=8
            ),
        }

    def missing(self, offer: Offer) -> str:
        """As of any strategy; a draft model takes the place of the first head if there are none."""
        return lacks_head(self, offer, self.head or None)

    def shape(self) -> Shape:
        return Shape(
            max_depth=self.depth,
            node_budget=self.number_of_nodes,
            # k children of k nodes a level, whatever the confidence (section 4.1, expansion) …
            branches=(self.children,) * 3,
            best=self.children,  # … then the best of all candidates (section 4.2, reranking)
            names={"max_depth": "depth", "best": "children"},
        )

    def drafter(self, pair: ModelPair) -> Drafter:
        head: int | None = self.head
        if head == 0 and not pair.heads:  # the draft model takes its place
            head = None
        return GrownDrafter(self, pair, head)
