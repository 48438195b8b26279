"""The state of each node at each position of an iteration's phases, computed from its Step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from speclab.errors import SettingsError
from speclab.trace.records import Event, Step

Phase = Literal["draft", "flatten", "verify", "accept", "commit", "all"]
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True, slots=True)
class Position:
    """A position within an iteration; the default is its end.

    `level` counts the levels drafted so far in draft (0: only the root), and the decisions so far
    in accept; None: the end of the phase.
    """

    phase: Phase = "all"
    level: int | None = None

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise SettingsError(
                f"There is no phase {self.phase!r}: choose one of {', '.join(PHASES)}."
            )

    def reached(self, phase: Phase) -> bool:
        """Whether `phase` has begun."""
        return PHASES.index(self.phase) >= PHASES.index(phase)


WHOLE = Position()


@dataclass(frozen=True, slots=True)
class Decision:
    """The target chose `choice` after node `node` (-1: before a drafted root).

    `winner`: the candidate with that token, None if no candidate has it.
    """

    node: int
    choice: int
    candidates: tuple[int, ...]
    winner: int | None


def verified_root(step: Step) -> bool:
    """Whether node 0 was committed before the iteration began."""
    return step.nodes[0].verdict == "root"


def last_on_path(step: Step) -> int:
    """The node that the target's own token follows; -1 if a drafted root was rejected."""
    if step.accepted:
        return step.accepted[-1]
    return 0 if verified_root(step) else -1


def own_kind(step: Step) -> Literal["bonus", "corrected"]:
    """ "bonus" if the path was accepted to a leaf, "corrected" if the target rejected every candidate."""
    node = last_on_path(step)
    return "corrected" if node < 0 or step.tree.children[node] else "bonus"


def decisions(step: Step) -> list[Decision]:
    """The acceptance decisions in order; the last has no winner unless the text ended inside the path."""
    node = 0 if verified_root(step) else -1
    before = int(step.tree.token[0]) if step.root_choice is None else step.root_choice
    taken = []
    winners: list[int | None] = [*step.accepted]
    if step.bonus is not None:
        winners.append(None)
    for winner in winners:
        candidates = step.tree.children[node] if node >= 0 else (0,)
        choice = step.nodes[node].target_choice if node >= 0 else before
        taken.append(Decision(node, choice, candidates, winner))
        node = node if winner is None else winner
    return taken


def growth(step: Step) -> list[int]:
    """For each node when it was drafted: its depth, or its number in the order in which a heap gave it."""
    order = {event.node: event.values["order"] for event in step.events if event.kind == "pop"}
    return (
        [int(order.get(node) or 0) for node in range(len(step.tree))]
        if order
        else step.tree.depth.tolist()
    )


def positions(step: Step) -> list[Position]:
    """Every position of an iteration in order."""
    draft = [Position("draft", level) for level in range(max(growth(step)) + 1)]
    accept = [Position("accept", level + 1) for level in range(len(decisions(step)))]
    after = [Position("commit"), WHOLE]
    return [*draft, Position("flatten"), Position("verify"), *accept, *after]


def node_kinds(step: Step, position: Position = WHOLE) -> list[str | None]:
    """A key of `LOOKS` per node; "drafted" before its verdict, None before it is drafted."""
    kinds: list[str | None] = [node.verdict for node in step.nodes]
    if position.reached("commit") or (position.phase == "accept" and position.level is None):
        return kinds
    decided = decisions(step)[: position.level] if position.phase == "accept" else []
    known = {node for decision in decided for node in decision.candidates}
    drafted = growth(step)
    for node, verdict in enumerate(kinds):
        if node not in known and verdict != "root":
            kinds[node] = "drafted"
        if (
            position.phase == "draft"
            and position.level is not None
            and drafted[node] > position.level
        ):
            kinds[node] = None
    return kinds


def own_shown(step: Step, position: Position = WHOLE) -> bool:
    """Whether the target's own token is known at this position."""
    if step.bonus is None:
        return False
    ended = position.level is None or position.level >= len(decisions(step))
    return position.reached("commit") or (position.phase == "accept" and ended)


def fresh(step: Step, position: Position = WHOLE) -> set[int]:
    """The nodes that this position adds or judges."""
    if position.level is None:
        return set()
    if position.phase == "accept":
        return {
            node
            for decision in decisions(step)[position.level - 1 : position.level]
            for node in decision.candidates
        }
    return {node for node, level in enumerate(growth(step)) if level == position.level and node}


def events_until(step: Step, position: Position = WHOLE) -> list[Event]:
    """The drafting events so far: a level's decisions come before the next level, pruning comes last."""
    level = position.level
    drafted = growth(step)
    if position.phase != "draft" or level is None or level >= max(drafted):
        return list(step.events)
    early = [event for event in step.events if event.kind != "prune"]
    return [
        event
        for event in early
        if event.node is None or drafted[event.node] < level + (event.kind == "pop")
    ]
