"""Any drafter, with as many nodes as decode fastest on this machine: `budget="auto"`.

The drafter proposes as ever. Of its tree, the nodes are verified that give the most expected tokens a second, by the
measured cost of a pass and by what became of their like (`budgets.choose`). While a draft model drafts, the same
figures say when another level cannot pay (`drafters.prospect`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from speclab.costs.budget import Choice, Reach, Worth, choose, told, trimmed, untrimmed
from speclab.costs.curve import Curve, seconds_by_rows
from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy
from speclab.trace.records import Adaptation, BudgetRecord, Lookup
from speclab.tree import CandidateSampling, Floats

if TYPE_CHECKING:
    from torch import Tensor

    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner

MOST = 2048
"""Rows up to which costs are laid out at once."""


def drafter_of(strategy: Strategy, pair: ModelPair) -> Drafter:
    """The strategy's drafter, with the budget that it asks for; the first one on a machine measures its costs."""
    drafter = strategy.drafter(pair)
    if not strategy.chooses_budget:
        return drafter
    from speclab.costs import measured as cost_curves  # brings torch, which settings and records do without

    target = cost_curves.curve_of(pair.target)
    return CostAware(drafter, target, [cost_curves.curve_of(runner) for runner in drafter.runners])


class CostAware(Drafter):
    """Drafts with `inner`, and has the part of its tree verified that pays.

    Args:
        target: cost of the target's passes.
        drafts: of those of the inner drafter's runners, in their order.
    """

    def __init__(self, inner: Drafter, target: Curve, drafts: Sequence[Curve]) -> None:
        super().__init__(inner.settings)
        self._inner, self._target, self._drafts = inner, target, tuple(drafts)
        self.root, self.commit, self.runners = inner.root, inner.commit, inner.runners
        self._rooted = inner.root == "verified"
        self._reach = Reach()

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Tensor:
        return self._inner.prefill(target, prompt_ids)

    def draft(self, context: Context) -> Draft:
        spent = self._ledger(len(context.tokens))
        worth = Worth(self._verify, lambda rows: float(_seconds(self._drafts[0], rows)[rows]), spent, self._reach)
        draft = self._inner.draft(replace(context, cost_model=worth))
        return self._trimmed(draft, spent())

    def commit_cache(self, outcome: Outcome) -> None:
        self._inner.commit_cache(outcome)

    def update(self, outcome: Outcome) -> Adaptation:
        adaptation = self._inner.update(outcome)
        self.settings = self._inner.settings
        if outcome.tree.candidate_sampling is CandidateSampling.DETERMINISTIC:
            self._reach = self._reach.after(outcome, verified_root=self._rooted)
        return adaptation

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        self._inner.on_pruned(new_index)

    def lookup(self, token: int, previous: int | None = None) -> Lookup | None:
        return self._inner.lookup(token, previous)

    def snapshot(self) -> object:
        return self._inner.snapshot(), self._reach

    def restore(self, state: object) -> None:
        learned, self._reach = cast("tuple[object, Reach]", state)
        self._inner.restore(learned)
        self.settings = self._inner.settings

    def _verify(self, nodes: int) -> Floats:
        return _seconds(self._target, nodes)

    def _ledger(self, committed: int) -> Callable[[], float]:
        """Seconds of the draft passes from now on, by the curves; the passes of a runner count as equally long.

        Committed tokens that a draft's cache lacks are not counted, unless it is thrown away each iteration: how many
        there are depends on how the text was come by, and a fork must choose as the run it comes from.
        """
        calls = [runner.calls for runner in self.runners]
        held = 0 if self.commit == "rebuild" else committed - 1

        def spent() -> float:
            total = 0.0
            for runner, curve, before in zip(self.runners, self._drafts, calls, strict=True):
                if passes := runner.calls - before:
                    rows = max(1, round((runner.length - held) / passes))
                    total += passes * float(_seconds(curve, rows)[rows])
            return total

        return spent

    def _trimmed(self, draft: Draft, spent: float) -> Draft:
        """The part of a draft that pays. Draws are all verified: to drop some by probability would bend their law."""
        tree = draft.tree
        if tree.candidate_sampling is not CandidateSampling.DETERMINISTIC:
            return replace(draft, events=(*draft.events, untrimmed(len(tree))))
        count, extra = len(tree), len(draft.extra.token)
        reach = self._reach.of(tree.parent, tree.log_prob, tree.source, verified_root=self._rooted)
        seconds = self._verify(count + extra)[extra + 1 : count + extra + 1]
        choice = choose(reach, seconds, spent, verified_root=self._rooted)
        record = self._record(reach, choice, spent, extra)
        event = told(choice, count)
        if choice.keep.all():
            return replace(draft, events=(*draft.events, event), budget=record)
        kept, place = trimmed(draft, choice, reach)
        self._inner.on_pruned(place)
        return replace(kept, events=(*kept.events, event), budget=record)

    def _record(self, reach: Floats, choice: Choice, spent: float, extra: int) -> BudgetRecord:
        first = int(self._rooted)
        likely = np.sort(reach[1:])[::-1].tolist()
        return BudgetRecord(
            probabilities=tuple(reach[:1].tolist()[first:] + likely),
            verified=int(choice.keep.sum()),
            verified_root=self._rooted,
            extra=extra,
            spent=spent,
            rows=self._target.rows,
            seconds=self._target.seconds,
        )


def _seconds(curve: Curve, rows: int) -> Floats:
    return seconds_by_rows(curve, max(MOST, 1 << rows.bit_length()))
