"""Compute the tree that other settings would have drafted in a step, from its record and without a
model.

`speclab.drafters.grow` grows the tree, and the record answers in place of the draft: it contains
the most probable next tokens of every expanded node. The result marks the nodes where the record
ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any

from speclab.display import line, table
from speclab.drafters import in_force
from speclab.drafters.base import Strategy, TopK, checked
from speclab.drafters.ddtree import best_paths
from speclab.drafters.draft_pass import DRAFT, TOP_K
from speclab.drafters.grow import BLANK, CONTEXT, Grown, GrownStrategy, Nodes, grow
from speclab.errors import NotRecordedError
from speclab.settings import SessionSettings
from speclab.trace.records import UNKNOWN, Event, Step, step_of
from speclab.tree import CandidateSampling, DraftTree
from speclab.views.run_data import Data, tree_data

_OF_A_NODE = ("expand", "stop")
"""Kinds of events: each node has one."""


@dataclass(frozen=True)
class WhatIf:
    """A tree that was not drafted.

    `recorded`: for each node of `tree` the same node of the step's tree, None if it is new.
    `unknown`: nodes with further children that the record does not contain; if empty, the tree is
    complete. `events`: the decisions that follow from the record. `accepted`: drafted nodes that
    the target would accept; `settled`: False if the record ends before the path does. `bonus`: the
    target's own token after the path, None if unknown.
    """

    tree: DraftTree
    events: tuple[Event, ...]
    recorded: tuple[int | None, ...]
    unknown: tuple[int, ...]
    accepted: tuple[int, ...]
    settled: bool
    bonus: int | None

    def __repr__(self) -> str:
        return line("WhatIf", **self._facts())

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return table([self._facts()])

    def data(self) -> Data:
        """The tree as the page draws it."""
        return {
            **tree_data(self.tree, self.recorded),
            "accepted": list(self.accepted),
            "bonus": self.bonus,
            "unknown": list(self.unknown),
            "settled": self.settled,
            "by": "settings",
        }

    def _facts(self) -> dict[str, int | bool]:
        return {
            "nodes": len(self.tree),
            "new": self.recorded.count(None),
            "accepted": len(self.accepted),
            "unknown": len(self.unknown),
            "settled": self.settled,
        }


def what_if(step: Step, strategy: Strategy, sampling: SessionSettings | None = None) -> WhatIf:
    """The tree that `strategy` would have drafted in this step, as far as the record contains it.

    Args:
        strategy: the other settings, such as `in_force(step).changed(node_budget=8)`.
        sampling: the session's settings; greedy by default.

    Raises:
        NotRecordedError: the record cannot answer; the message names the reason.
        SettingsError: `step` is no iteration, or `strategy` no strategy.
    """
    was = in_force(step_of(step))
    for settings in (was, checked(strategy)):
        if not (settings.from_block or isinstance(settings, GrownStrategy)):
            raise NotRecordedError(
                f"What {type(settings).__name__} drafts does not follow from a draft model's recorded "
                "probabilities: fork the session to decode the iteration again."
            )
    # what a tree is drafted with, of a block also what its distributions depend on
    names = ("from_block", "head", "condition")
    if any(getattr(strategy, name, None) != getattr(was, name, None) for name in names):
        raise NotRecordedError(
            "This setting uses a different draft, which this step did not record."
        )
    drawn = (
        getattr(strategy, "candidates", "top") != "top"
        and sampling is not None
        and sampling.temperature > 0
    )
    if drawn or step.tree.candidate_sampling is not CandidateSampling.DETERMINISTIC:
        raise NotRecordedError(
            "Candidates drawn at random do not follow from a record: fork the session instead."
        )
    if (getattr(strategy, "root", "verified") == "drafted") != (0 in step.drafted):
        raise NotRecordedError(
            "The root would have been another token, and nothing is recorded after it."
        )
    if strategy.is_auto:
        budget = getattr(was, "node_budget", None)
        if budget is None:
            raise NotRecordedError(
                "A measured node budget is not in this record: set node_budget to a number."
            )
        strategy = strategy.changed(node_budget=budget)
    if strategy.from_block:
        return _block(step, strategy.number_of_nodes, was.number_of_nodes)
    assert isinstance(strategy, GrownStrategy)
    record = _Record(step)
    root = step.tree.select([node == 0 for node in range(len(step.tree))])
    name = _name(step)
    return _grown(step, grow(strategy.shape(), record.next_tokens, root, _room(step), name))


def _room(step: Step) -> int:
    """The depth at which a context ended, as far as it is recorded."""
    for event in step.events:
        if event.values.get("gate") == CONTEXT:
            return int(event.values["threshold"] or 0)
    return 1 << 30


def _name(step: Step) -> str:
    return next((name for name in reversed(step.tree.source) if name != "target"), DRAFT)


def _block(step: Step, budget: int, was_budget: int) -> WhatIf:
    """As `DDTree`: by the record's distribution after the same path, or, without a bias, at the same depth."""
    marginals = [event for event in step.events if event.kind == "marginal"]
    record = _Record(step)
    at_depth: dict[int, TopK] = {}
    if marginals:
        depths = step.tree.depth.tolist()
        at_depth = {depth: record.top(node) for node, depth in enumerate(depths)}
    found: list[int | None] = []  # the same node of the step's tree, by path

    def after(parent: int, depth: int, token: int) -> TopK:
        node: int | None = 0
        if found:
            node = _child(step.tree, found[parent], token)
        found.append(node)
        if node is None:
            return at_depth.get(depth, ())
        return record.top(node)

    paths, events = best_paths(after, int(step.tree.token[0]), budget - 1, _name(step))
    draft = paths.draft(marginals + events)
    reach = len(marginals) or 1 << 30
    order = paths.tree()[1]
    unknown = set[int]()
    for node, number in enumerate(order):
        held = len(paths.known(number).tokens)
        lost = not held and found[number] is None and paths.depth[number] < reach
        if lost or len(paths.children[number]) == held >= max(was_budget - 1, TOP_K):
            unknown.add(node)
    return _verified(step, draft.tree, draft.events, [found[number] for number in order], unknown)


