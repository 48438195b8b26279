"""DynaTree: a draft tree that widens where the draft is unsure and deepens where it is confident.

Chen, Liu and Li, "DynaTree: Confidence-Aware Adaptive Tree Speculative Decoding". The tree is grown
by `speclab.drafters.grow` (Algorithm 1, lines 9 to 31); the history of acceptance adjusts its
thresholds (line 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from speclab.drafters.base import (
    Confidence,
    Depth,
    Drafter,
    Outcome,
    PathProbability,
    Root,
    Strategy,
)
from speclab.drafters.cost import NodeBudget
from speclab.drafters.draft_pass import Candidates, Head
from speclab.drafters.grow import GrownDrafter, GrownStrategy, Shape
from speclab.trace.records import Adaptation, Value

if TYPE_CHECKING:
    from speclab.pair import ModelPair

Window = tuple[float, ...]

# The history, from the published code: iterations it averages and needs at least, and the band it
# aims at.
WINDOW = 10
FEWEST = 5
TARGET = 0.7
DEAD_BAND = 0.1


class DynaTree(GrownStrategy):
    """Adaptive draft trees: breadth by confidence, depth by path probability, pruning, and history.

    The paper gives D_0 = 5, D_max = 8, B from 1 to 3, τ_h = 0.9 and τ_ℓ = 0.4; the published code
    adds ρ_stop = 0.1, ρ_deep = 0.5, τ = 0.05 and N_max = 256. The defaults here were chosen by replay
    on both shipped pairs. Their drafts are right more often than they are confident, so unlikely
    paths live longer, no leaf is pruned, and D_0 = 3: their paths rarely reach depth 5. The node
    budget is measured on this machine. History after each iteration is "bolder" only if more than
    80 % of all drafted nodes are accepted, which a tree that branches hardly reaches.
    """

    group: ClassVar[str] = "papers"

    high_confidence: Confidence = Field(
        0.9, ge=0, le=1, title="τ_h", description="from here up: min_branches"
    )
    low_confidence: Confidence = Field(
        0.4,
        ge=0,
        le=1,
        title="τ_ℓ",
        description="below this: max_branches; between the two: their mean",
    )
    min_branches: int = Field(
        1, ge=1, le=16, title="B_min", description="children if the draft is confident"
    )
    max_branches: int = Field(
        3, ge=1, le=16, title="B_max", description="children if the draft is unsure"
    )
    base_depth: Depth = Field(
        3,
        ge=1,
        le=64,
        title="D_0",
        description="from here on, only likely paths grow (paper: 5)",
    )
    max_depth: Depth = Field(8, ge=1, le=64, title="D_max", description="maximum depth of a path")
    stop_probability: PathProbability = Field(
        0.01,
        ge=0,
        lt=1,
        title="ρ_stop",
        description="less likely paths are not expanded (published code: 0.1)",
    )
    deep_probability: PathProbability = Field(
        0.1,
        ge=0,
        le=1,
        title="ρ_deep",
        description="less likely paths end at base_depth (published code: 0.5)",
    )
    prune_probability: PathProbability = Field(
        0,
        ge=0,
        lt=1,
        title="τ",
        description="less likely leaves are not verified (published code: 0.05)",
    )
    node_budget: NodeBudget = Field("auto", title="N_max")
    history: Literal["iteration", "prompt", "off"] = Field(
        "off",
        description="when recent acceptance adjusts the thresholds: after each iteration, by the accepted share of "
        "drafted tokens (section 3.3); after each prompt, by committed tokens over D_0 + 2 (published code); never",
    )
    root: Root = Field(
        "verified",
        description="node 0: the target's newest token (speclab default), or drafted as in the paper",
    )
    commit: Literal["gather", "rebuild"] = Field(
        "gather",
        description="keep accepted cache rows (speclab default), or roll back and rerun them (paper)",
    )
    candidates: Candidates = "top"
    head: Head = None
    ascending = (
        ("low_confidence", "high_confidence"),
        ("min_branches", "max_branches"),
        ("base_depth", "max_depth"),
        ("stop_probability", "deep_probability"),
    )

    @model_validator(mode="after")
    def _sampled_root(self) -> Self:
        if self.candidates != "top" and self.root == "drafted":
            raise ValueError(
                f"DynaTree: candidates={self.candidates!r} needs root='verified', since a drafted "
                "root is the draft's "
                "most probable token, not a sample; set root='verified' or candidates='top'"
            )
        return self

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper": cls.paper(),
            "authors' code": cls.authors_code(),
            "paper's thresholds, one target pass per iteration": cls.paper().changed(
                root="verified", commit="gather"
            ),
        }

    @classmethod
    def paper(cls) -> Self:
        """Algorithm 1, with the thresholds of its published code where the paper gives none."""
        return cls(
            base_depth=5,
            stop_probability=0.1,
            deep_probability=0.5,
            prune_probability=0.05,
            node_budget=256,
            history="iteration",
            root="drafted",
            commit="rebuild",
        )

    @classmethod
    def authors_code(cls) -> Self:
        """The published code, with D_0 = 5 and D_max = 8: it tests a child's depth, so both are one
        less here.

        It removes no leaf, and history moves the thresholds between prompts.
        """
        return cls.paper().changed(base_depth=4, max_depth=7, prune_probability=0, history="prompt")

    @property
    def mid_branches(self) -> int:
        """B_mid, between `min_branches` and `max_branches`."""
        return (self.min_branches + self.max_branches) // 2  # 2 of 1 and 3, as in the paper

    def shape(self) -> Shape:
        return Shape(
            max_depth=self.max_depth,
            node_budget=self.number_of_nodes,
            branches=(self.min_branches, self.mid_branches, self.max_branches),
            high_confidence=self.high_confidence,
            low_confidence=self.low_confidence,
            base_depth=self.base_depth,
            stop_probability=self.stop_probability,
            deep_probability=self.deep_probability,
            prune_probability=self.prune_probability,
        )

    def drafter(self, pair: ModelPair) -> Drafter:
        return DynaTreeDrafter(self, pair)


class DynaTreeDrafter(GrownDrafter):
    """Historical adjustment (section 3.3): after every iteration, or between prompts.

    With history="prompt" the pair keeps the current settings and the window for later prompts.
    """

    settings: DynaTree
    state = ("_window", "_prompt")

    def __init__(self, settings: DynaTree, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.head)
        self.root = settings.root
        self.rebuild = settings.commit == "rebuild"
        self._given = self.settings  # those of the user; self.settings moves with the history
        self._shared = pair.shared_state
        self._earlier: tuple[DynaTree, Window] | None = self._shared.get(self._given)
        self._window: Window = ()
        self._prompt = (0, 0)
        """Tokens committed in this prompt, and the number that would be full acceptance."""
        if settings.history == "prompt":
            # what the prompts before this one left
            self.settings, self._window = self._earlier or (self.settings, ())
            self._adjust()

    def learn(self, outcome: Outcome) -> Adaptation:
        # a verified root is no candidate; a drafted one is (Algorithm 1, line 10)
        drafted = len(outcome.tree)
        levels = self._given.base_depth + 3
        if self.root == "verified":
            drafted -= 1
            levels -= 1
        if drafted == 0:
            return Adaptation("nothing drafted")
        if self.settings.history == "off":
            return Adaptation("off")
        if self.settings.history == "iteration":  # a_r of section 3.3: accepted over drafted tokens
            # at most 1: nodes beside the accepted path count as drafted, too
            self._window = remember(self._window, len(outcome.accepted) / drafted)
            return self._adjust()
        # The published code's a_r: committed tokens over the user's D_0 + 2, which deep paths can
        # exceed.
        committed, most = self._prompt
        self._prompt = (committed + len(outcome.committed), most + levels)
        self._carry()
        return Adaptation("next prompt")

    def restore(self, state: object) -> None:
        super().restore(state)
        self._carry()

    def _carry(self) -> None:
        """Stores the settings and the window, with this prompt's a_r, for later prompts."""
        committed, most = self._prompt
        if most:
            self._shared[self._given] = self.settings, remember(self._window, committed / most)
        elif self._earlier is not None:
            self._shared[self._given] = self._earlier
        else:
            self._shared.pop(self._given, None)

    def _adjust(self) -> Adaptation:
        kind, values, changes = adjustment(self.settings, self._window)
        before = {name: getattr(self.settings, name) for name in changes}
        # line 7: the next tree grows by these
        self.settings = self.settings.model_copy(update=changes)
        return Adaptation(kind, values, before, changes)


