"""What the tree of a step would have been under other settings, from its record; no model runs.

The strategy grows its tree as it always does, but the record answers in the draft's place: it holds the most probable
next tokens of every node that was expanded. Where the record ends, the result says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any, Self

from speclab.drafters import strategies
from speclab.drafters.base import Context, Draft, Strategy, TopK
from speclab.drafters.draft_forward import DRAFT, DraftForward, Row
from speclab.drafters.draft_head import DraftHead
from speclab.drafters.growth import GrownStrategy
from speclab.drafters.policies import BLANK
from speclab.engine.acceptance import Rule, sample_and_match
from speclab.errors import NotRecordedError
from speclab.settings import SessionSettings
from speclab.trace.records import Event, Step
from speclab.tree import CandidateSampling, DraftTree, Floats

_UNKNOWN = -1
GROWN = (GrownStrategy, DraftHead)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A tree that was not drafted.

    `recorded`: for each node of `tree` the same node of the step's tree, None where it is new. `unknown`: nodes that
    would have had children, or more of them, that the record does not hold; without any the tree is complete. `events`:
    the decisions that led to it, as far as they follow from the record.
    `accepted`: drafted nodes of the path that the target takes through it, None where the record cannot say; `settled`:
    whether the path ends there, and not only the record. `bonus`: the target's own token after it, None if unknown.
    """

    tree: DraftTree
    events: tuple[Event, ...]
    recorded: tuple[int | None, ...]
    unknown: tuple[int, ...]
    accepted: tuple[int, ...] | None
    settled: bool
    bonus: int | None


def in_force(step: Step) -> Strategy:
    """The strategy of a step, with the settings that were in force while it drafted.

    Raises:
        NotRecordedError: no strategy of this name is installed.
    """
    values = dict(step.settings)
    kind = strategies().get(str(values.pop("strategy", "")))
    if kind is None:
        raise NotRecordedError(
            f"no strategy is called {step.settings.get('strategy')!r} here, so its tree cannot be replayed"
        )
    return kind(**values)


def what_if(step: Step, strategy: Strategy, sampling: SessionSettings | None = None) -> WhatIf:
    """The tree that `strategy` would have drafted in place of this step's, as far as its record knows.

    Args:
        strategy: the settings in question, such as `in_force(step).changed(node_budget=8)`.
        sampling: the session's settings; greedy by default.

    Raises:
        NotRecordedError: the record cannot answer at all; it says why.
    """
    if step.tree.candidate_sampling is not CandidateSampling.DETERMINISTIC:
        raise NotRecordedError("its candidates were drawn at random, and the record holds no other draws")
    was = in_force(step)
    if not isinstance(strategy, GROWN) or not isinstance(was, GROWN):
        raise NotRecordedError("what this strategy drafts does not follow from the draft probabilities of a record")
    if strategy.draft_source != was.draft_source:
        raise NotRecordedError("another draft would have been asked, whose answers are not recorded")
    answers = _RecordedDraft(step)
    context = Context([int(step.tree.token[0])], _deepest(step), lambda: None, sampling or SessionSettings())
    draft = strategy.grow(answers, context)
    answers.check_root()
    return _verified(step, draft, answers.short)


