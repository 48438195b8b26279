"""Two drafters side by side: which tree is verified, and how both come to stand on the same text again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from speclab.drafters.base import Context, Draft, Drafter, Outcome, Strategy
from speclab.drafters.merging import Places, merged
from speclab.errors import SettingsError
from speclab.lookup import Lookup
from speclab.trace import Adaptation, Event, Proposal, Value
from speclab.tree import DraftTree, Law

if TYPE_CHECKING:
    from torch import Tensor

    from speclab.drafters.dual_draft import DualDraft
    from speclab.models.runner import Runner

_ALONE = {"first": (0,), "second": (1,)}


@dataclass(frozen=True, slots=True)
class Part:
    """One of the two drafters, and what pictures and records call it."""

    name: str
    drafter: Drafter


def confidence(tree: DraftTree) -> float:
    """Mean of exp(cumulative log-probability) over the nodes but the root, 0…1; 0 where there are none.

    Dual-Draft Routing, sections 4 (c) and 5 (mu).
    """
    return float(np.exp(tree.path_log_prob[1:]).mean()) if len(tree) > 1 else 0.0


class DualDrafter(Drafter):
    """Drafts with one of its parts or with both, and has one tree verified: the better one, or the union.

    Every part then goes on from the committed text, whatever it had proposed (interchangeability, section 7).
    """

    settings: DualDraft

    def __init__(self, settings: DualDraft, parts: Sequence[Part]) -> None:
        super().__init__(settings)
        self._parts = tuple(parts)
        self._active = _ALONE.get(settings.mode, (0, 1))
        self.runners = tuple(runner for place in self._active for runner in parts[place].drafter.runners)
        self._drafts: dict[int, Draft] = {}
        self._places: dict[int, Places] = {}
        """Of the parts whose nodes are verified: where these stand in the tree."""

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Tensor:
        """One pass for all parts that do not look at it, and one for each that does."""
        drafters = [self._parts[place].drafter for place in self._active]
        looking = [drafter for drafter in drafters if type(drafter).prefill is not Drafter.prefill]
        for drafter in looking[:-1]:
            drafter.prefill(target, prompt_ids)
            target.crop(0)
        return (looking or drafters)[-1].prefill(target, prompt_ids)

    def draft(self, context: Context) -> Draft:
        self._drafts = {place: self._parts[place].drafter.draft(context) for place in self._active}
        if len(self._active) == 1:
            return self._alone(self._active[0])
        for place, draft in self._drafts.items():
            if draft.tree.law is not Law.DETERMINISTIC:
                raise SettingsError(
                    f"DualDraft: {self._parts[place].name} draws its candidates, and to choose between draws changes "
                    "the output: set its candidates to 'top', or draft with it alone by mode='first' or 'second'"
                )
        return self._merged() if self.settings.mode == "merge" else self._routed()

    def settle(self, outcome: Outcome) -> None:
        """Brings every part that drafted to the committed text; each keeps of its own tree what was accepted."""
        for place in self._drafts:
            self._parts[place].drafter.settle(self._seen(place, outcome))

    def learn(self, outcome: Outcome) -> Adaptation:
        """The parts whose nodes were verified learn from these."""
        learned = [
            (self._parts[place], self._parts[place].drafter.learn(self._seen(place, outcome))) for place in self._places
        ]
        own = {"first": self.settings.first, "second": self.settings.second}
        now = {
            name: part.drafter.settings for name, part in zip(own, self._parts, strict=True) if own[name] is not None
        }
        if any(own[name] != settings for name, settings in now.items()):
            self.settings = self.settings.model_copy(update=now)
        if len(learned) == 1:
            return learned[0][1]
        return Adaptation(
            "; ".join(f"{part.name}: {adaptation.reason}" for part, adaptation in learned),
            {f"{part.name}: {name}": value for part, it in learned for name, value in it.before.items()},
            {f"{part.name}: {name}": value for part, it in learned for name, value in it.after.items()},
        )

    def lookup(self, token: int, previous: int | None = None) -> Lookup | None:
        found = (self._parts[place].drafter.lookup(token, previous) for place in self._active)
        return next((lookup for lookup in found if lookup is not None), None)

    def snapshot(self) -> object:
        return self.settings, tuple(part.drafter.snapshot() for part in self._parts)

    def restore(self, state: object) -> None:
        settings, learned = cast("tuple[Strategy, tuple[object, ...]]", state)
        self.settings = cast("DualDraft", settings)
        for part, own in zip(self._parts, learned, strict=True):
            part.drafter.restore(own)

    def _alone(self, place: int) -> Draft:
        draft = self._drafts[place]
        self._places = {place: tuple(range(len(draft.tree)))}
        return draft

    def _routed(self) -> Draft:
        """The tree of the larger mean confidence; of two equal ones the first (section 5)."""
        means = [confidence(draft.tree) for draft in self._drafts.values()]
        chosen = int(means[1] > means[0])
        draft = self._alone(chosen)
        return replace(
            draft,
            events=(self._decision(means, chosen), *draft.events),
            proposals=self._proposals(means, [place == chosen for place in self._active]),
        )

    def _merged(self) -> Draft:
        """Both trees as one prefix trie (section 10)."""
        drafts = list(self._drafts.values())
        means = [confidence(draft.tree) for draft in drafts]
        draft, places = merged(drafts, [part.name for part in self._parts])
        self._places = dict(enumerate(places))
        nodes = [len(one.tree) - 1 for one in drafts]
        shared = sum(nodes) - (len(draft.tree) - 1)
        reason = f"both trees as one: {nodes[0]} and {nodes[1]} nodes, {shared} in common"
        values: dict[str, Value] = {"route": "merge", "mean_first": means[0], "mean_second": means[1]}
        event = Event("route", None, reason, values | {"nodes": len(draft.tree), "shared": shared})
        return replace(draft, events=(event, *draft.events), proposals=self._proposals(means, [True, True]))

    def _decision(self, means: Sequence[float], chosen: int) -> Event:
        name, other = self._parts[chosen].name, self._parts[1 - chosen].name
        sign = "=" if means[0] == means[1] else ">"
        values: dict[str, Value] = {
            "route": name,
            "mean_first": means[0],
            "mean_second": means[1],
            "margin": means[chosen] - means[1 - chosen],
            "chosen": ("first", "second")[chosen],
            "nodes": len(self._drafts[chosen].tree),
            "nodes_first": len(self._drafts[0].tree),
            "nodes_second": len(self._drafts[1].tree),
        }
        reason = f"{name}: mean confidence {means[chosen]:.3f} {sign} {means[1 - chosen]:.3f} of {other}"
        return Event("route", None, reason, values)

    def _proposals(self, means: Sequence[float], chosen: Sequence[bool]) -> tuple[Proposal, ...]:
        rows = zip(self._parts, self._drafts.values(), means, chosen, strict=True)
        return tuple(Proposal(part.name, draft.tree, mean, mean, took) for part, draft, mean, took in rows)

    def _seen(self, place: int, outcome: Outcome) -> Outcome:
        """The outcome as a part sees it on its own tree: what it shares with the accepted path, its nodes' logits."""
        draft = self._drafts[place]
        if draft.tree is outcome.tree:
            return outcome
        accepted = draft.tree.follow([int(outcome.tree.token[node]) for node in outcome.accepted])
        rows, nodes = len(draft.extra.token), list(self._places.get(place, ()))
        start = sum(len(self._drafts[before].extra.token) for before in range(place))
        extra = outcome.extra[start : start + rows] if nodes else outcome.extra[:0]
        return Outcome(draft.tree, accepted, outcome.committed, outcome.logits[nodes], extra)
