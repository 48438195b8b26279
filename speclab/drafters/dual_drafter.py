"""Two drafters side by side: which tree is verified, and how both come to stand on the same text again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from speclab.drafters.base import Context, Draft, Drafter, Outcome
from speclab.drafters.choosing import routed, united
from speclab.drafters.merging import Places
from speclab.drafters.scores import FIRST, faded
from speclab.errors import SettingsError
from speclab.trace.records import Adaptation, Lookup
from speclab.tree import CandidateSampling

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
        self._recent = (FIRST, FIRST)
        """Tokens of each part's trees that the text followed lately."""
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
        if len(self._active) > 1:
            context = replace(context, level_gate=None)  # both trees grow as ever, or their means would not compare
        self._drafts = {place: self._parts[place].drafter.draft(context) for place in self._active}
        if len(self._active) == 1:
            return self._alone(self._active[0])
        for place, draft in self._drafts.items():
            if draft.tree.candidate_sampling is not CandidateSampling.DETERMINISTIC:
                raise SettingsError(
                    f"DualDraft: {self._parts[place].name} draws its candidates, and to choose between draws changes "
                    "the output: set its candidates to 'top', or draft with it alone by mode='first' or 'second'"
                )
        return self._merged() if self.settings.mode == "merge" else self._routed()

    def on_pruned(self, new_index: Mapping[int, int]) -> None:
        """Of each part that is verified, what is left of its own tree."""
        for part, nodes in self._places.items():
            kept = [node for node, at in enumerate(nodes) if at in new_index]
            own = {node: index for index, node in enumerate(kept)}
            draft = self._drafts[part]
            tree = draft.tree.select([node in own for node in range(len(nodes))])
            self._drafts[part] = replace(draft, tree=tree)
            self._places[part] = tuple(new_index[nodes[node]] for node in kept)
            self._parts[part].drafter.on_pruned(own)

    def commit_cache(self, outcome: Outcome) -> None:
        """Brings every part that drafted to the committed text; each keeps of its own tree what was accepted."""
        for place in self._drafts:
            self._parts[place].drafter.commit_cache(self._seen(place, outcome))

    def update(self, outcome: Outcome) -> Adaptation:
        """The parts whose nodes were verified learn from these."""
        learned = [
            (self._parts[place], self._parts[place].drafter.update(self._seen(place, outcome)))
            for place in self._places
        ]
        own = {"first": self.settings.first, "second": self.settings.second}
        now = {
            name: part.drafter.settings for name, part in zip(own, self._parts, strict=True) if own[name] is not None
        }
        if any(own[name] != settings for name, settings in now.items()):
            self.settings = self.settings.model_copy(update=now)
        if self.settings.mode == "route" and self.settings.confidence == "recent":
            return self._remember(outcome, learned[0][1])
        return learned[0][1] if len(learned) == 1 else _together(learned)

    def lookup(self, token: int, previous: int | None = None) -> Lookup | None:
        found = (self._parts[place].drafter.lookup(token, previous) for place in self._active)
        return next((lookup for lookup in found if lookup is not None), None)

    def snapshot(self) -> object:
        return self.settings, self._recent, tuple(part.drafter.snapshot() for part in self._parts)

    def restore(self, state: object) -> None:
        self.settings, self._recent, learned = cast("tuple[DualDraft, tuple[float, float], tuple[object, ...]]", state)
        for part, own in zip(self._parts, learned, strict=True):
            part.drafter.restore(own)

    def _alone(self, place: int) -> Draft:
        draft = self._drafts[place]
        self._places = {place: tuple(range(len(draft.tree)))}
        return draft

    def _routed(self) -> Draft:
        recent = self._recent if self.settings.confidence == "recent" else None
        draft, chosen = routed(self._names, list(self._drafts.values()), recent)
        self._places = {chosen: tuple(range(len(draft.tree)))}
        return draft

    def _merged(self) -> Draft:
        draft, places = united(self._names, list(self._drafts.values()))
        self._places = dict(enumerate(places))
        return draft

    @property
    def _names(self) -> list[str]:
        return [part.name for part in self._parts]

    def _remember(self, outcome: Outcome, learned: Adaptation) -> Adaptation:
        """What each tree, chosen or not, had in common with the committed text."""
        before = self._recent
        followed = [len(draft.tree.follow(outcome.committed)) for draft in self._drafts.values()]
        self._recent = cast("tuple[float, float]", faded(before, followed))
        right = ", ".join(f"{count} of {name}" for count, name in zip(followed, self._names, strict=True))
        return Adaptation(
            f"drafted tokens that were right: {right}; {learned.reason}",
            {**learned.before, "recent_first": before[0], "recent_second": before[1]},
            {**learned.after, "recent_first": self._recent[0], "recent_second": self._recent[1]},
        )

    def _seen(self, place: int, outcome: Outcome) -> Outcome:
        """The outcome as a part sees it on its own tree: what it shares with the accepted path, its nodes' logits."""
        draft = self._drafts[place]
        if draft.tree is outcome.tree:
            return outcome
        accepted = draft.tree.follow([int(outcome.tree.token[node]) for node in outcome.accepted])
        rows, nodes = len(draft.extra.token), list(self._places.get(place, ()))
        start = sum(len(draft.extra.token) for before, draft in self._drafts.items() if before < place)
        extra = outcome.extra[start : start + rows] if nodes else outcome.extra[:0]
        return Outcome(draft.tree, accepted, outcome.committed, outcome.logits[nodes], extra)


def _together(learned: Sequence[tuple[Part, Adaptation]]) -> Adaptation:
    return Adaptation(
        "; ".join(f"{part.name}: {adaptation.reason}" for part, adaptation in learned),
        {f"{part.name}: {name}": value for part, it in learned for name, value in it.before.items()},
        {f"{part.name}: {name}": value for part, it in learned for name, value in it.after.items()},
    )
