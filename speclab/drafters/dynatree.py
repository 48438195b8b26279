"""DynaTree's historical adjustment: thresholds follow recent acceptance.

Section 3.3 gives a statistic (the share of drafted nodes committed) and its mean over a window, and defers the
schedule. The schedule below is that of the published code, which has another statistic; the setting
`history_statistic` chooses. Algorithm 1 (line 7) moves τ_ℓ, τ_h and D_0; the code moves ρ_deep in place of τ_ℓ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from speclab.trace.records import Value

if TYPE_CHECKING:
    from speclab.drafters.base import Outcome, Root
from typing import TYPE_CHECKING, ClassVar, Self, cast

from pydantic import Field, model_validator

from speclab.drafters.base import Budget, Commit, Context, Draft, Drafter, Outcome, Root, Strategy
from speclab.drafters.drawn import CANDIDATES_HELP, Candidates
from speclab.drafters.growth import Drafting, Plan, Shape, grow
from speclab.drafters.measures import Confidence, Depth, Nodes, PathProbability
from speclab.drafters.model_drafter import ModelDrafter
from speclab.drafters.policies import Breadth, deep_gate, depth_gate, probability_gate
from speclab.trace.records import Adaptation

if TYPE_CHECKING:
    from speclab.drafters.draft_forward import DraftForward
    from speclab.models.pair import ModelPair


Window = tuple[float, ...]

WINDOW = 10
FEWEST = 5
TARGET = 0.7
DEAD_BAND = 0.1


Statistic = Literal["path", "depth", "nodes"]
STATISTIC_HELP = (
    "what history looks at: committed tokens over those that the longest drafted path would give (ours) or that a "
    "path of base_depth + 1 would (the published code), or accepted over drafted nodes (section 3.3)"
)


class Thresholds(Protocol):
    """The settings that history reads and moves."""

    @property
    def base_depth(self) -> int: ...
    @property
    def max_depth(self) -> int: ...
    @property
    def low_confidence(self) -> float: ...
    @property
    def high_confidence(self) -> float: ...
    @property
    def stop_probability(self) -> float: ...
    @property
    def deep_probability(self) -> float: ...


def reached(statistic: Statistic, outcome: Outcome, root: Root, base_depth: int) -> tuple[int, int]:
    """What an iteration reached, and what it is held against; a_r is their ratio.

    A path is held against the longest one of the tree, as if the whole of it had been committed with the token after
    it. The published code holds it against D_0 + 2, its D_0 being `base_depth` + 1 as it was set, wherever history has
    moved it since; deep paths take that ratio above 1. A verified root was committed beforehand and does not count.
    """
    verified = root == "verified"
    if statistic == "nodes":
        return len(outcome.accepted), len(outcome.tree) - verified
    levels = base_depth + 1 if statistic == "depth" else int(outcome.tree.depth[-1])
    return len(outcome.committed), levels + (1 if verified else 2)


def remember(window: Window, share: float) -> Window:
    """The window with one more entry (a_r), the oldest dropped."""
    return (*window, share)[-WINDOW:]


def adjustment(now: Thresholds, window: Window) -> tuple[dict[str, Value], str]:
    """The thresholds to change, by setting, and why.

    Above the band the next tree is bolder (deeper, narrower sooner), below it more careful; a bound never moves a
    threshold the other way.
    """
    if len(window) < FEWEST:
        return {}, f"{len(window)} of the {FEWEST} iterations that history needs"
    mean = sum(window) / len(window)
    low, high = TARGET - DEAD_BAND, TARGET + DEAD_BAND
    told = f"mean acceptance {mean:.2f} over {len(window)} iterations"
    if mean > high:
        wanted = _bolder(now)
        reason = f"{told} > {high:.1f}: bolder"
    elif mean < low:
        wanted = _more_careful(now)
        reason = f"{told} < {low:.1f}: more careful"
    else:
        return {}, f"{told} lies within {low:.1f} to {high:.1f}"
    changes: dict[str, Value] = {name: value for name, value in wanted.items() if value != getattr(now, name)}
    return changes, reason if changes else f"{reason}, but every threshold is at its bound"


def _bolder(now: Thresholds) -> dict[str, float]:
    return {
        "base_depth": max(now.base_depth, min(now.base_depth + 1, now.max_depth - 1)),
        "high_confidence": min(now.high_confidence, max(round(now.high_confidence - 0.05, 4), 0.5, now.low_confidence)),
        "deep_probability": min(
            now.deep_probability, max(round(now.deep_probability - 0.05, 4), 0.3, now.stop_probability)
        ),
    }


def _more_careful(now: Thresholds) -> dict[str, float]:
    return {
        "base_depth": min(now.base_depth, max(now.base_depth - 1, 2)),
        "high_confidence": max(now.high_confidence, min(round(now.high_confidence + 0.05, 4), 0.95)),
        "deep_probability": max(now.deep_probability, min(round(now.deep_probability + 0.05, 4), 0.8)),
    }


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

    def grow(self, passes: DraftForward, context: Context) -> Draft:
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

    def update(self, outcome: Outcome) -> Adaptation:
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
