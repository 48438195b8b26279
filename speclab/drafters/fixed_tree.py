"""The fixed tree: the same depth and branching everywhere (DynaTree, section 4.3)."""

from __future__ import annotations

from pydantic import Field

from speclab.drafters.base import Strategy
from speclab.drafters.growth import GrownStrategy, HeadChoice, Plan
from speclab.drafters.measures import Depth, Nodes, PathProbability
from speclab.drafters.policies import CANDIDATES_HELP, Candidates, depth_gate, fixed_breadth, probability_gate


class FixedTree(GrownStrategy):
    """A tree of fixed depth and branching from the draft model or a head; the paper's static baseline."""

    depth: Depth = Field(default=5, ge=1, le=32, title="D", description="levels below the root")
    branching: int = Field(default=2, ge=1, le=16, title="B", description="children of every node")
    prune_probability: PathProbability = Field(
        default=0.0, ge=0, lt=1, title="τ",
        description="paths less likely than this are neither expanded nor verified; sampled ones are always verified",
    )  # fmt: skip
    node_budget: Nodes = Field(
        default=256, ge=1, le=1024, title="N_max", description="most nodes a tree may have, root included"
    )
    candidates: Candidates = Field(default="top", description=CANDIDATES_HELP)
    head: HeadChoice = None

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper, Tables 1 to 3 (D = 8, B = 3, τ = 0.1)": cls(depth=8, branching=3, prune_probability=0.1),
            "paper, Tables 4 and 5 (D = 5, B = 2)": cls(depth=5, branching=2, prune_probability=0.0),
        }

    def plan(self) -> Plan:
        """As many children everywhere, to a depth."""
        prune = probability_gate("prune_probability", self.prune_probability)
        gates = (prune, depth_gate("depth", self.depth))
        return Plan(fixed_breadth(self.branching), gates, self.node_budget, prune, candidates=self.candidates)
