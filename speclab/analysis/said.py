"""What models said of a text, by place, and the stand-ins for drafts that answer from it (`speclab.analysis.recall`).

A draft's answer after a path does not depend on the settings under which it is asked. So the next replay of the same
text asks a model only for what no replay has asked before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from speclab.models.answer import KEPT, Answer, Ids, RecordedAnswer, TopTokens
from speclab.models.heads import HeadRunner
from speclab.models.runner import Kept, Runner
from speclab.tree import Bools

if TYPE_CHECKING:
    from speclab.analysis.recall import Text

Place = tuple[int, tuple[int, ...]]
"""A row by what leads to it: its last position on the text, and the tokens off the text that follow."""
PART = 256
"""Places of a text that are run in one pass."""
MOST_KEPT = 512
"""Rows off the text that a draft's cache holds."""
AnyRunner = TypeVar("AnyRunner", Runner, HeadRunner)

PlaceAnswer = tuple[Any, Tensor | None]
"""After a place: ids and log-probabilities `[k]` of the most probable next tokens; and of a head its feature."""


class Said(Generic[AnyRunner]):
    """What a draft model or head said, by place: for what was asked before, no model runs.

    Its runner holds the whole text, run once, and behind it rows off the text, each of which sees what leads to it.
    """

    _runner: AnyRunner

    def __init__(self, text: Text, runner: AnyRunner) -> None:
        self.text: Text = text
        self._real: AnyRunner = runner
        self._width = self._length = 0
        self._answers: dict[Place, PlaceAnswer] = {}
        self._slots: dict[Place, int] = {}

    def ask(self, places: Sequence[Place], k: int) -> list[PlaceAnswer]:
        """What it said after these places, `k` tokens each or more; a place is asked for after the one before it."""
        if k > self._width:
            self._begin(max(k, KEPT))
        new = [place for place in places if place not in self._answers]
        if new:
            self._run(new)
        return [self._answers[place] for place in places]

    def _begin(self, width: int) -> None:
        """Runs the text, in parts, since a draft's logits of a long one would need much memory."""
        self._runner, self._width = self._real.fork(), width
        self._answers.clear()
        self._slots.clear()
        for start in range(0, self._places, PART):
            part = range(start, min(start + PART, self._places))
            self._answers.update(zip([(at, ()) for at in part], self._on_text(part), strict=True))
        self._length = self._runner.length

    def _run(self, places: Sequence[Place]) -> None:
        """Runs rows off the text, with those above them that the cache does not hold."""
        if len(self._slots) > MOST_KEPT:
            self._runner.crop(self._length)
            self._slots.clear()
        lines = ([(at, off[:depth]) for depth in range(1, len(off) + 1)] for at, off in places)
        rows = list(dict.fromkeys([place for line in lines for place in line if place not in self._slots]))
        held = self._runner.length
        self._slots.update((place, held + row) for row, place in enumerate(rows))
        visible = np.zeros((len(rows), held + len(rows)), dtype=np.bool_)
        for row, (at, off) in enumerate(rows):
            visible[row, : at + 1] = True
            visible[row, [self._slots[at, off[:depth]] for depth in range(1, len(off) + 1)]] = True
        self._answers.update(zip(rows, self._off_text(rows, visible), strict=True))

    @property
    def _places(self) -> int:
        """Places on the text that it can speak of."""
        return len(self.text.tokens)

    def _on_text(self, part: range) -> list[PlaceAnswer]:
        """Runs places of the text, `part`, behind those before them."""
        raise NotImplementedError

    def _off_text(self, rows: Sequence[Place], visible: Bools) -> list[PlaceAnswer]:
        raise NotImplementedError


class SaidByModel(Said[Runner]):
    """A draft model's."""

    def _on_text(self, part: range) -> list[PlaceAnswer]:
        tokens = self.text.tokens[part.start : part.stop].tolist()
        visible = np.tri(len(part), dtype=np.bool_)
        return self._found(self._runner.logits(tokens, part, visible, topk=self._width))

    def _off_text(self, rows: Sequence[Place], visible: Bools) -> list[PlaceAnswer]:
        tokens, positions = [off[-1] for _, off in rows], [at + len(off) for at, off in rows]
        return self._found(self._runner.logits(tokens, positions, visible, topk=self._width))

    def _found(self, answer: Answer) -> list[PlaceAnswer]:
        return [(top, None) for top in zip(*answer.topk(self._width), strict=True)]


class SaidByTarget(SaidByModel):
    """The target's, of rows that were in no tree when the text was decoded."""

    def _found(self, answer: Answer) -> list[PlaceAnswer]:
        self.text.passes += 1
        return super()._found(answer)