class _RecordedDraft(DraftForward):
    """What a draft said, from a step: of the tree that was drafted, of which costs may have left some out."""

    def __init__(self, step: Step) -> None:
        self.short: set[int] = set()
        self.draft_probs = _NoProbabilities()
        self._tree, self._place = step.tree, dict[int, int | None]()
        self._tops: dict[int, Sequence[tuple[int, float]]] = {node.index: node.draft_top for node in step.nodes}
        wanted = {event.node: int(event.values.get("branches") or 0) for event in step.events if event.kind == "expand"}
        self._wanted = {node: branches for node, branches in wanted.items() if node is not None}
        self.source = next((name for name in reversed(self._tree.source) if name != "target"), DRAFT)
        self._root_choice, self._drafted_root = step.root_choice, False

    def after_root(self, _: Sequence[int]) -> TopK:
        return self._after(0, 0)

    def after_text(self, _: Sequence[int]) -> TopK:
        self._drafted_root = True
        return ((int(self._tree.token[0]), float(self._tree.log_prob[0])),)

    def after(self, rows: Sequence[Row]) -> list[TopK]:
        found = [0 if row.parent < 0 else _child(self._tree, self._place[row.parent], row.token) for row in rows]
        return [self._after(row.node, node) for row, node in zip(rows, found, strict=True)]

    def renumber(self, place: Mapping[int, int]) -> None:
        """Takes over the numbers of the finished tree; what is not in it was dropped, and so its children would be."""
        self.short = {place[node] for node in self.short if node in place}

    def check_root(self) -> None:
        """Refuses a tree on another root than the step's."""
        if self._drafted_root != (self._root_choice is not None):
            raise NotRecordedError("its root would have been another token, after which nothing is recorded")

    def _after(self, node: int, recorded: int | None) -> TopK:
        self._place[node] = recorded
        top = self._tops.get(recorded, ()) if recorded is not None else ()
        if recorded is None or not top:
            return ()
        # Children of the record have their exact log-probability; those of the others are within rounding.
        tree = self._tree
        exact = {int(tree.token[child]): float(tree.log_prob[child]) for child in tree.children[recorded]}
        rows = ((token, exact.get(token, log(prob) if prob > 0 else -inf)) for token, prob in top)
        whole = self._wanted.get(recorded, 0) > len(top)  # it wanted more, and there was no more
        return _Answer(rows, (lambda: None) if whole else lambda: self.short.add(node))


class _Answer(tuple[tuple[int, float], ...]):  # a tuple cannot have slots
    """A top that notices when more of it is asked for than there is."""

    _on_short: Callable[[], None]

    def __new__(cls, rows: Iterable[tuple[int, float]], on_short: Callable[[], None]) -> Self:
        made = super().__new__(cls, rows)
        made._on_short = on_short
        return made

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and key.stop is not None and key.stop > len(self):
            self._on_short()
        return super().__getitem__(key)


class _NoProbabilities(dict[int, Floats]):
    def __missing__(self, _: int) -> Floats:
        raise NotRecordedError("its candidates would be drawn at random, and the record holds only the most probable")


def _child(tree: DraftTree, parent: int | None, token: int) -> int | None:
    children = () if parent is None else tree.children[parent]
    return next((child for child in children if tree.token[child] == token), None)


def _deepest(step: Step) -> int:
    """The depth at which the models' context ended, if any path came to it."""
    gate = "the context"
    return next((int(event.values[gate] or 0) for event in step.events if gate in event.values), 1 << 30)


def _blank(events: Iterable[Event]) -> set[int]:
    """Nodes after which nothing was proposed."""
    return {event.node for event in events if event.node is not None and event.values.get("gate") == BLANK}


def _verified(step: Step, draft: Draft, short: set[int]) -> WhatIf:
    """The target's choices are recorded for every node of the step's tree, and a choice depends on its path alone."""
    tree, place = draft.tree, list[int | None]([0])
    for node in range(1, len(tree)):
        place.append(_child(step.tree, place[int(tree.parent[node])], int(tree.token[node])))
    known = _blank(step.events)
    unknown = tuple(sorted(short | {node for node in _blank(draft.events) if place[node] not in known}))
    choices = [_UNKNOWN if at is None else step.nodes[at].target_choice for at in place]
    if not Rule(step.rule or Rule.SAMPLE_AND_MATCH).follows_the_target:
        return WhatIf(tree, tuple(draft.events), tuple(place), unknown, None, False, None)
    path = sample_and_match(tree, choices.__getitem__, step.root_choice)
    ended = step.bonus is None and len(path.accepted) >= len(step.committed)
    accepted = path.accepted[: len(step.committed)] if ended else path.accepted
    last = accepted[-1] if accepted else 0
    rejected = not accepted and step.root_choice is not None
    settled = ended or rejected or (last not in unknown and (place[last] is not None or not tree.children[last]))
    bonus = None if ended or path.bonus == _UNKNOWN or not settled else path.bonus
    return WhatIf(tree, tuple(draft.events), tuple(place), unknown, accepted, settled, bonus)
