"""`budget="auto"`: any drafter, with as many of its nodes verified as decode fastest on this machine.

The drafter proposes as ever. Of its tree, those nodes are verified that give the most expected tokens per second, by
the measured cost of a pass and the acceptance learned so far (`choose`). While a draft model drafts, the same figures
say when further levels cannot raise that rate (`Chooser.level_gate`). What decided is in the record of the step, so
that other settings can be tried on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import exp
from typing import TYPE_CHECKING, TypeVar, cast

from speclab.costs.budget import AcceptanceModel, Choice, Paths, Worth, best_size, choose
from speclab.costs.curve import Curve, seconds_by_rows
from speclab.drafters.base import Context, Draft, Drafter, LazyEvents, Outcome, Strategy, checked
from speclab.drafters.policies import Gate, closed_gate
from speclab.errors import SettingsError
from speclab.trace.records import Adaptation, BudgetRecord, Event, Lookup, PassCost
from speclab.tree import CandidateSampling, DraftTree

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner
    from speclab.models.transfers import Logits

T = TypeVar("T")
AHEAD = 4
"""Levels that drafting looks ahead: one more may not pay where four do, for rows of a pass are cheap in groups."""
LEVEL = 1.5e-4
"""Seconds of the host's work on a level of a tree, beside the pass: a guess at a CPython of these years."""


def drafter_of(strategy: Strategy, pair: ModelPair) -> Drafter:
    """The strategy's drafter, with the budget that it asks for; the first one on a machine measures its costs."""
    drafter: object = strategy.drafter(pair)
    if not isinstance(drafter, Drafter):
        name = type(strategy).__name__
        raise SettingsError(
            f"{name}.drafter(pair) gave {drafter!r}: return a Drafter, as in return {name}Drafter(self)"
        )
    if not strategy.chooses_budget:
        return drafter
    from speclab.costs import measured  # brings torch, which settings and records do without

    curves = [measured.curve_of(each, drafts=True) for each in drafter.runners]
    return CostAware(drafter, measured.curve_of(pair.target), curves)


def know_costs(strategy: Strategy, pair: ModelPair) -> None:
    """Measures what `drafter_of` goes by, where this machine does not know it: some seconds, before a text begins."""
    if checked(strategy).chooses_budget:
        from speclab.costs import measured  # brings torch, which settings and records do without

        measured.curve_of(pair.target)
        if strategy.needs_draft:
            for runner in (*(() if pair.draft is None else (pair.draft,)), *pair.heads):
                measured.curve_of(runner, drafts=True)


