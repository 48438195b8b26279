"""Filling Sequoia's tree: from a table of transitions, or from the draft model a level at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from speclab.drafters.base import Context, Draft, Drafter, Outcome, TopK
from speclab.drafters.candidates import finished
from speclab.drafters.draft_forward import DraftForward, Row
from speclab.drafters.ranks import RankRates
from speclab.drafters.sequoia_filling import fill, filled, route
from speclab.drafters.table_drafter import TableDrafter
from speclab.errors import NoDraftError
from speclab.trace.records import Adaptation, Event

if TYPE_CHECKING:
    from speclab.drafters.sequoia import SequoiaTree
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner


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


class _FromTransitions(TableDrafter):
    settings: SequoiaTree

    def __init__(self, settings: SequoiaTree, pair: ModelPair) -> None:
        super().__init__(settings, pair)
        self._ranks = RankRates.prior(settings.successors)

    def draft(self, context: Context) -> Draft:
        trie = self.rooted(context)

        def ask(rows: Sequence[Row], counts: Sequence[int]) -> list[TopK]:
            tops = []
            for row, count in zip(rows, counts, strict=True):
                tokens, scores, _ = self.successors(trie, row.node)
                known = [pair for pair in zip(tokens, scores, strict=True) if pair[1] > 0]
                tops.append(tuple(known[:count]))
            return tops

        stops = fill(trie, self.settings.shape(self._ranks), context.max_depth, "transition", ask)
        return finished(trie, [self.route(route(trie, "transitions")), *stops])

    def update(self, outcome: Outcome) -> Adaptation:
        harvest = super().update(outcome)
        ranks, self._ranks = self._ranks, self._ranks.after(outcome)
        return Adaptation(
            harvest.reason, {**harvest.before, **ranks.describe()}, {**harvest.after, **self._ranks.describe()}
        )

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
        self._passes: DraftForward | None = None
        self._ranks = RankRates.prior(settings.successors)

    def draft(self, context: Context) -> Draft:
        passes = self._passes = DraftForward(self._runner, self.settings.successors)
        trie, stops = filled(self.settings, self._ranks, passes, context)
        return finished(trie, [Event("route", None, "draft", {"route": route(trie, "draft")}), *stops])

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        if self._passes is not None:
            self._passes.renumber(new_index)

    def commit_cache(self, outcome: Outcome) -> None:
        if self._passes is not None:
            self._passes.commit_cache((0, *outcome.accepted)[: len(outcome.committed)])

    def update(self, outcome: Outcome) -> Adaptation:
        ranks, self._ranks = self._ranks, self._ranks.after(outcome)
        return Adaptation("acceptance by rank", ranks.describe(), self._ranks.describe())

    def snapshot(self) -> object:
        return self.settings, self._ranks

    def restore(self, state: object) -> None:
        self.settings, self._ranks = cast("tuple[SequoiaTree, RankRates]", state)
