"""DynaTree: a draft tree that widens where the draft is unsure and deepens where it is confident.

Chen, Liu and Li, "DynaTree: Confidence-Aware Adaptive Tree Speculative Decoding". Breadth, depth and pruning are
policies of a `Plan` (section 3.3, Algorithm 1); the history of acceptance moves their thresholds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from speclab.drafters.base import Drafter, Outcome, Root, Strategy, TopK
from speclab.drafters.growth import Drafting, GrownDrafter, GrownStrategy, HeadChoice, Plan
from speclab.drafters.measures import Confidence, Depth, Nodes, PathProbability
from speclab.drafters.policies import (
    CANDIDATES_HELP,
    Breadth,
    Candidates,
    Gate,
    confidence,
    depth_gate,
    probability_gate,
)
from speclab.trace.records import Adaptation, Value

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

Statistic = Literal["path", "depth", "nodes"]
Window = tuple[float, ...]

WINDOW = 10
FEWEST = 5
TARGET = 0.7
DEAD_BAND = 0.1
"""Of the history, from the published code: iterations it averages and needs at least, and the band it aims at."""


class DynaTree(GrownStrategy):
    """Adaptive draft trees: breadth by confidence, depth by path probability, pruning, and history."""

    high_confidence: Confidence = Field(
        default=0.9, ge=0, le=1, title="τ_h", description="from here on a node gets min_branches"
    )
    low_confidence: Confidence = Field(
        default=0.4, ge=0, le=1, title="τ_ℓ", description="below this a node gets max_branches"
    )
    min_branches: int = Field(
        default=1, ge=1, le=16, title="B_min", description="children where the draft is confident"
    )
    mid_branches: int = Field(default=2, ge=1, le=16, title="B_mid", description="children in between")
    max_branches: int = Field(default=3, ge=1, le=16, title="B_max", description="children where the draft is unsure")
    base_depth: Depth = Field(
        default=5, ge=1, le=64, title="D_0", description="depth that every path of fair probability may reach"
    )
    max_depth: Depth = Field(default=8, ge=1, le=64, title="D_max", description="depth that no path exceeds")
    stop_probability: PathProbability = Field(
        default=0.1, ge=0, lt=1, title="ρ_stop", description="paths less likely than this are not expanded"
    )
    deep_probability: PathProbability = Field(
        default=0.5, ge=0, le=1, title="ρ_deep", description="paths at least this likely may go beyond base_depth"
    )
    prune_probability: PathProbability = Field(
        default=0.05, ge=0, lt=1, title="τ",
        description="leaves less likely than this are not verified, unless they were sampled",
    )  # fmt: skip
    node_budget: Nodes = Field(
        default=256, ge=1, le=1024, title="N_max", description="most nodes a tree may have, root included"
    )
    history: Literal["iteration", "prompt", "off"] = Field(
        default="iteration",
        description="when recent acceptance moves the thresholds: each iteration, each prompt, never",
    )
    history_statistic: Statistic = Field(
        default="path",
        title="a_r",
        description="what history looks at: committed tokens over those that the longest drafted path would give (not "
        "in the paper) or that a path of base_depth + 1 would (the published code), or accepted over drafted nodes "
        "(section 3.3)",
    )
    root: Root = Field(
        default="verified",
        description="node 0: the target's newest token (speclab default), or drafted as in the paper",
    )
    commit: Literal["gather", "rebuild"] = Field(
        default="gather", description="keep accepted cache rows (speclab default), or roll back and run again (paper)"
    )
    drafting: Drafting = Field(
        default="level", description="one draft pass per level (speclab default), or one per node as in the paper"
    )
    candidates: Candidates = Field(default="top", description=CANDIDATES_HELP)
    head: HeadChoice = None
    ascending = (
        ("low_confidence", "high_confidence"), ("min_branches", "mid_branches", "max_branches"),
        ("base_depth", "max_depth"), ("stop_probability", "deep_probability"),
    )  # fmt: skip

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.candidates != "top" and self.root == "drafted":
            raise ValueError(
                f"DynaTree: candidates={self.candidates!r} needs root='verified': a drafted root is the draft's "
                "most probable token and no sample; set root='verified' or candidates='top'"
            )
        return self

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        fixed = {"min_branches": 2, "mid_branches": 2, "max_branches": 2}
        return {
            "speclab default": cls(),
            "paper's procedure": cls(root="drafted", commit="rebuild", drafting="node", history_statistic="nodes"),
            "authors' code": cls.authors_code(),
            "authors' code, the PG-19 run of Table 1 (D_max = 9)": cls.authors_code().changed(max_depth=8),
            "ablation: fixed tree (D = 5, B = 2)": cls(
                **fixed, base_depth=5, max_depth=5, stop_probability=0, prune_probability=0, history="off"
            ),
            "ablation: + breadth and depth": cls(history="off"),
            "deep where confident (not in the paper)": cls(max_depth=24, node_budget=48),
            "for a low-confidence draft (not in the paper)": cls.for_unsure_draft(),
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
        """For a low-confidence draft, as the mini family's: unlikely paths live longer. Not in the paper."""
        return cls(stop_probability=0.01, deep_probability=0.2, prune_probability=0.005, node_budget=24, history="off")

    def plan(self) -> Plan:
        """The policies these settings stand for, gates in the order of Algorithm 1 (lines 14 to 25)."""
        unlikely = probability_gate("prune_probability", self.prune_probability)
        deep = Gate(  # from the base depth D_0 on only paths of at least rho_deep go further
            "deep_probability",
            f"at base_depth {self.base_depth} path probability {{path_prob:.3f}} < {self.deep_probability:g}",
            {"base_depth": self.base_depth, "deep_probability": self.deep_probability},
            depth=self.base_depth,
            path_prob=self.deep_probability,
        )
        end = depth_gate("max_depth", self.max_depth)
        gates: tuple[Gate, ...] = (unlikely, end, probability_gate("stop_probability", self.stop_probability), deep)
        breadth = Breadth(self.max_branches, self._branches, self._why)
        return Plan(
            breadth,
            gates,
            self.node_budget,
            unlikely,
            self.root,
            self.commit == "rebuild",
            self.drafting,
            self.candidates,
        )

    def _branches(self, top: TopK) -> int:
        """B(u): few children where the draft is confident, many where it is unsure (section 3.3)."""
        c = confidence(top)
        if c >= self.high_confidence:
            return self.min_branches
        return self.mid_branches if c >= self.low_confidence else self.max_branches

    def _why(self, top: TopK) -> str:
        c, low, high = confidence(top), self.low_confidence, self.high_confidence
        if self.min_branches == self.max_branches:
            return f"confidence {c:.2f}; every node gets {self.min_branches}"
        if c >= high:
            return f"confidence {c:.2f} ≥ high_confidence {high:.2f}"
        return f"confidence {c:.2f} " + (
            f"between {low:.2f} and {high:.2f}" if c >= low else f"< low_confidence {low:.2f}"
        )

    def drafter(self, pair: ModelPair) -> Drafter:
        return _DynaTreeDrafter(self, pair)


