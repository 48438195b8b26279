"""How GOOSE drafts: route by what the sources have (section 4.3, appendix B.2), then build, then learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from speclab.drafters.acceptance_rates import RunningRate, branch_tries, spine_tries
from speclab.drafters.base import Context, Draft, Outcome
from speclab.drafters.candidates import finished, match_event
from speclab.drafters.ngrams import index_for
from speclab.drafters.spine_tree import Branches, Limits
from speclab.drafters.table_drafter import TableDrafter
from speclab.sources.context import Match
from speclab.sources.trie import LookedUp, Trie
from speclab.theory.spine import optimal_widths
from speclab.trace.records import Adaptation, Event, Value
from speclab.tree import DraftTree

if TYPE_CHECKING:
    from speclab.drafters.goose import Goose
    from speclab.models.pair import ModelPair

FIRST_SPINE, FIRST_BRANCH = 0.5, 0.1
"""Acceptance of copies and of transitions before any was tried; ours."""
SURE, UNSURE = 0.99, 0.01
"""A copied token's probability is its running acceptance, within these bounds."""


class Rates(NamedTuple):
    """Running acceptance of copied tokens (p_s) and of transitions (p_t)."""

    spine: RunningRate = RunningRate(FIRST_SPINE)
    branch: RunningRate = RunningRate(FIRST_BRANCH)


SURE_ENOUGH = 0.6
"""Above this confidence a chain is matched again at its own end (authors' code)."""


class _Route(NamedTuple):
    """Which way an iteration goes: the chain that was matched, the confidence in it, 0…1, and why."""

    chain: tuple[int, ...]
    confidence: float
    consensus: int
    reason: str


class GooseDrafter(TableDrafter):
    """Drafts spine trees, chains, trees of transitions, or nothing."""

    settings: Goose

    def __init__(self, settings: Goose, pair: ModelPair) -> None:
        super().__init__(settings, pair, settings.bigram_entries)
        self._index = index_for(settings)
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
        draft = finished(trie, [self._told(trie, route, matches, alone=alone), *map(match_event, matches)])
        self._tree = draft.tree
        return draft

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        """The spine is as long as its nodes are left: each is laid on the one before."""
        self._spine = sum(node in new_index for node in _spine_places(self._tree, self._spine))

    def update(self, outcome: Outcome) -> Adaptation:
        """Updates the running rates, and with them the spine ratio of the next iteration; then the table."""
        before = self._state()
        spine = _spine_places(outcome.tree, self._spine)
        on_spine = sum(node in spine for node in outcome.accepted)
        smoothing = self.settings.smoothing
        self._rates = Rates(
            self._rates.spine.after(spine_tries(self._spine, on_spine, self.settings.statistic), smoothing),
            self._rates.branch.after(branch_tries(outcome, spine), smoothing),
        )
        harvest = super().update(outcome)
        copies = f"{on_spine} of {self._spine} copied tokens accepted; " if self._spine else ""
        return Adaptation(copies + harvest.reason, {**before, **harvest.before}, {**self._state(), **harvest.after})

    def snapshot(self) -> object:
        return super().snapshot(), self._rates

    def restore(self, state: object) -> None:
        table, self._rates = cast("tuple[object, Rates]", state)
        super().restore(table)

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
        node, prob = 0, min(max(self._rates.spine.mean, UNSURE), SURE)
        for token in tokens:
            node = trie.add(node, token, prob, "context")
        return len(tokens)

    def _lay_transitions(self, trie: Trie, instead: Sequence[int]) -> int:
        """Lays a spine of likeliest transitions instead, the control of Table 2; how many there were."""
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

    def _told(self, trie: Trie, route: _Route, matches: Sequence[Match], *, alone: bool) -> Event:
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