class _Record:
    def __init__(self, step: Step) -> None:
        self._step = step
        self._recorded: dict[int, int | None] = {0: 0}
        """For each node of the growing tree, the same node of the step's tree; None if it is new."""

    def next_tokens(self, tree: Nodes, nodes: Sequence[int]) -> list[TopK]:
        return [self._after(tree, node) for node in nodes]

    def _after(self, tree: Nodes, node: int) -> TopK:
        recorded = self._recorded.get(node)
        if node:
            recorded = _child(self._step.tree, self._recorded[tree.parent[node]], tree.token[node])
            self._recorded[node] = recorded
        if recorded is None:
            return ()
        return self.top(recorded)

    def top(self, recorded: int) -> TopK:
        """The next tokens after a node of the step's tree."""
        tree = self._step.tree
        top: list[tuple[int, float]] = []
        for token, prob in self._step.nodes[recorded].draft_top:
            log_prob = -inf
            if prob > 0:
                log_prob = log(prob)
            child = tree.child(recorded, token)
            if child is not None:  # its log-probability is exact, that of other tokens rounded
                log_prob = float(tree.log_prob[child])
            top.append((token, log_prob))
        return tuple(top)


def _child(tree: DraftTree, parent: int | None, token: int) -> int | None:
    if parent is None:
        return None
    return tree.child(parent, token)


def _grown(step: Step, grown: Grown) -> WhatIf:
    tree = grown.tree
    recorded = list[int | None]([0])
    for node in range(1, len(tree)):
        recorded.append(_child(step.tree, recorded[int(tree.parent[node])], int(tree.token[node])))

    # A node lacks children if the record holds fewer tokens than it wants, unless the draft
    # proposed no more of them.
    decided = {event.node: event.values for event in step.events if event.kind in _OF_A_NODE}
    unknown = set[int]()
    for event in grown.events:
        if event.kind not in _OF_A_NODE or event.node is None:
            continue
        was = decided.get(recorded[event.node], {})
        if event.kind == "stop":
            lacking = event.values["gate"] == BLANK != was.get("gate")
        else:
            held = len(grown.topk[event.node])
            lacking = int(event.values["branches"] or 0) > held >= int(was.get("branches") or 0)
        if lacking:
            unknown.add(event.node)
    return _verified(step, tree, grown.events, recorded, unknown)


def _verified(
    step: Step,
    tree: DraftTree,
    events: Sequence[Event],
    recorded: Sequence[int | None],
    unknown: set[int],
) -> WhatIf:
    """Accept with the recorded choices: the target's choice after a node depends only on its path."""
    # it needs torch, and a lab is shown before that is imported
    from speclab.engine.acceptance import sample_and_match

    def choice(node: int) -> int:
        row = recorded[node]
        if row is None:
            return UNKNOWN
        return step.nodes[row].target_choice

    path = sample_and_match(tree, choice, step.root_choice)
    accepted = path.accepted
    ended = step.bonus is None and len(accepted) >= len(step.committed)
    if ended:
        accepted = accepted[: len(step.committed)]
    last = max(accepted, default=0)
    rejected = not accepted and 0 in step.drafted
    settled = (
        ended
        or rejected
        or (last not in unknown and (recorded[last] is not None or not tree.children[last]))
    )
    bonus = None
    if settled and not ended and path.bonus != UNKNOWN:
        bonus = path.bonus
    return WhatIf(
        tree, tuple(events), tuple(recorded), tuple(sorted(unknown)), accepted, settled, bonus
    )
