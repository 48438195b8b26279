"""GOOSE: a deep spine of copied tokens with wide branches of transitions, drafted without a model.

Goose, "Anisotropic Speculation Trees for Training-Free Speculative Decoding", sections 4.1 to 4.3, appendices B and C.
An iteration is routed by what the sources have (section 4.3, appendix B.2), then the tree is built (`spine_tree`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy
from speclab.drafters.measures import Nodes
from speclab.drafters.spine_tree import Branches, Limits
from speclab.drafters.training_free import (
    BigramEntries,
    Carry,
    LongestNgram,
    Megabytes,
    ShortestNgram,
    Successors,
    TableDrafter,
    Which,
    draft_of,
    match_event,
)
from speclab.sources.context import ContextIndex, Match
from speclab.sources.trie import LookedUp, Trie
from speclab.theory import optimal_widths
from speclab.trace.records import Adaptation, Event, Value
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair

Statistic = Literal["tried", "spine"]
"""What accepted copies are divided by: those that verification came to, or all of the spine."""

FIRST_SPINE, FIRST_BRANCH = 0.5, 0.1
"""Acceptance of copies and of transitions before any was tried. Not in the paper."""
CERTAIN, UNLIKELY = 0.99, 0.01
"""A copied token's probability is its running acceptance, within these bounds."""
SURE_ENOUGH = 0.6
"""Above this confidence a chain is matched again at its own end (authors' code)."""

Share = Annotated[float, Field(ge=0, le=1)]


class Goose(Strategy):
    """A spine copied from the text so far, branches from a table of transitions, in a shape that follows acceptance."""

    node_budget: Nodes = Field(
        default=60, ge=1, le=512, title="N", description="most nodes a tree may have, root included"
    )
    reserved_share: Share = Field(
        default=0.0, description="share of the node budget that only confidence in a match releases (authors' code)"
    )
    branch_depth: int = Field(
        default=6, ge=1, le=64, title="D", description="longest branch, counted as depth_from says"
    )
    depth_from: Literal["branch", "root"] = Field(
        default="branch",
        description="D counts from where a branch leaves the spine; or, as in the authors' code, from the root, and a "
        "branch that leaves deeper has one token",
    )
    max_spine: int = Field(default=20, ge=1, le=256, description="most tokens that one match copies")
    extended_spine: int = Field(
        default=0, ge=0, le=512,
        description="where confidence is above 0.6, the chain is matched again at its own end up to so many tokens "
        "(authors' code: 100); 0 is off",
    )  # fmt: skip
    filling: Literal["best", "breadth"] = Field(
        default="best",
        description="branches grow by the probability of their path; or level by level, each as wide as its score "
        "allows (authors' code)",
    )
    successors: Successors = 10
    scores: Literal["vocabulary", "kept"] = Field(
        default="kept",
        description="a successor's score is its share among the successors kept (authors' code; the paper's text does "
        "not say); or its probability",
    )
    score_threshold: float = Field(
        default=0.01, ge=0, lt=1, description="successors with a lower score are not drafted"
    )
    spine_branch_ratio: Share = Field(
        default=0.5, title="β", description="share of the branches that goes along the spine; the root gets the rest"
    )
    low_ratio: Share = Field(default=0.15, description="share of the nodes for the spine where copies often fail")
    mid_ratio: Share = Field(default=0.30, description="the same in between")
    high_ratio: Share = Field(default=0.50, description="the same where copies are mostly right")
    low_acceptance: Share = Field(
        default=0.5, description="copies accepted less often than this get low_ratio (bounds not in the paper)"
    )
    high_acceptance: Share = Field(default=0.8, description="copies accepted at least so often get high_ratio")
    statistic: Statistic = Field(
        default="tried",
        description="running acceptance of copies: accepted over those the verification came to; or the mean accepted "
        "share of the spine (authors' code)",
    )
    smoothing: float = Field(
        default=0.3, gt=0, le=1, description="weight of the newest iteration in the running acceptance"
    )
    longest_ngram: LongestNgram = 5
    shortest_ngram: ShortestNgram = 3
    pick: Which = "last"
    consensus: Literal["lengths", "occurrences"] = Field(
        default="lengths",
        description="matches agree where two n-gram lengths give the same next token; or where all occurrences of the "
        "longest match do, two at least (authors' code)",
    )
    bypass: Literal["either", "both", "consensus", "length", "off", "gradual"] = Field(
        default="either",
        description="a chain instead of a tree: where matches agree, where the match is long, or never; gradual: "
        "confidence moves nodes from the branches to the spine (authors' code)",
    )
    bypass_length: int = Field(default=8, ge=1, le=256, description="tokens from which a match is long")
    bypass_acceptance: Share = Field(
        default=0.8,
        description="a bypass needs copies to be accepted at least so often (not in the paper); 0 as in the paper",
    )
    spine: Literal["context", "transitions", "off"] = Field(
        default="context",
        description="what the spine is made of; the others are ablations: its shape kept, and none at all",
    )
    spine_branches: bool = Field(default=True, description="branches along the spine, not only at the root")
    schedule: Literal["harmonic", "optimal", "equal"] = Field(
        default="harmonic",
        description="branches along the spine: as 1, 1/2, 1/3, … (paper), the straight line of theory, or as many "
        "everywhere",
    )
    bigram_entries: BigramEntries = 32768
    carry: Carry = "cold"
    table_megabytes: Megabytes = 64
    ascending = (
        ("shortest_ngram", "longest_ngram"), ("low_ratio", "mid_ratio", "high_ratio"),
        ("low_acceptance", "high_acceptance"),
    )  # fmt: skip

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "paper, but for the bypass": cls(),
            "the paper's bypass": cls(bypass_acceptance=0),
            "authors' code": cls.of_authors_code(),
            "probabilities as scores": cls(scores="vocabulary"),
            "ablation: no spine branches": cls(spine_branches=False),
            "ablation: no bigrams": cls(bigram_entries=0),
            "ablation: no bypass": cls(bypass="off"),
            "ablation: no spine": cls(spine="off"),
            "ablation: spine of transitions": cls(spine="transitions"),
            "straight line of branches": cls(schedule="optimal"),
            "carried over between prompts": cls(carry="carried"),
        }

    @classmethod
    def of_authors_code(cls) -> Goose:
        """The settings that come nearest to the published code; docs/strategies.md says what is left."""
        return cls(
            node_budget=100, reserved_share=0.4, depth_from="root", extended_spine=100, filling="breadth",
            scores="kept", low_acceptance=0.2, high_acceptance=0.4, statistic="spine", pick="first",
            consensus="occurrences", bypass="gradual",
        )  # fmt: skip

    def spine_ratio(self, acceptance: float) -> float:
        """Share of the nodes for the spine, ρ, at this running acceptance of copied tokens (section 4.3)."""
        if acceptance < self.low_acceptance:
            return self.low_ratio
        return self.mid_ratio if acceptance < self.high_acceptance else self.high_ratio

    def drafter(self, pair: ModelPair) -> Drafter:
        return _GooseDrafter(self, pair)