@dataclass
class Chooser:
    """The choices of one iteration, from the costs of passes and what was learned before it.

    `spent`: seconds of drafting so far: of `passes` by their curves, a level's when its gate opens, and of host work.
    Committed tokens that a draft's cache lacks are not: how many there are depends on how the text was come by, and a
    fork must choose as the run it comes from.
    """

    model: AcceptanceModel
    target: Curve
    drafts: Sequence[Curve]
    verified_root: bool = True
    spent: float = 0.0
    passes: int = 0
    _paths: dict[int, Paths] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.verified_root and self.drafts:
            self.count(self.drafts[0], 1)  # the pass that a drafted root comes from asks no gate

    def count(self, curve: Curve, rows: int, passes: int = 1) -> None:
        """Counts passes of a draft of so many rows each."""
        self.spent += passes * (float(seconds_by_rows(curve, rows)[rows]) + LEVEL)
        self.passes += passes

    @classmethod
    def recorded(cls, record: BudgetRecord) -> Chooser:
        """As it stood before a recorded iteration."""
        target, *drafts = (
            Curve(name=one.name, rows=one.rows, seconds=one.seconds, prefix=0, rounds=1)
            for one in (PassCost("target", record.rows, record.seconds), *record.drafts)
        )
        return cls(AcceptanceModel(record.learned), target, drafts, record.verified_root)

    def level_gate(
        self, parent: Sequence[int], log_prob: Sequence[float], nodes: Sequence[int], source: str
    ) -> Gate | None:
        """A gate that is closed to all of `nodes` where drafting below them cannot raise tokens per second.

        It looks some levels ahead: each node is taken to go on as often as such nodes did so far. The first level is
        always drafted, or nothing would be learned. The arguments are those of `drafters.base.LevelGate`.
        """
        curve = next((one for one in self.drafts if one.name == source), self.drafts[0])
        cost = float(seconds_by_rows(curve, len(nodes))[len(nodes)]) + LEVEL
        if len(parent) > 1:
            paths = self._paths.setdefault(id(parent), Paths(self.model, verified_root=self.verified_root))
            probs = paths.extended(parent, log_prob, source)
            rates = paths.going_on(nodes, log_prob, source)
            on, spent, ahead = [probs[node] for node in nodes], self.spent, list(probs)
            now = self._best(probs, spent)
            first: tuple[float, float] | None = None
            for _ in range(AHEAD):
                on = [prob * rate for prob, rate in zip(on, rates, strict=True)]
                spent, ahead = spent + cost, [*ahead, *on]
                then = self._best(ahead, spent)
                first = first or then
                if then[0] > now[0]:
                    break
            else:
                return _cost_gate(now, first or now)
        self.count(curve, len(nodes))
        return None

    def _best(self, probs: Sequence[float], spent: float) -> tuple[float, float]:
        """The most tokens per second with these nodes, and how many tokens."""
        gains = [0.0 if self.verified_root else probs[0], *sorted(probs[1:], reverse=True)]
        seconds = self._seconds(len(gains))
        size, rate = best_size(gains, seconds, spent)
        return rate, rate * (spent + seconds[size - 1])

    def _seconds(self, nodes: int, extra: int = 0) -> list[float]:
        """Of a target pass over 1, 2, … nodes, and `extra` further rows."""
        found: list[float] = seconds_by_rows(self.target, nodes + extra)[extra + 1 :].tolist()
        return found

    def restricted(self, draft: Draft) -> tuple[Draft, dict[int, int]]:
        """The part of a draft that is worth verifying, with the record of the choice, and new indices of its nodes."""
        tree, count, extra = draft.tree, len(draft.tree), len(draft.extra.token)
        if tree.candidate_sampling is not CandidateSampling.DETERMINISTIC:
            reason = f"all {count} nodes: to drop sampled candidates by their probability would bias the output"
            event = Event("budget", None, reason, {"verified": count, "drafted": count})
            return replace(draft, events=(*draft.events, event)), {}
        probs = self.model.path_probs(
            tree.parent.tolist(), tree.log_prob.tolist(), tree.source, verified_root=self.verified_root
        )
        choice = choose(probs, self._seconds(count, extra), self.spent, verified_root=self.verified_root)
        kept, new_index = (draft, dict[int, int]()) if all(choice.keep) else restrict(draft, choice, probs)
        events = LazyEvents(lambda: iter((*kept.events, _budget_event(choice, count))))
        record = partial(self._record, draft, kept, probs, new_index, self.spent)
        return replace(kept, events=events, budget=record), new_index

    def _record(
        self, draft: Draft, kept: Draft, probs: Sequence[float], new_index: Mapping[int, int], spent: float
    ) -> BudgetRecord:
        tops = {
            node: tuple([(token, exp(log_prob)) for token, log_prob in top])
            for node, top in draft.topk.items()
            if new_index and node not in new_index
        }
        return BudgetRecord(
            probabilities=(*probs[: 1 - self.verified_root], *sorted(probs[1:], reverse=True)),
            verified=len(kept.tree),
            verified_root=self.verified_root,
            extra=len(draft.extra.token),
            spent=spent,
            rows=self.target.rows,
            seconds=self.target.seconds,
            drafts=tuple([PassCost(one.name, one.rows, one.seconds) for one in self.drafts]),
            learned=self.model.counts,
            drafted=draft.tree if new_index else None,
            tops=tops,
        )

    def paused(self, root: int, worth: Worth) -> Draft:
        """Nothing but the root, since drafting does not pay."""
        draft = Draft(DraftTree.root(root))
        values = {"verified": 1, "drafted": 1, "gain": worth.mean_gain, "cost": worth.mean_cost, "tries_in": worth.rest}
        reason = (
            f"drafting does not pay here: {worth.mean_gain:.2f} tokens an iteration for the time of "
            f"{worth.mean_cost:.2f}; tried again in {worth.rest} iterations"
        )
        record = partial(replace, self._record(draft, draft, [1.0], {}, 0.0), paused=True)
        return replace(draft, events=(Event("budget", None, reason, values),), budget=record)


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
        self._acceptance, self._worth = AcceptanceModel(), Worth()
        self._cheap = not inner.runners and not inner.host_seconds
        """Whether drafting costs next to nothing, so that the choice of what to verify is enough."""
        self._drafted, self._cost = True, 0.0
        """Of this iteration: whether anything was drafted, and what it costs beyond plain decoding's, in tokens."""

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Logits:
        return self._inner.prefill(target, prompt_ids)

    def draft(self, context: Context) -> Draft:
        chooser = Chooser(self._acceptance, self._target, self._drafts, self._verified_root, self._inner.host_seconds)
        self._drafted = not self._verified_root or self._cheap or self._worth.drafts
        if not self._drafted:
            self._inner.skip(context)
            return chooser.paused(context.tokens[-1], self._worth)
        calls = sum(runner.calls for runner in self.runners)
        whole = self._inner.draft(replace(context, level_gate=chooser.level_gate))
        unseen = sum(runner.calls for runner in self.runners) - calls - chooser.passes
        if unseen > 0:  # of a strategy that does not ask before it drafts a level
            chooser.count(self._drafts[0], 1, unseen)
        draft, new_index = chooser.restricted(whole)
        if new_index:
            self._inner.on_pruned(new_index)
        rows = len(draft.tree) + len(draft.extra.token)
        passes, plain = seconds_by_rows(self._target, rows)[[rows, 1]].tolist()
        self._cost = (passes + chooser.spent) / plain - 1
        return draft

    def commit_cache(self, outcome: Outcome) -> None:
        self._inner.commit_cache(outcome)

    def update(self, outcome: Outcome) -> Adaptation:
        adaptation = self._inner.update(outcome)
        self.settings = self._inner.settings
        self._worth = self._worth.after(len(outcome.committed) - 1, self._cost, drafted=self._drafted)
        if outcome.tree.candidate_sampling is CandidateSampling.DETERMINISTIC:
            self._acceptance = self._acceptance.updated(outcome, verified_root=self._verified_root)
        return adaptation

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        self._inner.on_pruned(new_index)

    def lookup(self, token: int, previous: int | None = None) -> Lookup | None:
        return self._inner.lookup(token, previous)

    def snapshot(self) -> object:
        return self._inner.snapshot(), self._acceptance, self._worth

    def restore(self, state: object) -> None:
        learned, self._acceptance, self._worth = cast("tuple[object, AcceptanceModel, Worth]", state)
        self._inner.restore(learned)
        self.settings = self._inner.settings