class _DynaTreeDrafter(GrownDrafter):
    """Historical adjustment (section 3.3): after every iteration, or from one prompt to the next.

    With history="prompt" the pair holds the settings in force and the window for the prompts that follow.
    """

    settings: DynaTree
    state = ("_window", "_prompt", "_shared")

    def __init__(self, settings: DynaTree, pair: ModelPair) -> None:
        super().__init__(settings, pair)
        self._given, self._carried = settings, pair.shared_state
        self._window: Window = ()
        self._prompt = (0, 0)
        if settings.history == "prompt":
            self.settings, self._window = self._shared or (settings, ())
            self._adjust()

    @property
    def _shared(self) -> tuple[DynaTree, Window] | None:
        return self._carried.get(self._given)

    @_shared.setter
    def _shared(self, value: tuple[DynaTree, Window] | None) -> None:
        if self._given.history == "prompt":
            self._carried.pop(self._given, None)
            if value is not None:
                self._carried[self._given] = value

    def learn(self, outcome: Outcome) -> Adaptation:
        drafted = len(outcome.tree) - (self.root == "verified")
        if self.settings.history == "off" or drafted == 0:
            return Adaptation("history is off" if drafted else "nothing was drafted")
        got, most = reached(self._given.history_statistic, outcome, self.root, self._given.base_depth)
        if self.settings.history == "prompt":
            got, most = self._prompt = self._prompt[0] + got, self._prompt[1] + most
            self._shared = self.settings, remember(self._window, got / most)
            return Adaptation("history moves the thresholds at the next prompt")
        self._window = remember(self._window, got / most)
        return self._adjust()

    def _adjust(self) -> Adaptation:
        changes, reason = adjustment(self.settings, self._window)
        before = {name: getattr(self.settings, name) for name in changes}
        self.settings = self.settings.model_copy(update=changes)
        return Adaptation(reason, before, changes)


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


def adjustment(now: DynaTree, window: Window) -> tuple[dict[str, Value], str]:
    """The thresholds to change, by setting, and why.

    Section 3.3 defers the schedule; this is that of the published code. Algorithm 1 (line 7) moves τ_ℓ, τ_h and D_0;
    the code moves ρ_deep in place of τ_ℓ. Above the band the next tree is bolder (deeper, narrower sooner), below it
    more careful; a bound never moves a threshold the other way.
    """
    if len(window) < FEWEST:
        return {}, f"{len(window)} of the {FEWEST} iterations that history needs"
    mean = sum(window) / len(window)
    low, high = TARGET - DEAD_BAND, TARGET + DEAD_BAND
    measured = f"mean acceptance {mean:.2f} over {len(window)} iterations"
    if low <= mean <= high:
        return {}, f"{measured} lies within {low:.1f} to {high:.1f}"
    depth, sure, deep = now.base_depth, now.high_confidence, now.deep_probability
    if mean > high:
        reason = f"{measured} > {high:.1f}: bolder"
        depth = max(depth, min(depth + 1, now.max_depth - 1))
        sure = min(sure, max(round(sure - 0.05, 4), 0.5, now.low_confidence))
        deep = min(deep, max(round(deep - 0.05, 4), 0.3, now.stop_probability))
    else:
        reason = f"{measured} < {low:.1f}: more careful"
        depth = min(depth, max(depth - 1, 2))
        sure = max(sure, min(round(sure + 0.05, 4), 0.95))
        deep = max(deep, min(round(deep + 0.05, 4), 0.8))
    wanted = {"base_depth": depth, "high_confidence": sure, "deep_probability": deep}
    changes: dict[str, Value] = {name: value for name, value in wanted.items() if value != getattr(now, name)}
    return changes, reason if changes else f"{reason}, but every threshold is at its bound"
