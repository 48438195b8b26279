"""What Dual-Draft Routing would have had verified, from the two trees that a step recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from speclab.drafters.base import Draft, ReplayContext
from speclab.drafters.choosing import Pair, routed, united
from speclab.errors import NotRecordedError
from speclab.trace.records import Step, Value

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.drafters.dual_draft import DualDraft
    from speclab.tree import DraftTree

_PLACES = ("first", "second")


def replay(settings: DualDraft, was: DualDraft, record: ReplayContext) -> Draft | None:
    """The tree under other settings, where both trees, or what is left of them, are recorded.

    Raises:
        NotRecordedError: it takes a tree that was not drafted, or more than the nodes of one that was.
    """
    step = record.step
    if not step.proposals:
        return _alone(settings, was, record)
    trees = [_left(settings.part(place), was.part(place), step, place) for place in (0, 1)]
    names, drafts = [one.name for one in step.proposals], [Draft(tree) for tree in trees]
    if settings.mode in _PLACES:
        return drafts[_PLACES.index(settings.mode)]
    if settings.mode == "merge":
        return united(names, drafts)[0]
    recent = _recent(step.adaptation.before) if settings.confidence == "recent" else None
    return routed(names, drafts, recent)[0]


def _alone(settings: DualDraft, was: DualDraft, record: ReplayContext) -> Draft | None:
    """One part drafted, and what it was asked is recorded as of any strategy."""
    if settings.mode != was.mode:
        raise NotRecordedError(f"mode {was.mode!r} drafted one tree alone, and the other is not recorded")
    place = _PLACES.index(was.mode)
    now, then = settings.part(place), was.part(place)
    if type(now) is not type(then) or now.draft_source != then.draft_source:
        raise NotRecordedError(f"{type(now).__name__} drafts in another way")
    return now.replay(replace(record, was=then))


def _left(now: Strategy, then: Strategy, step: Step, place: int) -> DraftTree:
    one = step.proposals[place]
    tree = now.restrict(one.tree, then) if type(now) is type(then) else None
    if tree is None:
        raise NotRecordedError(
            f"of the tree of {one.name} the record holds the nodes alone: what a smaller budget leaves of the "
            "likeliest ones can be told, and no other change"
        )
    return tree


def _recent(known: Mapping[str, Value]) -> Pair:
    found = [known.get(f"recent_{name}") for name in _PLACES]
    if not all(isinstance(value, float) for value in found):
        raise NotRecordedError("what each part got right lately is kept only while trees are compared by it")
    return float(found[0] or 0), float(found[1] or 0)
