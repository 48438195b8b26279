"""Dual-Draft Routing: two drafters, two trees from one root, and the better-scoring tree verified.

"Dual-Draft Routing: Two Trees Enter, One Tree Gets Verified" (2026): confidence section 4, routing rule section 5,
interchangeability section 7, both trees verified as one section 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, field_serializer, field_validator

from speclab.drafters import from_str, to_str
from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy
from speclab.drafters.cost import NodeBudget, with_node_budget
from speclab.drafters.draft_head import DraftHead
from speclab.drafters.dynatree import DynaTree
from speclab.drafters.prompt_lookup import PromptLookup
from speclab.drafters.union_tree import Places, merged_tops, stacked, union
from speclab.errors import NoDraftError, SettingsError
from speclab.trace.records import Adaptation, Event, Lookup, Proposal, Value
from speclab.tree import CandidateSampling, DraftTree

if TYPE_CHECKING:
    from speclab.models.answer import Answer
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner

PARTS = ("first", "second")
FADING = 0.8
"""With confidence="recent": what an iteration counts for in the next one. Not in the paper, like the next two."""
FIRST = 1.0
"""Tokens that a part is taken to have got right before it has proposed."""
LEAST = 0.25
"""Added to these tokens, so that a part that got none right may be chosen again."""


class DualDraft(Strategy):
    """Two draft heads, or any two strategies: both draft, and the tree of the larger mean confidence is verified."""

    mode: Literal["route", "merge", "first", "second"] = Field(
        default="route",
        description="verify the tree of the larger mean confidence, or both trees as one; or draft with one alone",
    )
    confidence: Literal["mean", "recent"] = Field(
        default="mean",
        title="μ_h",
        description="trees are compared by their mean confidence, as in the paper; or (not in the paper) by this times "
        "the square of the tokens that each part recently got right",
    )
    node_budget: NodeBudget = "auto"
    depth: int = Field(default=7, ge=1, le=32, description="levels below the root, one pass each")
    children: int = Field(
        default=10, ge=1, le=64, title="k", description="nodes expanded per level, and candidates of each"
    )
    first: Strategy | None = Field(
        default=None,
        description="a strategy in place of the first head, such as DynaTree(base_depth=3); its own budget holds",
    )
    second: Strategy | None = Field(
        default=None,
        description="a strategy in place of the second head, such as PromptLookup; its own node budget holds",
    )

    @field_validator("first", "second", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        return value if value is None or isinstance(value, Strategy) else from_str(str(value))

    @field_serializer("first", "second")
    def _text(self, value: Strategy | None) -> str | None:
        return None if value is None else to_str(value)

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper, routing": cls(),
            "paper, section 10: both trees as one": cls(mode="merge"),
            "routing by recent acceptance (not in the paper)": cls(confidence="recent"),
            "small, for a CPU (not in the paper)": cls(node_budget=12, depth=5, children=4),
            "draft model against copies (not in the paper)": cls(first=DynaTree(), second=PromptLookup()),
        }

    @property
    def needs_draft(self) -> bool:
        return any(part.needs_draft for part in (self.first, self.second) if part is not None)

    @property
    def heads_needed(self) -> int:
        own = enumerate((self.first, self.second), start=1)
        return max(count if part is None else part.heads_needed for count, part in own)

    def describe(self) -> dict[str, float | int | str | bool | None]:
        return super().describe() | {"first": self._text(self.first), "second": self._text(self.second)}

    def part(self, place: int) -> Strategy:
        """What drafts the first tree (0), or the second (1)."""
        return (self.first, self.second)[place] or self._head(place)

    def _head(self, place: int) -> DraftHead:
        return DraftHead(node_budget=self.node_budget, depth=self.depth, children=self.children, head=place)

    def drafter(self, pair: ModelPair) -> Drafter:
        self = with_node_budget(self, pair.target)
        names, (first, second) = zip(*(self._named(pair, place) for place in (0, 1)), strict=True)
        shared = [runner for runner in first.runners if any(runner is other for other in second.runners)]
        if shared:
            raise SettingsError(
                f"DualDraft: both parts draft with {shared[0].name}, whose one cache follows one tree: load a second "
                "draft model with heads=…, or take a strategy without a model for one of them"
            )
        return _DualDrafter(self, PARTS if names[0] == names[1] else names, (first, second))

    def _named(self, pair: ModelPair, place: int) -> tuple[str, Drafter]:
        """A part's drafter, and what pictures and records call it."""
        if (own := (self.first, self.second)[place]) is not None:
            drafter = own.drafter(pair)
            if drafter.root != "verified" or drafter.rebuild:
                raise SettingsError(
                    f"DualDraft: {to_str(own)} does not draft from the target's newest token on caches that live on: "
                    "set its root to 'verified' and its commit to 'gather'"
                )
            return type(own).__name__, drafter
        if place >= len(pair.heads):
            raise NoDraftError(
                f"DualDraft drafts with two heads and {pair.name} has {len(pair.heads) or 'none'}: load a pair with "
                "heads=[…, …], or name two strategies, as in DualDraft(first=DynaTree(), second=PromptLookup())"
            )
        return pair.head_names[place], self._head(place).drafter(pair)