class _Route(NamedTuple):
    """Which way an iteration goes: the chain that was matched, the confidence in it, 0…1, and why."""

    chain: tuple[int, ...]
    confidence: float
    consensus: int
    reason: str


class _GooseDrafter(TableDrafter):
    """Drafts spine trees, chains, trees of transitions, or nothing."""

    settings: Goose
    state = ("table", "_rates")

    def __init__(self, settings: Goose, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.bigram_entries)
        self._index = ContextIndex(range(settings.shortest_ngram, settings.longest_ngram + 1))
        self._rates = Rates()
        self._spine, self._tree = 0, DraftTree.root(0)

    def draft(self, context: Context) -> Draft:
        s = self.settings
        self._index.update(context.tokens)
        longest = min(s.max_spine, s.node_budget - 1, context.max_depth)
        matches = self._index.match(s.pick, longest) if longest > 0 else []
        route = self._choose(matches)
        if route.confidence > SURE_ENOUGH:
            most = min(int(s.extended_spine * route.confidence), s.node_budget - 1, context.max_depth)
            route = route._replace(chain=self._extended(route.chain, most, sure=route.confidence == 1))
        alone = route.confidence == 1 and s.bypass != "gradual"
        if alone:
            trie = self.rooted(context)
            self._spine = self._lay(trie, route.chain)
        else:
            trie = self._shaped(context, () if s.spine == "off" else route.chain, route.confidence)
        draft = draft_of(trie, [self._route_event(trie, route, matches, alone=alone), *map(match_event, matches)])
        self._tree = draft.tree
        return draft

    def learn(self, outcome: Outcome) -> Adaptation:
        """Updates the running rates, and with them the spine ratio of the next iteration; then the table."""
        before = self._state()
        spine = _spine_places(outcome.tree, self._spine)
        on_spine = sum(node in spine for node in outcome.accepted)
        smoothing = self.settings.smoothing
        self._rates = Rates(
            self._rates.spine.after(spine_tries(self._spine, on_spine, self.settings.statistic), smoothing),
            self._rates.branch.after(branch_tries(outcome, spine), smoothing),
        )
        harvest = super().learn(outcome)
        copies = f"{on_spine} of {self._spine} copied tokens accepted; " if self._spine else ""
        return Adaptation(copies + harvest.reason, {**before, **harvest.before}, {**self._state(), **harvest.after})

    def successors(self, trie: Trie, node: int, weight: float = 1.0) -> LookedUp:
        """What the table has after a node, with the scores that are set."""
        known = trie.looked_up.get(node)
        if known is None:
            known = super().successors(trie, node, weight)
            if self.settings.scores == "kept" and (total := sum(known[1])):
                known = trie.looked_up[node] = (known[0], [score / total for score in known[1]], known[2])
        return known

    def _choose(self, matches: Sequence[Match]) -> _Route:
        """The chain to copy and the confidence in it: 1 is a bypass, by consensus, a long match, or as set."""
        s = self.settings
        if not matches:
            return _Route((), 0.0, 0, "no n-gram occurred before")
        chain = matches[0].tokens
        consensus = sum(match.tokens[0] == chain[0] for match in matches)
        reason = f"{consensus} of {len(matches)} lengths agree, {len(chain)} tokens to copy"
        if s.bypass == "gradual":
            confidence = self._confidence(matches)
            return _Route(chain, confidence, consensus, f"{reason}; confidence {confidence:.2f}")
        agree, long = self._agree(matches), len(chain) >= s.bypass_length
        wanted = {"either": agree or long, "both": agree and long, "consensus": agree, "length": long, "off": False}
        mean, needed = self._rates.spine.mean, s.bypass_acceptance
        if wanted[s.bypass] and mean < needed:
            reason += f"; copies are accepted {mean:.0%} of the time, and a bypass needs {needed:.0%}"
        return _Route(chain, float(wanted[s.bypass] and mean >= needed), consensus, reason)

    def _agree(self, matches: Sequence[Match], after: Sequence[int] = ()) -> bool:
        if self.settings.consensus == "occurrences":
            return self._index.unanimous(after)
        return sum(match.tokens[0] == matches[0].tokens[0] for match in matches) >= 2

    def _confidence(self, matches: Sequence[Match], after: Sequence[int] = ()) -> float:
        """Confidence in the longest match by degrees, as the authors' code has it; full only where matches agree."""
        if self._agree(matches, after):
            return 1.0
        length, long = len(matches[0].tokens), self.settings.bypass_length
        return 0.6 * length / long if length < long else min(0.9, 0.7 + 0.2 * (length - long) / 12)

    def _extended(self, chain: tuple[int, ...], most: int, *, sure: bool) -> tuple[int, ...]:
        """The chain, matched again at its own end; a sure one goes on only while each match is sure."""
        s = self.settings
        while len(chain) < most:
            matches = self._index.match(s.pick, min(s.max_spine, most - len(chain)), chain)
            if not matches:
                break
            doubtful = sure and self._confidence(matches, chain) < 1
            chain += matches[0].tokens
            if doubtful:
                break
        return chain

    def _shaped(self, context: Context, chain: Sequence[int], confidence: float) -> Trie:
        """A spine tree whose size, and the spine's share of it, follow acceptance and confidence (section 4.3)."""
        s = self.settings
        base = s.spine_ratio(self._rates.spine.mean)
        budget = max(1, s.node_budget - round((1 - confidence) * s.reserved_share * s.node_budget))
        length = min(len(chain), int((base + confidence * (1 - base)) * budget), budget - 1)
        trie = self._build(context, chain[:length], budget)
        room = budget - len(trie)
        if room and length < len(chain):  # the table has no more branches: a longer spine
            trie = self._build(context, chain[: length + room], budget)
        return trie

    def _build(self, context: Context, chain: Sequence[int], budget: int) -> Trie:
        """Spine, branches at the root and along the spine, and their extension (section 4.1)."""
        s, trie = self.settings, self.rooted(context)
        lay = self._lay_transitions if s.spine == "transitions" else self._lay
        self._spine = lay(trie, chain)
        limits = Limits(budget, s.branch_depth, context.max_depth, s.score_threshold, from_root=s.depth_from == "root")
        points = range(self._spine + 1 if s.spine_branches else 1)
        branches = Branches(trie, self.successors, limits)
        grow = branches.grow if s.filling == "best" else branches.grow_by_levels
        grow(points, self._shares(budget - len(trie)))
        return trie

    def _lay(self, trie: Trie, tokens: Sequence[int]) -> int:
        """Lays a spine of copied tokens; how many."""
        node, prob = 0, min(max(self._rates.spine.mean, UNLIKELY), CERTAIN)
        for token in tokens:
            node = trie.add(node, token, prob, "context")
        return len(tokens)

    def _lay_transitions(self, trie: Trie, instead: Sequence[int]) -> int:
        """Lays a spine of the most probable transitions instead, the control of Table 2; how many there were."""
        for node in range(len(instead)):
            tokens, scores, _ = self.successors(trie, node)
            if not scores or scores[0] <= 0:
                return node
            trie.add(node, tokens[0], scores[0], "transition")
        return len(instead)

    def _shares(self, rest: int) -> list[float]:
        """Nodes for the branches at the root, and at each spine node."""
        s, length = self.settings, self._spine
        if not length or not s.spine_branches:
            return [float(rest)]
        if s.schedule == "optimal":
            return list(optimal_widths(self._rates.spine.mean, self._rates.branch.mean, length + 1, rest))
        weights = [1 / place if s.schedule == "harmonic" else 1 for place in range(1, length + 1)]
        along = s.spine_branch_ratio * rest / sum(weights)
        return [(1 - s.spine_branch_ratio) * rest, *(along * weight for weight in weights)]

    def _route_event(self, trie: Trie, route: _Route, matches: Sequence[Match], *, alone: bool) -> Event:
        found = dict.fromkeys((f"match_{length}" for length in self._index.lengths), 0)
        found |= {f"match_{match.length}": len(match.tokens) for match in matches}
        name = "bypass" if alone else "spine tree" if self._spine else "transitions" if len(trie) > 1 else "plain"
        values = {"consensus": route.consensus, "confidence": route.confidence, **found, **self._state()}
        return self.route(name, f"{name}: {route.reason}", **values, spine=self._spine)

    def _state(self) -> dict[str, Value]:
        acceptance = self._rates.spine.mean
        return {
            "spine_ratio": self.settings.spine_ratio(acceptance),
            "spine_acceptance": acceptance,
            "branch_acceptance": self._rates.branch.mean,
        }


