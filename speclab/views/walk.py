"""The acceptance walk, decision by decision, read back from a Step; and the moments that phase stepping shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from speclab.trace.records import Event, Step
from speclab.tree import Bools

Phase = Literal["draft", "flatten", "verify", "accept", "commit", "adapt"]
PHASES: tuple[Phase, ...] = ("draft", "flatten", "verify", "accept", "commit", "adapt")


@dataclass(frozen=True, slots=True)
class Decision:
    """The target chose `choice` after node `at` (-1: before a drafted root); `winner` carries it, or nobody does."""

    at: int
    choice: int
    candidates: tuple[int, ...]
    winner: int | None


@dataclass(frozen=True, slots=True)
class Moment:
    """How much of an iteration is shown; by default all of it.

    `level` counts, in draft, the levels drafted so far (0: the root alone), in accept the decisions taken so far.
    `event` counts, in draft, the drafting events so far, in place of whole levels. None: the phase is over.
    """

    phase: Phase = "adapt"
    level: int | None = None
    event: int | None = None

    def reached(self, phase: Phase) -> bool:
        """Whether `phase` has begun."""
        return PHASES.index(self.phase) >= PHASES.index(phase)


WHOLE = Moment()


def verified_root(step: Step) -> bool:
    """Whether node 0 was the target's own token before the iteration began."""
    return step.nodes[0].verdict == "root"


def walk(step: Step) -> tuple[Decision, ...]:
    """The decisions in order; the last has no winner, unless the text ended inside the path."""
    decisions: list[Decision] = []
    todo = list(step.accepted)
    at = 0 if verified_root(step) else -1
    while True:
        winner = todo.pop(0) if todo else None
        if winner is None and step.bonus is None:
            return tuple(decisions)
        choice = _choice(step, at)
        decisions.append(Decision(at, choice, step.tree.children[at] if at >= 0 else (0,), winner))
        if winner is None:
            return tuple(decisions)
        at = winner


def _choice(step: Step, at: int) -> int:
    if at >= 0:
        return step.nodes[at].target_choice
    return int(step.tree.token[0]) if step.root_choice is None else step.root_choice


def last_on_path(step: Step) -> int:
    """The node after which the target's own token stands; -1 where a drafted root was rejected."""
    return step.accepted[-1] if step.accepted else (0 if verified_root(step) else -1)


def own_kind(step: Step) -> Literal["bonus", "corrected"]:
    """What the target's own token is: the bonus of a path accepted to its end, or a correction."""
    at = last_on_path(step)
    return "corrected" if at < 0 or step.tree.children[at] else "bonus"


def token_kinds(step: Step) -> tuple[tuple[int, int | None, str], ...]:
    """For each committed token: (token, its node or None, kind of look)."""
    nodes = [*step.accepted, *(None for _ in step.committed)][: len(step.committed)]
    own = own_kind(step)
    return tuple(
        (token, node, own if node is None else "accepted") for token, node in zip(step.committed, nodes, strict=True)
    )


def moments(step: Step) -> tuple[Moment, ...]:
    """Every moment of an iteration in order: what ‹ › steps through."""
    draft = [Moment("draft", level) for level in range(int(step.tree.depth.max()) + 1)]
    accept = [Moment("accept", level + 1) for level in range(len(walk(step)))]
    return (*draft, Moment("flatten"), Moment("verify"), *accept, Moment("commit"), Moment("adapt"))


def present(step: Step, moment: Moment = WHOLE) -> Bools:
    """`[n]` bool: the nodes drafted by then."""
    depth = step.tree.depth
    if moment.phase != "draft" or (moment.level is None and moment.event is None):
        return np.ones(len(step.tree), dtype=np.bool_)
    if moment.event is None:
        return depth <= (moment.level or 0)
    asked = {event.node for event in step.events[: moment.event] if event.kind == "expand"}
    shown = np.ones(len(step.tree), dtype=np.bool_)
    for node, parent in enumerate(step.tree.parent.tolist()):
        shown[node] = parent < 0 or (shown[parent] and parent in asked)
    return shown


def told(step: Step, moment: Moment = WHOLE) -> tuple[Event, ...]:
    """The drafting events up to then, in order; a level's decisions come before the next level, pruning comes last."""
    if moment.event is not None:
        return step.events[: moment.event]
    if moment.phase != "draft" or moment.level is None or moment.level >= step.tree.depth.max():
        return step.events
    depth, level = step.tree.depth, moment.level
    return tuple(
        event for event in step.events if event.kind != "prune" and (event.node is None or depth[event.node] < level)
    )


def verdicts(step: Step, moment: Moment = WHOLE) -> tuple[str, ...]:
    """For each node, what is known of it by then: a verdict, or "drafted" while the walk has not come by."""
    if moment.reached("commit") or (moment.phase == "accept" and moment.level is None):
        return tuple(node.verdict for node in step.nodes)
    taken = walk(step)[: moment.level or 0] if moment.phase == "accept" else ()
    known = {node for decision in taken for node in decision.candidates}
    return tuple(node.verdict if node.index in known or node.verdict == "root" else "drafted" for node in step.nodes)


def fresh(step: Step, moment: Moment = WHOLE) -> frozenset[int]:
    """The nodes that the last tick drafted or judged."""
    if moment.phase == "accept" and moment.level:
        return frozenset(node for decision in walk(step)[: moment.level][-1:] for node in decision.candidates)
    if moment.phase != "draft":
        return frozenset()
    now = present(step, moment)
    if moment.event is not None:
        now = now & ~present(step, Moment("draft", event=max(moment.event - 1, 0)))
    else:
        level = int(step.tree.depth.max()) if moment.level is None else moment.level
        now = now & (step.tree.depth == level)
    return frozenset(np.flatnonzero(now).tolist()) - {0}


def own_shown(step: Step, moment: Moment = WHOLE) -> bool:
    """Whether the target's own token is known by then."""
    if step.bonus is None:
        return False
    done = moment.phase == "accept" and (moment.level is None or moment.level >= len(walk(step)))
    return done or moment.reached("commit")