class _DualDrafter(Drafter):
    """Drafts with one of its parts or with both, and has one tree verified: the better one, or the union.

    Every part then goes on from the committed text, whatever it had proposed (interchangeability, section 7).
    """

    settings: DualDraft
    state = ("_recent", "_first", "_second")

    def __init__(self, settings: DualDraft, names: Sequence[str], parts: tuple[Drafter, Drafter]) -> None:
        super().__init__(settings)
        self._names, self._parts = names, parts
        self._first, self._second = parts
        self._active = (PARTS.index(settings.mode),) if settings.mode in PARTS else (0, 1)
        self.runners = tuple(runner for place in self._active for runner in parts[place].runners)
        self._recent: tuple[float, ...] = (FIRST, FIRST)
        """Tokens of each part's trees that the text recently followed."""
        self._compared = False
        """Whether the parts are compared by what they got right."""
        self._drafts: dict[int, Draft] = {}
        self._places: dict[int, Places] = {}
        """Of the parts whose nodes are verified: where these stand in the tree."""

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Answer:
        """One pass for all parts that do not look at it, and one for each that does."""
        drafters = [self._parts[place] for place in self._active]
        looking = [drafter for drafter in drafters if type(drafter).prefill is not Drafter.prefill]
        for drafter in looking[:-1]:
            drafter.prefill(target, prompt_ids)
            target.crop(0)
        return (looking or drafters)[-1].prefill(target, prompt_ids)

    def draft(self, context: Context) -> Draft:
        names, settings = self._names, self.settings
        self._compared = len(self._active) > 1 and settings.confidence == "recent"
        self._drafts = {place: self._parts[place].draft(context) for place in self._active}
        if len(self._active) == 1:
            chosen = self._active[0]
            draft = self._drafts[chosen]
        else:
            self._check_deterministic()
            drafts = [self._drafts[0], self._drafts[1]]
            if settings.mode == "merge":
                draft, places = merge(names, drafts)
                self._places = dict(enumerate(places))
                return draft
            draft, chosen = route(names, drafts, self._recent if self._compared else None)
        self._places = {chosen: tuple(range(len(draft.tree)))}
        return draft

    def _check_deterministic(self) -> None:
        for place, draft in self._drafts.items():
            if draft.tree.candidate_sampling is not CandidateSampling.DETERMINISTIC:
                raise SettingsError(
                    f"DualDraft: {self._names[place]} samples its candidates, and to choose between samples "
                    "changes the output: set its candidates to 'top', or draft with it alone by mode='first' or "
                    "'second'"
                )

    def commit(self, outcome: Outcome) -> None:
        """Brings every part that drafted to the committed text; each keeps of its own tree what was accepted."""
        for place in self._drafts:
            self._parts[place].commit(self._own(place, outcome))

    def learn(self, outcome: Outcome) -> Adaptation:
        """The parts whose nodes were verified learn from these."""
        learned = {self._names[place]: self._parts[place].learn(self._own(place, outcome)) for place in self._places}
        own = dict(zip(PARTS, (self.settings.first, self.settings.second), strict=True))
        now = {name: part.settings for name, part in zip(PARTS, self._parts, strict=True) if own[name] is not None}
        if any(own[name] != settings for name, settings in now.items()):
            self.settings = self.settings.model_copy(update=now)
        adaptation = next(iter(learned.values()))
        if self._compared:
            return self._remember(outcome, adaptation)
        if len(learned) == 1:
            return adaptation
        return Adaptation(
            "; ".join(f"{name}: {one.reason}" for name, one in learned.items()),
            {f"{name}: {key}": value for name, one in learned.items() for key, value in one.before.items()},
            {f"{name}: {key}": value for name, one in learned.items() for key, value in one.after.items()},
        )

    def lookup(self, token: int, previous: int | None = None) -> Lookup | None:
        found = (self._parts[place].lookup(token, previous) for place in self._active)
        return next((lookup for lookup in found if lookup is not None), None)

    def _remember(self, outcome: Outcome, learned: Adaptation) -> Adaptation:
        """What each tree, chosen or not, had in common with the committed text."""
        before = self._recent
        followed = {place: len(draft.tree.follow(outcome.committed)) for place, draft in self._drafts.items()}
        self._recent = tuple(FADING * old + (1 - FADING) * followed.get(place, old) for place, old in enumerate(before))
        right = ", ".join(f"{count} of {self._names[place]}" for place, count in followed.items())
        return Adaptation(
            f"drafted tokens that were right: {right}; {learned.reason}",
            {**learned.before, "recent_first": before[0], "recent_second": before[1]},
            {**learned.after, "recent_first": self._recent[0], "recent_second": self._recent[1]},
        )

    def _own(self, place: int, outcome: Outcome) -> Outcome:
        """The outcome as a part sees it on its own tree: what it shares with the accepted path, its nodes' logits."""
        draft = self._drafts[place]
        if draft.tree is outcome.tree:
            return outcome
        accepted = draft.tree.follow([int(outcome.tree.token[node]) for node in outcome.accepted])
        rows, nodes = len(draft.extra.token), list(self._places.get(place, ()))
        start = sum(len(draft.extra.token) for before, draft in self._drafts.items() if before < place)
        extra = outcome.extra[start : start + rows] if nodes else outcome.extra[:0]
        return Outcome(draft.tree, accepted, outcome.committed, outcome.answer[nodes], extra)


