"""`budget="auto"`: any drafter, with as many of its nodes verified as decode fastest on this machine.

The drafter proposes as ever. Of its tree, those nodes are verified that give the most expected tokens per second, by
the measured cost of a pass and the acceptance learned so far (`choose`). While a draft model drafts, the same figures
say when another level cannot raise that rate (`CostAware.level_gate`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from speclab.costs.budget import AcceptanceModel, Choice, choose
from speclab.costs.curve import Curve, seconds_by_rows
from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy
from speclab.drafters.policies import Gate, closed_gate
from speclab.trace.records import Adaptation, BudgetRecord, Event, Lookup
from speclab.tree import CandidateSampling, Floats

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner
    from speclab.models.transfers import Logits

T = TypeVar("T")


def drafter_of(strategy: Strategy, pair: ModelPair) -> Drafter:
    """The strategy's drafter, with the budget that it asks for; the first one on a machine measures its costs."""
    drafter = strategy.drafter(pair)
    if not strategy.chooses_budget:
        return drafter
    from speclab.costs import measured  # brings torch, which settings and records do without

    return CostAware(drafter, measured.curve_of(pair.target), [measured.curve_of(each) for each in drafter.runners])


class CostAware(Drafter):
    """Drafts with `inner`, and has the part of its tree verified that raises the expected tokens per second.

    Args:
        target: cost of the target's passes.
        drafts: costs of the passes of the inner drafter's runners, in their order.
    """

    def __init__(self, inner: Drafter, target: Curve, drafts: Sequence[Curve]) -> None:
        super().__init__(inner.settings)
        self._inner, self._target, self._drafts = inner, target, tuple(drafts)
        self.root, self.commit, self.runners = inner.root, inner.commit, inner.runners
        self._verified_root = inner.root == "verified"
        self._acceptance = AcceptanceModel()
        self._committed, self._calls = 0, [0] * len(self._drafts)
        """Tokens of the text, and passes that each runner had made, when this iteration began."""

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Logits:
        return self._inner.prefill(target, prompt_ids)

    def draft(self, context: Context) -> Draft:
        self._committed, self._calls = len(context.tokens), [runner.calls for runner in self.runners]
        return self._restricted(self._inner.draft(replace(context, level_gate=self._level_gate)))

    def commit_cache(self, outcome: Outcome) -> None:
        self._inner.commit_cache(outcome)

    def update(self, outcome: Outcome) -> Adaptation:
        adaptation = self._inner.update(outcome)
        self.settings = self._inner.settings
        if outcome.tree.candidate_sampling is CandidateSampling.DETERMINISTIC:
            self._acceptance = self._acceptance.updated(outcome, verified_root=self._verified_root)
        return adaptation

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        self._inner.on_pruned(new_index)

    def lookup(self, token: int, previous: int | None = None) -> Lookup | None:
        return self._inner.lookup(token, previous)

    def snapshot(self) -> object:
        return self._inner.snapshot(), self._acceptance

    def restore(self, state: object) -> None:
        learned, self._acceptance = cast("tuple[object, AcceptanceModel]", state)
        self._inner.restore(learned)
        self.settings = self._inner.settings

    def _drafting_seconds(self) -> float:
        """Seconds of this iteration's draft passes by the curves; the passes of a runner count as equally long.

        Committed tokens that a draft's cache lacks are not counted, unless it is thrown away each iteration: how many
        there are depends on how the text was come by, and a fork must choose as the run it comes from.
        """
        total, cached = 0.0, 0 if self.commit == "rebuild" else self._committed - 1
        for runner, curve, before in zip(self.runners, self._drafts, self._calls, strict=True):
            if passes := runner.calls - before:
                rows = max(1, round((runner.length - cached) / passes))
                total += passes * float(seconds_by_rows(curve, rows)[rows])
        return total

    def _level_gate(
        self, parent: Sequence[int], log_prob: Sequence[float], nodes: Sequence[int], source: str
    ) -> Gate | None:
        """A gate that is closed to all of `nodes` where drafting their children cannot raise tokens per second.

        It looks one level ahead: each node is taken to go on as often as nodes did so far. The first level is always
        drafted, or nothing would be learned. The arguments are those of `drafters.base.LevelGate`.
        """
        if len(parent) == 1:
            return None
        probs = self._acceptance.path_probs(
            np.asarray(parent), np.asarray(log_prob), source, verified_root=self._verified_root
        )
        deeper = np.concatenate([probs, probs[list(nodes)] * self._acceptance.continuation_rate])
        drafting = self._drafting_seconds()
        further = float(seconds_by_rows(self._drafts[0], len(nodes))[len(nodes)])
        now, then = self._choose(probs, drafting), self._choose(deeper, drafting + further)
        return None if then.rate > now.rate else _cost_gate(now, then)

    def _choose(self, probs: Floats, drafting: float, extra: int = 0) -> Choice:
        """`extra`: rows of the pass that are no nodes."""
        seconds = seconds_by_rows(self._target, len(probs) + extra)[extra + 1 :]
        return choose(probs, seconds, drafting, verified_root=self._verified_root)

    def _restricted(self, draft: Draft) -> Draft:
        """The part of a draft that is worth verifying, and the record of the choice."""
        tree, count, extra = draft.tree, len(draft.tree), len(draft.extra.token)
        if (
            tree.candidate_sampling is not CandidateSampling.DETERMINISTIC
        ):  # selecting among samples by probability would change the output
            reason = f"all {count} nodes: to drop sampled candidates by their probability would bias the output"
            event = Event("budget", None, reason, {"verified": count, "drafted": count})
            return replace(draft, events=(*draft.events, event))
        probs = self._acceptance.path_probs(tree.parent, tree.log_prob, tree.source, verified_root=self._verified_root)
        drafting = self._drafting_seconds()
        choice = self._choose(probs, drafting, extra)
        if not choice.keep.all():
            draft, new_index = restrict(draft, choice, probs)
            self._inner.on_pruned(new_index)
        record = BudgetRecord(
            probabilities=tuple(probs[: 1 - self._verified_root].tolist() + np.sort(probs[1:])[::-1].tolist()),
            verified=len(draft.tree),
            verified_root=self._verified_root,
            extra=extra,
            spent=drafting,
            rows=self._target.rows,
            seconds=self._target.seconds,
        )
        return replace(draft, events=(*draft.events, _budget_event(choice, count)), budget=record)