def _spine_places(tree: DraftTree, length: int) -> frozenset[int]:
    """The spine's nodes: it was laid first, so each is its parent's first child."""
    places, node = [], 0
    for _ in range(length):
        node = tree.children[node][0]
        places.append(node)
    return frozenset(places)


class Tries(NamedTuple):
    """Tokens that verification came to, and those of them that were accepted."""

    tried: float
    accepted: float


@dataclass(frozen=True, slots=True)
class RunningRate:
    """Accepted over tried tokens, both as exponential running means: a long try counts for more than a short one."""

    accepted: float
    tried: float = 1.0

    @property
    def mean(self) -> float:
        """The rate, 0…1."""
        return self.accepted / self.tried

    def after(self, tries: Tries, smoothing: float) -> RunningRate:
        """The rate after one more iteration; without a try it stays as it is."""
        if not tries.tried:
            return self
        keep = 1 - smoothing
        return RunningRate(
            keep * self.accepted + smoothing * tries.accepted, keep * self.tried + smoothing * tries.tried
        )


def spine_tries(spine: int, on_spine: int, statistic: Statistic = "tried") -> Tries:
    """Of a spine of so many nodes, `on_spine` were accepted.

    "tried": the next one, if there is one, was tried in vain. "spine": the spine is one try, and its accepted share is
    what it gave; the mean is then a plain running mean of that share, as in the authors' code.
    """
    if statistic == "spine" and spine:
        return Tries(1.0, on_spine / spine)
    return Tries(min(on_spine + 1, spine), on_spine)


def branch_tries(outcome: Outcome, spine: frozenset[int]) -> Tries:
    """The transitions that verification came to: where the spine ended, all siblings; one of them may be right."""
    tried = accepted = 0
    for node, following in zip((0, *outcome.accepted), (*outcome.accepted, -1), strict=True):
        if following not in spine:
            tried += sum(child not in spine for child in outcome.tree.children[node])
            accepted += following >= 0
    return Tries(tried, accepted)


class Rates(NamedTuple):
    """Running acceptance of copied tokens (p_s) and of transitions (p_t)."""

    spine: RunningRate = RunningRate(FIRST_SPINE)
    branch: RunningRate = RunningRate(FIRST_BRANCH)
