"""GOOSE: a deep spine of copied tokens with wide branches of transitions, drafted without a model.

"Goose: Anisotropic Speculation Trees for Training-Free Speculative Decoding", sections 4.1 to 4.3,
appendices B and C. Step 4 of Algorithm 1 extends branches breadth-first; here they grow best first,
by path probability (not in the paper). docs/strategies.md lists the other differences from the
paper and the authors' code.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy
from speclab.drafters.candidates import Candidates, Successors
from speclab.drafters.cost import NodeBudget
from speclab.drafters.prompt_lookup import Copies, LongestNgram, Match, ShortestNgram
from speclab.drafters.rematching import LONG, rematched
from speclab.drafters.transitions import TableDrafter, Width
from speclab.trace.records import Adaptation, Event, Value

if TYPE_CHECKING:
    from speclab.pair import ModelPair

SMOOTHING = 0.3  # weight of the newest iteration in the running acceptance of copies (appendix C.3)
UNSURE = 0.6  # share of the nodes without confidence: 60 of 100 (authors' code)
# running acceptance for `mid_ratio` and `high_ratio` (not in the paper)
MID_ACCEPTANCE = 0.5
HIGH_ACCEPTANCE = 0.8
FIRST_ACCEPTANCE = 0.5  # of copies, before any was tried (not in the paper)
# bounds of a copied token's probability, which is the running acceptance
CERTAIN = 0.99
UNLIKELY = 0.01

Share = Annotated[float, Field(ge=0, le=1)]


class Goose(Strategy):
    """A spine copied from the text so far and branches from a transition table; the shape adapts to acceptance."""

    group: ClassVar[str] = "papers"

    node_budget: NodeBudget = Field("auto", title="N")
    branch_depth: int = Field(6, ge=1, le=64, title="D", description="maximum levels of a branch")
    max_spine: int = Field(20, ge=1, le=256, description="maximum tokens to copy")
    successors: Width = 10
    score_threshold: float = Field(
        0.01, ge=0, lt=1, description="minimum score of a drafted successor"
    )
    spine_branch_ratio: Share = Field(
        0.5, title="β", description="share of branches along the spine"
    )
    low_ratio: Share = Field(
        0.15, title="ρ", description="spine's share of the nodes if copies often fail"
    )
    mid_ratio: Share = Field(0.30, title="ρ", description="the same in between")
    high_ratio: Share = Field(0.50, title="ρ", description="the same if copies are mostly accepted")
    longest_ngram: LongestNgram = 5
    shortest_ngram: ShortestNgram = 3
    bypass: Literal["either", "both", "graded", "off"] = Field(
        "either",
        description="verify a chain instead of a tree if n-gram lengths agree or the chain is long (appendix B.2); "
        "only if both hold (one reading of section 4.3); graded confidence raises the nodes from 60 % to 100 % and "
        "gives them to the spine first, which a chain that is matched again at its end may fill (authors' code); never",
    )
    bypass_acceptance: Share = Field(
        0.8, description="acceptance of copies required for a bypass (paper: 0)"
    )
    spine: Literal["context", "transitions", "off"] = Field(
        "context",
        description="what the spine is made of: copies; transitions in the same shape (the paper's control); no spine",
    )
    bigrams: bool = Field(True, description="also keep successors of pairs of tokens")
    ascending = (("shortest_ngram", "longest_ngram"), ("low_ratio", "mid_ratio", "high_ratio"))

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        paper = {"node_budget": 60, "bypass_acceptance": 0}
        return {
            "paper": cls(**paper),
            "paper, bypass where both signals hold": cls(**paper, bypass="both"),
            "authors' code: graded confidence": cls(node_budget=100, bypass="graded"),
            "ablation: no spine branches": cls(**paper, spine_branch_ratio=0),
            "ablation: no bigrams": cls(**paper, bigrams=False),
            "ablation: no bypass": cls(**paper, bypass="off"),
            "ablation: no spine": cls(**paper, spine="off"),
            "control: spine of transitions": cls(**paper, spine="transitions"),
        }

    def spine_ratio(self, acceptance: float) -> float:
        """Share of the nodes for the spine, ρ, at this running acceptance of copied tokens (section 4.3)."""
        if acceptance < MID_ACCEPTANCE:
            return self.low_ratio
        if acceptance < HIGH_ACCEPTANCE:
            return self.mid_ratio
        return self.high_ratio

    def drafter(self, pair: ModelPair) -> Drafter:
        return GooseDrafter(self, pair)


class GooseDrafter(TableDrafter):
    """Drafts spine trees, chains, trees of transitions, or nothing.

    Attributes:
        rate: running means per iteration: accepted copied tokens, and tried ones.
    """

    settings: Goose
    state = ("table", "rate")

    def __init__(self, settings: Goose, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.successors, pairs=settings.bigrams)
        self._copies = Copies(settings.shortest_ngram, settings.longest_ngram)
        self.rate = (FIRST_ACCEPTANCE, 1.0)
        self._spine = 0

    def draft(self, context: Context) -> Draft:
        """Algorithm 2, lines 5 to 12: match, then a bypass, a spine tree, or a tree of transitions alone."""
        s = self.settings
        budget = s.number_of_nodes
        ratio = s.spine_ratio(self.acceptance)  # ρ
        longest = 0
        if s.spine != "off":
            longest = min(s.max_spine, budget - 1, context.max_depth)
        matches: list[Match] = []
        chain: tuple[int, ...] = ()
        agreeing = 0
        if s.bypass == "graded":
            sure = 0.0
            copy = None
            if longest:
                copy = rematched(self._copies, context.tokens, longest, budget)
            if copy is not None:
                matches = [copy.match]
                chain = copy.tokens[: min(budget - 1, context.max_depth)]
                agreeing = copy.agreeing
                sure = copy.confidence
            budget = max(1, int((UNSURE + (1 - UNSURE) * sure) * budget))
            # the spine has the first claim on the nodes; what it leaves still branches
            ratio += sure * (1 - ratio)
        else:
            matches = self._copies.matches(context.tokens, longest)
            if matches:
                chain = matches[0].tokens
                agreeing = len([match for match in matches if match.tokens[0] == chain[0]])
        if self._bypasses(agreeing, len(chain)):
            way = "bypass"
            tree = self.rooted(context)
            self._lay_spine(tree, chain)
        else:
            length = int(ratio * budget)
            tree = self._spine_tree(context, chain[:length], budget)
            # the table has no more branches: a longer spine
            if len(tree) < budget and length < len(chain):
                tree = self._spine_tree(context, chain[: length + budget - len(tree)], budget)
            way = tree.way("transitions")
            if self._spine:
                way = "spine tree"
        events = [self._decision(way, matches, agreeing)]
        events += [match.event for match in matches]
        return tree.draft(events)

    def _bypasses(self, agreeing: int, length: int) -> bool:
        """Whether to verify the chain alone (section 4.3): two n-gram lengths agree, the chain is long."""
        consensus = agreeing >= 2
        long = length >= LONG
        signals = {"either": consensus or long, "both": consensus and long}
        return (
            signals.get(self.settings.bypass, False)
            and self.acceptance >= self.settings.bypass_acceptance
        )

    def _spine_tree(self, context: Context, chain: Sequence[int], budget: int) -> Candidates:
        """Algorithm 1: the spine, branches at the root and along the spine, and their extension."""
        s = self.settings
        tree = self.rooted(context)
        self._lay_spine(tree, chain)  # step 1
        rest = float(budget - len(tree))
        shares = [rest]
        if self._spine and s.spine_branch_ratio:
            # Steps 2 and 3: nodes for branches at the root, and at each node of the spine.
            harmonic = [1 / node for node in range(1, self._spine + 1)]
            along = s.spine_branch_ratio * rest / sum(harmonic)
            shares = [(1 - s.spine_branch_ratio) * rest]
            shares += [along * weight for weight in harmonic]
        self._grow_branches(tree, shares, budget, context.max_depth)
        return tree

    def _grow_branches(
        self, tree: Candidates, shares: Sequence[float], budget: int, max_depth: int
    ) -> None:
        """Steps 2 to 4: node i of the spine gets `shares[i]` branch nodes, best first; what is left goes to any."""
        # (negative path probability, age, parent, rank among its successors, level in the branch,
        # node of the spine)
        waiting: list[tuple[float, int, int, int, int, int]] = []
        age = count()

        def offer(parent: int, rank: int, level: int, point: int) -> None:
            probs = tree.successors[parent].probs
            if rank < len(probs):
                path_prob = tree.path_prob[parent] * probs[rank]
                heappush(waiting, (-path_prob, next(age), parent, rank, level, point))

        def expand(node: int, level: int, point: int) -> None:
            if level < self.settings.branch_depth and tree.depth[node] < max_depth:
                # If a copy is right with probability p, a transition of score s has probability (1
                # - p) s.
                children = tree.children[node].values()
                copied = sum(tree.prob[node] for node in children if tree.source[node] == "context")
                self.successors(tree, node, 1.0 - copied)
                offer(node, 0, level, point)

        for point in range(len(shares)):
            expand(point, 0, point)
        for left in (list(shares), [inf] * len(shares)):
            over_share = []
            while waiting and len(tree) < budget:
                candidate = heappop(waiting)
                _, _, parent, rank, level, point = candidate
                if left[point] < 1:
                    over_share.append(candidate)
                    continue
                offer(parent, rank + 1, level, point)
                tokens, probs = tree.successors[parent]
                new = len(tree)
                # else the spine has it
                if tree.add(parent, tokens[rank], probs[rank], "transition") == new:
                    left[point] -= 1
                    expand(new, level + 1, point)
            waiting += over_share
            heapify(waiting)

    def _lay_spine(self, tree: Candidates, chain: Sequence[int]) -> None:
        node = 0
        prob = min(max(self.acceptance, UNLIKELY), CERTAIN)
        self._spine = 0
        for token in chain:
            # the control of the ablation: its shape, but no copies
            if self.settings.spine == "transitions":
                best = self.successors(tree, node)
                if not best.tokens:
                    break
                node = tree.add(node, best.tokens[0], best.probs[0], "transition")
            else:
                node = tree.add(node, token, prob, "context")
            self._spine += 1

    def successors(self, tree: Candidates, node: int, weight: float = 1.0) -> Successors:
        """The table's successors of a node; a score is the share among the kept successors (authors' code)."""
        tokens, probs = super().successors(tree, node)
        total = sum(probs)
        threshold = self.settings.score_threshold
        scores = [prob / total for prob in probs]
        weighted = [weight * score for score in scores if score >= threshold]
        successors = Successors(tokens[: len(weighted)], weighted)
        tree.successors[node] = successors
        return successors

    def learn(self, outcome: Outcome) -> Adaptation:
        """Updates the running acceptance of copies, which sets the next spine ratio, then the table (section 4.3)."""
        before = self._state()
        # it was added first, so each of its nodes is the first child of the node before
        spine = [0]
        while len(spine) <= self._spine:
            spine.append(outcome.tree.children[spine[-1]][0])
        accepted = len(set(spine[1:]).intersection(outcome.accepted))
        tried = min(accepted + 1, self._spine)  # none is tried after the first rejection
        if tried:
            old_accepted, old_tried = self.rate
            self.rate = (
                old_accepted + SMOOTHING * (accepted - old_accepted),
                old_tried + SMOOTHING * (tried - old_tried),
            )
        table = super().learn(outcome)
        kind = table.kind
        if self._spine:
            kind = "copies"
        values = {"accepted": accepted, "spine": self._spine, **table.values}
        return Adaptation(
            kind, values, {**before, **table.before}, {**self._state(), **table.after}
        )

    @property
    def acceptance(self) -> float:
        accepted, tried = self.rate
        return accepted / tried

    def _state(self) -> dict[str, Value]:
        return {
            "spine_ratio": self.settings.spine_ratio(self.acceptance),
            "spine_acceptance": self.acceptance,
        }

    def _decision(self, way: str, matches: Sequence[Match], agreeing: int) -> Event:
        by = "none"
        copied = 0
        if matches:
            by = "copies"
            copied = len(matches[0].tokens)
        return self.route(
            way,
            by=by,
            lengths=len(matches),
            copied=copied,
            consensus=agreeing,
            spine=self._spine,
            **self._state(),
        )