def restrict(draft: Draft, choice: Choice, probs: Sequence[float]) -> tuple[Draft, dict[int, int]]:
    """The draft of the nodes that are kept, and the new index of each of them.

    A "prune" event stands for all that is left out below one node, its most probable first.
    """
    new_index = {node: index for index, node in enumerate(node for node, kept in enumerate(choice.keep) if kept)}

    def events() -> Iterator[Event]:
        for event in draft.events:
            if event.node is None:
                yield event
            elif event.node in new_index:
                yield replace(event, node=new_index[event.node])
        yield from _prune_events(draft, choice, probs, new_index)

    topk = Reindexed(draft.topk, new_index)
    return replace(draft, tree=draft.tree.select(choice.keep), events=LazyEvents(events), topk=topk), new_index


def _prune_events(
    draft: Draft, choice: Choice, probs: Sequence[float], new_index: Mapping[int, int]
) -> Iterator[Event]:
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
    verified = sum(choice.keep)
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


def _cost_gate(now: tuple[float, float], then: tuple[float, float]) -> Gate:
    """`now`, `then`: the most tokens per second and how many tokens, as the tree is and with another level."""
    (rate, tokens), (slower, more) = now, then
    gain, cost = max(more - tokens, 0.0), more / slower - tokens / rate
    reason = (
        f"another level may bring {gain:.2f} tokens for {1000 * cost:.2f} ms, and at {rate:.0f} tokens/s it "
        f"would have to bring {rate * cost:.2f}"
    )
    values = {"level_tokens": gain, "level_seconds": cost, "tokens_per_second": rate}
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
