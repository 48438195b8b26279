"""DynaTree: a draft tree that widens where the draft is unsure and deepens where it is sure.

Chen, Liu and Li, "DynaTree: Confidence-Aware Adaptive Tree Speculative Decoding". Breadth, depth and pruning are
policies of `Shape` (section 3.3, Algorithm 1); the history of acceptance moves their thresholds (`History`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from speclab.drafters.base import Budget, Commit, Context, Draft, Drafter, Outcome, Root, Strategy
from speclab.drafters.drawn import CANDIDATES_HELP, Candidates
from speclab.drafters.growth import Drafting, Plan, Shape, grow
from speclab.drafters.history import STATISTIC_HELP, Statistic, Window, adjustment, reached, remember
from speclab.drafters.model_drafter import ModelDrafter
from speclab.drafters.policies import Breadth, deep_gate, depth_gate, probability_gate
from speclab.measures import Confidence, Depth, Nodes, PathProbability
from speclab.trace import Adaptation

if TYPE_CHECKING:
    from speclab.drafters.passes import DraftPasses
    from speclab.models.pair import ModelPair


class DynaTree(Strategy):
    """Adaptive draft trees: breadth by confidence, depth by path probability, pruning, and history."""

    needs_draft: ClassVar[bool] = True

    high_confidence: Confidence = Field(
        0.9, ge=0, le=1, title="τ_h", description="from here on a node gets min_branches"
    )
    low_confidence: Confidence = Field(0.4, ge=0, le=1, title="τ_ℓ", description="below this a node gets max_branches")
    min_branches: int = Field(1, ge=1, le=16, title="B_min", description="children where the draft is sure")
    mid_branches: int = Field(2, ge=1, le=16, title="B_mid", description="children in between")
    max_branches: int = Field(3, ge=1, le=16, title="B_max", description="children where the draft is unsure")
    base_depth: Depth = Field(
        5, ge=1, le=64, title="D_0", description="depth that every path of fair probability may reach"
    )
    max_depth: Depth = Field(8, ge=1, le=64, title="D_max", description="depth that no path exceeds")
    stop_probability: PathProbability = Field(
        0.1, ge=0, lt=1, title="ρ_stop", description="paths less likely than this are not expanded"
    )
    deep_probability: PathProbability = Field(
        0.5, ge=0, le=1, title="ρ_deep", description="paths at least this likely may go beyond base_depth"
    )
    prune_probability: PathProbability = Field(
        0.05, ge=0, lt=1, title="τ", description="leaves less likely than this are not verified, unless they were drawn"
    )
    node_budget: Nodes = Field(
        256, ge=1, le=1024, title="N_max", description="most nodes a tree may have, root included"
    )
    budget: Budget = "fixed"
    history: Literal["iteration", "prompt", "off"] = Field(
        "iteration",
        description="when recent acceptance moves the thresholds: each iteration, each prompt, never",
    )
    history_statistic: Statistic = Field("path", title="a_r", description=STATISTIC_HELP)
    root: Root = Field("verified", description="node 0: the target's newest token (ours), or drafted as in the paper")
    commit: Commit = Field("gather", description="keep accepted cache rows (ours), or roll back and run again (paper)")
    drafting: Drafting = Field("level", description="one draft pass a level (ours), or one a node as in the paper")

    candidates: Candidates = Field("top", description=CANDIDATES_HELP)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        ordered = (
            ("low_confidence", "high_confidence"),
            ("min_branches", "mid_branches"),
            ("mid_branches", "max_branches"),
            ("base_depth", "max_depth"),
            ("stop_probability", "deep_probability"),
        )
        for small, large in ordered:
            if getattr(self, small) > getattr(self, large):
                raise ValueError(
                    f"DynaTree: {small} ({getattr(self, small):g}) is above {large} ({getattr(self, large):g}); "
                    "lower the first or raise the second"
                )
        if self.candidates != "top" and self.root == "drafted":
            raise ValueError(
                f"DynaTree: candidates={self.candidates!r} needs root='verified': a drafted root is the draft's "
                "likeliest token and no draw; set root='verified' or candidates='top'"
            )
        return self

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        fixed = {"min_branches": 2, "mid_branches": 2, "max_branches": 2}
        return {
            "ours": cls(),
            "paper's procedure": cls(root="drafted", commit="rebuild", drafting="node", history_statistic="nodes"),
            "authors' code": cls.authors_code(),
            "authors' code, the PG-19 run of Table 1 (D_max = 9)": cls.authors_code().changed(max_depth=8),
            "ablation: fixed tree (D = 5, B = 2)": cls(
                **fixed, base_depth=5, max_depth=5, stop_probability=0, prune_probability=0, history="off"
            ),
            "ablation: + breadth and depth": cls(history="off"),
            "deep where sure (ours)": cls(max_depth=24, node_budget=48),
            "for a draft that is seldom sure (ours)": cls.for_unsure_draft(),
            "as deep and as wide as pays (ours)": cls.while_it_pays(),
        }

    @classmethod
    def authors_code(cls) -> Self:
        """The published code's settings, D_0 = 5 and D_max = 8: it tests a child's depth, so both are one less here.

        It takes no leaf out, and history moves the thresholds from one prompt to the next.
        """
        return cls(
            base_depth=4, max_depth=7, prune_probability=0, history="prompt", history_statistic="depth",
            root="drafted", commit="rebuild", drafting="node",
        )  # fmt: skip

    @classmethod
    def for_unsure_draft(cls) -> Self:
        """Our settings where the draft is seldom sure, as the mini family's: unlikely paths live longer, no history."""
        return cls(stop_probability=0.01, deep_probability=0.2, prune_probability=0.005, node_budget=24, history="off")

    @classmethod
    def while_it_pays(cls) -> Self:
        """Our settings where measured costs alone end the tree: no threshold stops a path, and the budget is chosen."""
        return cls(
            budget="auto", node_budget=64, high_confidence=0.7, max_branches=2, base_depth=24, max_depth=24,
            stop_probability=0, deep_probability=0, prune_probability=0, history="off",
        )  # fmt: skip

    def plan(self) -> Plan:
        """The policies these settings stand for, gates in the order of Algorithm 1 (lines 14 to 25)."""
        breadth = Breadth(
            self.min_branches, self.mid_branches, self.max_branches, self.low_confidence, self.high_confidence
        )
        gates = (
            probability_gate("prune_probability", self.prune_probability),
            depth_gate("max_depth", self.max_depth),
            probability_gate("stop_probability", self.stop_probability),
            deep_gate(self.base_depth, self.deep_probability),
        )
        shape = Shape(breadth, gates, self.node_budget, self.prune_probability)
        return Plan(shape, self.root, self.commit, self.drafting, self.candidates)

    def grow(self, passes: DraftPasses, context: Context) -> Draft:
        return grow(self.plan(), passes, context)

    def drafter(self, pair: ModelPair) -> Drafter:
        return _DynaTreeDrafter(self, pair)