# Which of two trees is verified


def confidence(tree: DraftTree) -> float:
    """Mean of exp(cumulative log-probability) over the nodes but the root, 0…1; 0 where there are none.

    Dual-Draft Routing, sections 4 (c) and 5 (mu).
    """
    return float(np.exp(tree.path_log_prob[1:]).mean()) if len(tree) > 1 else 0.0


def weighed(mean: float, recent: float) -> float:
    """A mean confidence times the square of the tokens that the part recently got right. Not in the paper.

    The mean of one iteration says more of how hard the text is just there than of which part knows it; what was
    recently right says the latter, so it weighs double.
    """
    return mean * (recent + LEAST) ** 2


def route(names: Sequence[str], drafts: Sequence[Draft], recent: Sequence[float] | None) -> tuple[Draft, int]:
    """The draft of the larger mean confidence, of two equal ones the first (section 5); and its place.

    Args:
        drafts: both, from one root.
        recent: tokens that each part recently got right, to weigh the means by; None compares the means.
    """
    means = [confidence(draft.tree) for draft in drafts]
    scores = means if recent is None else [weighed(*pair) for pair in zip(means, recent, strict=True)]
    chosen = int(scores[1] > scores[0])
    values: dict[str, Value] = {
        "route": names[chosen], "mean_first": means[0], "mean_second": means[1],
        "margin": scores[chosen] - scores[1 - chosen], "chosen": PARTS[chosen], "nodes": len(drafts[chosen].tree),
        "nodes_first": len(drafts[0].tree), "nodes_second": len(drafts[1].tree),
    }  # fmt: skip
    sign, what = "=" if scores[0] == scores[1] else ">", "mean confidence"
    if recent is not None:
        what += ", weighed by what was recently right,"
        values |= {"recent_first": recent[0], "recent_second": recent[1]}
    reason = f"{names[chosen]}: {what} {scores[chosen]:.3g} {sign} {scores[1 - chosen]:.3g} of {names[1 - chosen]}"
    proposals = _proposals(names, drafts, scores, {chosen})
    draft = drafts[chosen]
    return replace(draft, events=(Event("route", None, reason, values), *draft.events), proposals=proposals), chosen


def merge(names: Sequence[str], drafts: Sequence[Draft]) -> tuple[Draft, list[Places]]:
    """The union of drafts as one prefix trie (section 10), and for each of them the places of its nodes there.

    A node says which draft it is from by `names`, or "both". Where they agree on a token its log-probability is the
    larger one. The union of trees of n and m nodes has max(n, m) to n + m - 1 nodes.
    """
    tree, places = union([draft.tree for draft in drafts], names)
    nodes = [len(one.tree) - 1 for one in drafts]
    shared = sum(nodes) - (len(tree) - 1)
    means = [confidence(draft.tree) for draft in drafts]
    values: dict[str, Value] = {
        "route": "merge", "mean_first": means[0], "mean_second": means[1], "nodes": len(tree), "shared": shared,
    }  # fmt: skip
    events = [
        Event("route", None, f"both trees as one: {nodes[0]} and {nodes[1]} nodes, {shared} in common", values)
    ]  # fmt: skip
    for draft, name, place in zip(drafts, names, places, strict=True):
        for event in draft.events:
            node = None if event.node is None else place[event.node]
            events.append(replace(event, node=node, reason=f"{name}: {event.reason}"))
    tops = merged_tops(tree, [draft.topk for draft in drafts], places)
    extra = stacked([draft.extra for draft in drafts])
    return Draft(tree, tuple(events), tops, extra, proposals=_proposals(names, drafts, means, {0, 1})), places


def _proposals(
    names: Sequence[str], drafts: Sequence[Draft], scores: Sequence[float], chosen: set[int]
) -> tuple[Proposal, ...]:
    rows = enumerate(zip(names, drafts, scores, strict=True))
    return tuple(
        Proposal(name, draft.tree, confidence(draft.tree), score, place in chosen)
        for place, (name, draft, score) in rows
    )