def restrict(draft: Draft, choice: Choice, probs: Floats) -> tuple[Draft, dict[int, int]]:
    """The draft of the nodes that are kept, and the new index of each of them.

    A "prune" event stands for all that is left out below one node, its most probable first.
    """
    new_index = {node: index for index, node in enumerate(np.flatnonzero(choice.keep).tolist())}
    events = tuple(
        event
        if event.node is None or event.node == new_index[event.node]
        else replace(event, node=new_index[event.node])
        for event in draft.events
        if event.node is None or event.node in new_index
    )
    kept = replace(
        draft,
        tree=draft.tree.select(choice.keep.tolist()),
        events=(*events, *_prune_events(draft, choice, probs, new_index)),
        topk=Reindexed(draft.topk, new_index),
    )
    return kept, new_index


def _prune_events(draft: Draft, choice: Choice, probs: Floats, new_index: Mapping[int, int]) -> Iterator[Event]:
    """One event for each node that lost something: its most probable lost child, and how many were lost below it."""
    lost: dict[int, list[int]] = {}
    kept_above: dict[int, int] = {}
    for node, above in enumerate(draft.tree.parent.tolist()):
        if node not in new_index:
            kept_above[node] = kept_above.get(above, above)
            lost.setdefault(kept_above[node], []).append(node)
    for above, nodes in lost.items():
        best = max(nodes, key=probs.__getitem__)
        expected = float(probs[best])
        reason = (
            f"expected to be accepted {expected:.1%} of the time, and a further node needs {choice.threshold:.1%}: "
            "not worth its time in the pass"
        )
        values = {
            "token": int(draft.tree.token[best]),
            "expected": expected,
            "least": choice.threshold,
            "dropped": len(nodes),
        }
        yield Event("prune", new_index[above], reason, values)


def _budget_event(choice: Choice, drafted: int) -> Event:
    verified = int(choice.keep.sum())
    what = f"trimmed to {verified} of {drafted} nodes" if verified < drafted else f"all {drafted} nodes"
    values = {
        "verified": verified,
        "drafted": drafted,
        "expected_tokens": choice.expected,
        "expected_seconds": choice.seconds,
        "tokens_per_second": choice.rate,
        "least_kept": choice.threshold,
    }
    return Event(
        "budget", None, f"{what}: expected {choice.expected:.1f} tokens in {1000 * choice.seconds:.1f} ms", values
    )


def _cost_gate(now: Choice, then: Choice) -> Gate:
    tokens = max(then.expected - now.expected, 0.0)
    cost = then.expected / then.rate - now.expected / now.rate
    reason = (
        f"another level may bring {tokens:.2f} tokens for {1000 * cost:.2f} ms, and at {now.rate:.0f} tokens/s it "
        f"would have to bring {now.rate * cost:.2f}"
    )
    values = {"level_tokens": tokens, "level_seconds": cost, "tokens_per_second": now.rate}
    return closed_gate("cost", reason, **values)


class Reindexed(Mapping[int, T]):
    """What is known of nodes, under their new index; looked up in the old mapping only when a record asks for it."""

    def __init__(self, known: Mapping[int, T], new_index: Mapping[int, int]) -> None:
        self._known = known
        self._old = {new_index[node]: node for node in known if node in new_index}

    def __getitem__(self, index: int) -> T:
        return self._known[self._old[index]]

    def __iter__(self) -> Iterator[int]:
        return iter(self._old)

    def __len__(self) -> int:
        return len(self._old)