class _DynaTreeDrafter(ModelDrafter):
    settings: DynaTree

    def __init__(self, settings: DynaTree, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.plan())
        self._window: Window = ()
        self._prompt = (0, 0)
        self._given, self._carried = settings, pair.carried
        if settings.history == "prompt":
            self.settings, self._window = self._carried.get(settings, (settings, ()))
            self._adjust()

    def learn(self, outcome: Outcome) -> Adaptation:
        """Historical adjustment (section 3.3): after every iteration, or from one prompt to the next."""
        drafted = len(outcome.tree) - (self.root == "verified")
        if self.settings.history == "off" or drafted == 0:
            return Adaptation("history is off" if drafted else "nothing was drafted")
        got, most = reached(self._given.history_statistic, outcome, self.root, self._given.base_depth)
        if self.settings.history == "prompt":
            got, most = self._prompt = self._prompt[0] + got, self._prompt[1] + most
            self._carried[self._given] = self.settings, remember(self._window, got / most)
            return Adaptation("history moves the thresholds at the next prompt")
        self._window = remember(self._window, got / most)
        return self._adjust()

    def _adjust(self) -> Adaptation:
        changes, reason = adjustment(self.settings, self._window)
        before = {name: getattr(self.settings, name) for name in changes}
        self.settings = self.settings.model_copy(update=changes)
        self.plan = self.settings.plan()
        return Adaptation(reason, before, changes)

    def snapshot(self) -> object:
        return self.settings, self._window, self._prompt, self._carried.get(self._given)

    def restore(self, state: object) -> None:
        self.settings, self._window, self._prompt, carried = cast(
            "tuple[DynaTree, Window, tuple[int, int], object]", state
        )
        self.plan = self.settings.plan()
        if self._given.history == "prompt":  # what was handed on is taken back as well
            if carried is None:
                self._carried.pop(self._given, None)
            else:
                self._carried[self._given] = carried
