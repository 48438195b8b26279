"""The fixed tree: the same depth and branching everywhere (DynaTree, section 4.3)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from speclab.drafters.base import Depth, PathProbability, Strategy
from speclab.drafters.cost import NodeBudget
from speclab.drafters.draft_pass import Candidates, Head
from speclab.drafters.grow import GrownStrategy, Shape


class FixedTree(GrownStrategy):
    """A tree of fixed depth and branching from the draft model or a head; the paper's static baseline."""

    group: ClassVar[str] = "baselines"

    depth: Depth = Field(5, ge=1, le=32, title="D", description="levels below the root")
    branching: int = Field(2, ge=1, le=16, title="B", description="children of every node")
    prune_probability: PathProbability = Field(
        0.0,
        ge=0,
        lt=1,
        title="τ",
        description="less likely paths are not expanded or (unless sampled) verified",
    )
    node_budget: NodeBudget = 256
    candidates: Candidates = "top"
    head: Head = None

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper, Tables 1 to 3 (D = 8, B = 3, τ = 0.1)": cls(
                depth=8, branching=3, prune_probability=0.1
            ),
            "paper, Tables 4 and 5 (D = 5, B = 2)": cls(),
        }

    def shape(self) -> Shape:
        return Shape(
            max_depth=self.depth,
            node_budget=self.number_of_nodes,
            branches=(self.branching,) * 3,
            prune_probability=self.prune_probability,
            names={"max_depth": "depth"},
        )
