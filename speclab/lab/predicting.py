"""Predict mode: an iteration is shown as drafted, a person says what will be accepted, and then it is revealed.

What is hidden is not in the frame at all: views, tooltips, snapshots and files are made of a record without verdicts,
in a run that ends before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speclab.errors import SettingsError
from speclab.lab.prediction import Score
from speclab.trace.metrics import Counts
from speclab.trace.records import Adaptation, Step, Trace
from speclab.views.explain import ending, plural
from speclab.views.export import describe
from speclab.views.playback import PlaybackPosition, verified_root
from speclab.views.registry import Frame

LAST = PlaybackPosition("flatten")
"""The last moment before the target has its say."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was predicted: the nodes accepted, or the tokens of the pass, or one count of hands per number of tokens."""

    marked: frozenset[int] | None = None
    tokens: int | None = None
    hands: tuple[int, ...] = ()

    @property
    def said(self) -> int | None:
        """The number of tokens: as said, or, of a class, as most hands have it."""
        most = max(self.hands, default=0)
        return self.tokens if self.tokens is not None or not most else self.hands.index(most) + 1

    def judged(self, step: Step) -> tuple[bool | None, str]:
        """Whether it is right, None where nothing was predicted, and that in words."""
        tokens = len(step.committed)
        gave = f"the pass gave {plural(tokens, 'token')}"
        right: bool | None = None
        words = f"{gave[0].upper()}{gave[1:]}."
        if self.marked is not None:
            right = self.marked == {*step.accepted}
            same = f"✓ Right: you marked {_named(self.marked)}, and the target accepted just that; {gave}."
            words = same if right else f"✗ You marked {_named(self.marked)}; accepted: {_named(step.accepted)}; {gave}."
        elif self.said is not None:
            right = self.said == tokens
            said = f"{'you' if self.tokens is not None else 'most hands'} said {self.said}"
            words = f"✓ Right: {said}, and {gave}." if right else f"✗ {said[0].upper()}{said[1:]}; {gave}."
        if sum(self.hands):
            hit = self.hands[tokens - 1] if tokens <= len(self.hands) else 0
            words += f" {hit} of {plural(sum(self.hands), 'hand')} {'was' if hit == 1 else 'were'} right."
        return right, f"{words} {ending(step)}"


def _named(nodes: Iterable[int]) -> str:
    numbers = list(map(str, sorted(nodes)))
    return f"node{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}" if numbers else "none"


class Asking:
    """Which iterations were revealed, what was predicted of each, and the score.

    `on`: whether iterations are asked about. `revealed`: by its id a step (kept, so that no other gets that id), what
    was predicted of it, and what was said of that. `run`: the whole run, of which the frame holds the beginning.
    `answer`: to the question that is open.
    """

    def __init__(self) -> None:
        self.on = self.silent = False
        self.score = Score()
        self.answer = Answer()
        self.run: Trace | None = None
        self.held: dict[str, Any] = {}
        self._part: Trace | None = None
        self.revealed: dict[int, tuple[Step, Answer, str]] = {}

    def whole(self, frame: Frame) -> Trace:
        """The run that the frame shows, with what is still hidden."""
        return self.run if self.on and self.run is not None and frame.trace is self._part else frame.trace

    def reveal(self, step: Step, answer: Answer | None = None) -> str:
        """Lets an iteration be seen; what came of the prediction, in words."""
        if id(step) not in self.revealed:
            right, words = answer.judged(step) if answer is not None else (None, "")
            self.revealed[id(step)] = step, answer or Answer(), words
            if right is not None:
                self.score[id(step)] = right
        return self.revealed[id(step)][2]

    def said(self, frame: Frame) -> str:
        """What came of the prediction of the iteration shown; empty before it is shown to its end."""
        found = self.revealed.get(id(frame.step)) if frame.position.reached("commit") else None
        return found[2] if found else ""

    def veil(self, frame: Frame, changes: dict[str, Any]) -> Frame:
        """The frame without what is to be predicted; what of `changes` would tell it is held back."""
        if frame.asked:
            return frame
        run = self.run = self.whole(frame)
        steps, cursor = run.steps, frame.cursor
        for step in steps[: cursor if self.silent else max(cursor - 1, 0)]:
            self.reveal(step)
        shown = steps[cursor - 1] if cursor else None
        if shown is not None and len(shown.tree) == verified_root(shown):
            self.reveal(shown)  # nothing was drafted
        known = max([i for i, step in enumerate(steps, 1) if id(step) in self.revealed], default=0)
        asked = shown is not None and id(shown) not in self.revealed
        end = cursor - 1 if asked else known
        self._part = run if end == len(steps) else replace(run, steps=steps[:end])
        if shown is None or not asked:
            marked = self.revealed[id(shown)][1].marked if shown is not None else None
            return replace(frame, trace=self._part, cursor=min(cursor, end), marked=marked)
        self.answer = Answer()
        self.held = {name: changes.pop(name) for name in ("done", "total") if name in changes}
        drafting = not frame.position.reached("flatten")
        position = frame.position if drafting else LAST
        veiled = frame.at(end, self._part, position=position, edited=sealed(shown), asked=True)
        changes["status"] = describe(veiled)
        return veiled


def sealed(step: Step) -> Step:
    """The iteration as it was drafted, with nothing that the target's pass gave."""
    nodes = tuple(
        [
            replace(record, target_prob=None, target_choice=record.token, reason="", entropy=0.0, target_top=(),
                    verdict="root" if record.verdict == "root" else "not reached")
            for record in step.nodes
        ]
    )  # fmt: skip
    return replace(
        step, nodes=nodes, accepted=(), committed=(), bonus=None, root_choice=None, caches=(), seconds={}, note="",
        adaptation=Adaptation(""), counts=Counts(drafted=step.counts.drafted), extra=(), residual=None, proposals=(),
    )  # fmt: skip


def path_to(step: Step, nodes: Sequence[int]) -> frozenset[int]:
    """The path that leads from the root to the deepest of these nodes, without a root that is verified already.

    Raises SettingsError where there is no such node, or they lie on no common path.
    """
    parents, count = step.tree.parent.tolist(), len(step.tree)
    if not nodes or not all(0 <= node < count for node in nodes):
        raise SettingsError(f"Nodes to predict are numbered from 0 to {count - 1}: {list(nodes)} names others or none.")
    node, path = max(nodes, key=lambda one: int(step.tree.depth[one])), set()
    while node >= 0:
        path.add(node)
        node = parents[node]
    if not path.issuperset(nodes):
        raise SettingsError(f"{_named(nodes).capitalize()} lie on no common path: only one path can be accepted.")
    return frozenset(path - {0}) if verified_root(step) else frozenset(path)


def most_tokens(step: Step) -> int:
    """How many tokens the iteration can give at most: its longest path and the bonus."""
    return int(step.tree.depth.max()) + 1 + (not verified_root(step))
