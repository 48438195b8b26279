"""The accept path, decision by decision, read back from a Step; and the positions that phase stepping shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from speclab.trace.records import Event, Step
from speclab.tree import Bools

Phase = Literal["draft", "flatten", "verify", "accept", "commit", "learn"]
PHASES: tuple[Phase, ...] = ("draft", "flatten", "verify", "accept", "commit", "learn")


@dataclass(frozen=True, slots=True)
class Decision:
    """The target chose `choice` after node `at` (-1: before a drafted root); `winner` carries it, or nobody does."""

    at: int
    choice: int
    candidates: tuple[int, ...]
    winner: int | None


@dataclass(frozen=True, slots=True)
class PlaybackPosition:
    """How much of an iteration is shown; by default all of it.

    `level` counts, in draft, the levels drafted so far (0: the root alone), in accept the decisions taken so far.
    None: the phase is over.
    """

    phase: Phase = "learn"
    level: int | None = None

    def reached(self, phase: Phase) -> bool:
        """Whether `phase` has begun."""
        return PHASES.index(self.phase) >= PHASES.index(phase)


WHOLE = PlaybackPosition()


def verified_root(step: Step) -> bool:
    """Whether node 0 was the target's own token before the iteration began."""
    return step.nodes[0].verdict == "root"


def decisions(step: Step) -> tuple[Decision, ...]:
    """The decisions in order; the last has no winner, unless the text ended inside the path."""
    found: list[Decision] = []
    todo = list(step.accepted)
    at = 0 if verified_root(step) else -1
    while True:
        winner = todo.pop(0) if todo else None
        if winner is None and step.bonus is None:
            return tuple(found)
        choice = _choice(step, at)
        found.append(Decision(at, choice, step.tree.children[at] if at >= 0 else (0,), winner))
        if winner is None:
            return tuple(found)
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
        [(token, node, own if node is None else "accepted") for token, node in zip(step.committed, nodes, strict=True)]
    )


def positions(step: Step) -> tuple[PlaybackPosition, ...]:
    """Every position of an iteration in order: what ‹ › steps through."""
    draft = [PlaybackPosition("draft", level) for level in range(int(step.tree.depth.max()) + 1)]
    accept = [PlaybackPosition("accept", level + 1) for level in range(len(decisions(step)))]
    return (
        *draft,
        PlaybackPosition("flatten"),
        PlaybackPosition("verify"),
        *accept,
        PlaybackPosition("commit"),
        PlaybackPosition("learn"),
    )


def present(step: Step, position: PlaybackPosition = WHOLE) -> Bools:
    """`[n]` bool: the nodes drafted by then."""
    if position.phase != "draft" or position.level is None:
        return np.ones(len(step.tree), dtype=np.bool_)
    return step.tree.depth <= position.level


def events_until(step: Step, position: PlaybackPosition = WHOLE) -> tuple[Event, ...]:
    """The drafting events up to then, in order; a level's decisions come before the next level, pruning comes last."""
    if position.phase != "draft" or position.level is None or position.level >= step.tree.depth.max():
        return step.events
    depth, level = step.tree.depth, position.level
    return tuple(
        [event for event in step.events if event.kind != "prune" and (event.node is None or depth[event.node] < level)]
    )


def verdicts(step: Step, position: PlaybackPosition = WHOLE) -> tuple[str, ...]:
    """For each node, what is known of it by then: a verdict, or "drafted" while the accept path has not come by."""
    if position.reached("commit") or (position.phase == "accept" and position.level is None):
        return tuple([node.verdict for node in step.nodes])
    taken = decisions(step)[: position.level or 0] if position.phase == "accept" else ()
    known = {node for decision in taken for node in decision.candidates}
    return tuple([node.verdict if node.index in known or node.verdict == "root" else "drafted" for node in step.nodes])


def fresh(step: Step, position: PlaybackPosition = WHOLE) -> frozenset[int]:
    """The nodes that the last tick drafted or judged."""
    if position.phase == "accept" and position.level:
        return frozenset(node for decision in decisions(step)[: position.level][-1:] for node in decision.candidates)
    if position.phase != "draft":
        return frozenset()
    level = int(step.tree.depth.max()) if position.level is None else position.level
    return frozenset(np.flatnonzero(step.tree.depth == level).tolist()) - {0}


def own_shown(step: Step, position: PlaybackPosition = WHOLE) -> bool:
    """Whether the target's own token is known by then."""
    if step.bonus is None:
        return False
    done = position.phase == "accept" and (position.level is None or position.level >= len(decisions(step)))
    return done or position.reached("commit")