def remember(window: Window, share: float) -> Window:
    return (*window, share)[-WINDOW:]


def adjustment(now: DynaTree, window: Window) -> tuple[str, dict[str, Value], dict[str, Value]]:
    """Why settings change, with the numbers that decide it, and the settings to change.

    Section 3.3 defers the schedule; this is the published code's. Algorithm 1 (line 7) moves τ_ℓ,
    τ_h and D_0; the code moves ρ_deep instead of τ_ℓ. Above the band the next tree is bolder
    (deeper, sooner narrow), below it more careful; a bound never moves a threshold the other way.
    """
    values: dict[str, Value] = {"iterations": len(window), "needed": FEWEST}
    if len(window) < FEWEST:
        return "waiting", values, {}  # too short a history says nothing
    mean = sum(window) / len(window)  # ā over the last 10 iterations
    low = TARGET - DEAD_BAND
    high = TARGET + DEAD_BAND
    values |= {"mean": mean, "low": low, "high": high}
    if low <= mean <= high:
        return "within", values, {}
    depth = now.base_depth
    sure = now.high_confidence
    deep = now.deep_probability
    if mean > high:
        # right more often than aimed at: go deeper, and one child from a lower confidence on
        kind = "bolder"
        depth = max(depth, min(depth + 1, now.max_depth - 1))
        sure = min(sure, max(round(sure - 0.05, 4), 0.5, now.low_confidence))
        deep = min(deep, max(round(deep - 0.05, 4), 0.3, now.stop_probability))
    else:
        # too many drafted tokens were rejected: shallower, and more children of a confident node
        kind = "more careful"
        depth = min(depth, max(depth - 1, 2))
        sure = max(sure, min(round(sure + 0.05, 4), 0.95))
        deep = max(deep, min(round(deep + 0.05, 4), 0.8))
    wanted = {"base_depth": depth, "high_confidence": sure, "deep_probability": deep}
    changes: dict[str, Value] = {}
    for name, value in wanted.items():
        if value != getattr(now, name):
            changes[name] = value
    if not changes:
        kind += ", at bounds"
    return kind, values, changes