class SaidByHead(Said[HeadRunner]):
    """A draft head's. Entry `i` of its cache belongs to token `i + 1`; a drafted token is none of the text even if it
    is the same, since the head goes on from its own output there and not from the target's.
    """

    @property
    def _places(self) -> int:
        return len(self.text.tokens) - 1

    def _on_text(self, part: range) -> list[PlaceAnswer]:
        assert self.text.states is not None
        states = self.text.states.rows(part.start, part.stop, self._runner.config.layers)
        tokens = self.text.tokens[part.start + 1 : part.stop + 1].tolist()
        return self._found(*self._runner.after_each(tokens, states, self._width))

    def _off_text(self, rows: Sequence[Place], visible: Bools) -> list[PlaceAnswer]:
        tokens, positions = [off[-1] for _, off in rows], [at + len(off) for at, off in rows]
        above = [self._answers[at, off[:-1]][1] for at, off in rows]
        features = torch.stack([feature for feature in above if feature is not None])
        return self._found(*self._runner.forward(tokens, features, positions, visible, self._width))

    def _found(self, answer: Answer, features: Tensor) -> list[PlaceAnswer]:
        tops = zip(*answer.topk(self._width), strict=True)
        return list(zip(tops, features, strict=True))


def _answer(said: Said[Runner] | Said[HeadRunner], places: Sequence[Place]) -> Answer:
    """What a draft said after some places."""

    def top(rows: Ids, k: int) -> TopTokens:
        tops = [top for top, _ in said.ask([places[row] for row in rows], k)]
        return np.stack([ids[:k] for ids, _ in tops]), np.stack([log_probs[:k] for _, log_probs in tops])

    return RecordedAnswer(np.full(len(places), -1), top)


class KnownDraft(Runner):
    """A draft model's stand-in: a cache of places, and answers by place."""

    def __init__(self, said: SaidByModel, runner: Runner) -> None:
        self.__dict__.update(runner.__dict__)
        self._said, self._real = said, runner
        self._places: list[Place] = []
        self.length = self.calls = 0

    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        *,
        topk: int = 0,
    ) -> Answer:
        text, places = self._said.text, self._places
        if visible is None:
            for token in tokens:
                places.append(text.below(places[-1] if places else (-1, ()), token))
            found = places[-1:]
        else:
            found = [
                text.below(places[above], token)
                for token, above in zip(tokens, _above(visible, len(places)), strict=True)
            ]
            places += found
        self.calls += 1
        self.length = len(places)
        return _answer(self._said, found)

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        self.kept = Kept(self.length, prefix, tuple(slots))
        self._places[prefix:] = [self._places[slot] for slot in slots]
        self.length = len(self._places)

    def crop(self, length: int) -> None:
        self.kept = Kept(self.length, length, ())
        del self._places[length:]
        self.length = length

    def fork(self, length: int = 0) -> Runner:
        return self._real.fork(length)


class KnownHead(HeadRunner):
    """A draft head's stand-in."""

    def __init__(self, said: SaidByHead, runner: HeadRunner) -> None:
        self.__dict__.update(runner.__dict__)
        self._said, self._real = said, runner
        self._places: list[Place] = []
        self.length = self.calls = 0

    def extend(self, tokens: Sequence[int], states: Tensor, topk: int = 0) -> tuple[Answer, Tensor]:
        first = self.length
        return self._asked([(at, ()) for at in range(first, first + len(tokens))], slice(-1, None), topk)

    def forward(
        self, tokens: Sequence[int], features: Tensor, positions: Sequence[int], visible: Bools, topk: int = 0
    ) -> tuple[Answer, Tensor]:
        above = [self._places[slot] for slot in _above(visible, self.length)]
        return self._asked(
            [(at, (*off, token)) for (at, off), token in zip(above, tokens, strict=True)], slice(None), topk
        )

    def crop(self, length: int) -> None:
        self.kept = Kept(self.length, length, ())
        del self._places[length:]
        self.length = length

    def fork(self, length: int = 0, target: Runner | None = None) -> HeadRunner:
        return self._real.fork(length, target)

    def _asked(self, places: list[Place], wanted: slice, topk: int) -> tuple[Answer, Tensor]:
        self._places += places
        self.calls += 1
        self.length = len(self._places)
        features = [feature for _, feature in self._said.ask(places[wanted], topk) if feature is not None]
        states = torch.stack(features)
        return _answer(self._said, places[wanted]), states[-1] if wanted.start else states


def _above(visible: Bools, held: int) -> list[int]:
    """Of each row of a pass behind `held` entries the slot of the row before it on its path."""
    first = held + len(visible) - visible.shape[1]
    seen = visible.copy()
    own = visible.shape[1] - len(visible)
    seen[np.arange(len(visible)), own + np.arange(len(visible))] = False
    last = seen.shape[1] - 1 - seen[:, ::-1].argmax(1)
    above: list[int] = np.where(seen.any(1), first + last, first - 1).tolist()
    return above
