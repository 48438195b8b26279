"""Filling Sequoia's tree: from a table of transitions, or from the draft model a level at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp
from typing import TYPE_CHECKING, cast

from speclab.drafters.base import Context, Draft, Drafter, Outcome
from speclab.drafters.candidates import finished
from speclab.drafters.passes import DraftPasses, Row
from speclab.drafters.ranks import RankRates
from speclab.drafters.table_drafter import TableDrafter
from speclab.errors import NoDraftError
from speclab.sources.trie import Trie
from speclab.trace import Adaptation, Event

if TYPE_CHECKING:
    from speclab.drafters.sequoia import SequoiaTree
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner

Ask = Callable[[Sequence[int]], None]


def from_transitions(settings: SequoiaTree, pair: ModelPair) -> Drafter:
    """A drafter that needs no draft model."""
    return _FromTransitions(settings, pair)


def from_draft(settings: SequoiaTree, pair: ModelPair) -> Drafter:
    """A drafter that runs the draft model once a level.

    Raises:
        NoDraftError: the pair has none.
    """
    if pair.draft is None:
        raise NoDraftError(
            f"SequoiaTree with source='draft' drafts with a draft model and {pair.name} has none: "
            "load a pair with draft=…, or set source='transitions'"
        )
    return _FromDraft(settings, pair.draft)


def fill(trie: Trie, shape: Sequence[int], max_depth: int, source: str, ask: Ask) -> None:
    """Gives every node of the shape its token: the child of rank r is the r-th candidate of its parent.

    Args:
        shape: parents, breadth-first. Nodes whose parent has too few candidates, or lies too deep, are left out.
        ask: looks up candidates of nodes, which are of one level.
    """
    node, next_rank, level = {0: 0}, dict.fromkeys(range(len(shape)), 0), [0]
    children: dict[int, list[int]] = {}
    for place, parent in enumerate(shape[1:], start=1):
        children.setdefault(parent, []).append(place)
    while asked := [place for place in level if place in children]:
        if trie.depth[node[asked[0]]] >= max_depth:
            break
        ask([node[place] for place in asked])
        level = []
        for parent in asked:
            tokens, scores, _ = trie.looked_up[node[parent]]
            for place in children[parent]:
                rank = next_rank[parent]
                next_rank[parent] += 1
                if rank < len(tokens) and scores[rank] > 0:
                    node[place] = trie.add(node[parent], tokens[rank], scores[rank], source)
                    level.append(place)


class _FromTransitions(TableDrafter):
    settings: SequoiaTree

    def __init__(self, settings: SequoiaTree, pair: ModelPair) -> None:
        super().__init__(settings, pair)
        self._ranks = RankRates.prior(settings.successors)

    def draft(self, context: Context) -> Draft:
        trie = self.rooted(context)

        def ask(nodes: Sequence[int]) -> None:
            for node in nodes:
                self.successors(trie, node)

        fill(trie, self.settings.shape(self._ranks), context.max_depth, "transition", ask)
        return finished(trie, [self.route("transitions" if len(trie) > 1 else "plain")])

    def learn(self, outcome: Outcome) -> Adaptation:
        harvest = super().learn(outcome)
        ranks, self._ranks = self._ranks, self._ranks.after(outcome)
        return Adaptation(harvest.reason, {**harvest.before, **_told(ranks)}, {**harvest.after, **_told(self._ranks)})

    def snapshot(self) -> object:
        return super().snapshot(), self._ranks

    def restore(self, state: object) -> None:
        table, self._ranks = cast("tuple[object, RankRates]", state)
        super().restore(table)


class _FromDraft(Drafter):
    settings: SequoiaTree

    def __init__(self, settings: SequoiaTree, draft: Runner) -> None:
        super().__init__(settings)
        self._runner = draft
        self.runners = (draft,)
        self._passes: DraftPasses | None = None
        self._ranks = RankRates.prior(settings.successors)

    def draft(self, context: Context) -> Draft:
        trie = Trie(context.tokens[-1])
        passes = self._passes = DraftPasses(self._runner, self.settings.successors)

        def ask(nodes: Sequence[int]) -> None:
            context.check()
            rows = [Row(node, trie.parent[node], trie.token[node]) for node in nodes]
            tops = [passes.after_root(context.tokens)] if nodes[0] == 0 else passes.after(rows)
            for node, top in zip(nodes, tops, strict=True):
                trie.looked_up[node] = [token for token, _ in top], [min(exp(p), 1.0) for _, p in top], 1.0

        fill(trie, self.settings.shape(self._ranks), context.max_depth, "draft", ask)
        return finished(trie, [Event("route", None, "draft", {"route": "draft" if len(trie) > 1 else "plain"})])

    def settle(self, outcome: Outcome) -> None:
        if self._passes is not None:
            self._passes.settle((0, *outcome.accepted)[: len(outcome.committed)])

    def learn(self, outcome: Outcome) -> Adaptation:
        ranks, self._ranks = self._ranks, self._ranks.after(outcome)
        return Adaptation("acceptance by rank", _told(ranks), _told(self._ranks))

    def snapshot(self) -> object:
        return self.settings, self._ranks

    def restore(self, state: object) -> None:
        self.settings, self._ranks = cast("tuple[SequoiaTree, RankRates]", state)


def _told(ranks: RankRates) -> dict[str, float]:
    rates = zip(ranks.accepted, ranks.tried, strict=True)
    return {f"rank_{rank}": accepted / tried for rank, (accepted, tried) in enumerate(rates, start=1)}
