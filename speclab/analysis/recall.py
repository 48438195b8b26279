"""Stand-ins for the models of a text that is known: they answer from what was computed before, and run only the rest.

The decoding loop and the drafters run on them as ever. The target's stand-in runs nothing: what follows a node on the
text is the text, and a node off it is rejected. The drafts' remember what a draft said after every path, so that
the next replay of the same text, under other settings, asks a model only for what no replay has asked before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from speclab.drafters.base import TopK
from speclab.engine.session import KnownText
from speclab.errors import NotRecordedError
from speclab.models.heads import HeadRunner
from speclab.models.runner import HiddenStates, Kept, Runner
from speclab.models.transfers import KEPT, Logits, to_host
from speclab.tree import Bools

Place = tuple[int, tuple[int, ...]]
"""A row by what leads to it: its last position on the text, and the tokens off the text that follow."""
UNKNOWN = -1
PART = 256
"""Places of a text that a draft runs in one pass."""
MOST_KEPT = 512
"""Rows off the text that a draft's cache holds."""
DRAWN = "its candidates are drawn at random, so what is accepted follows from probabilities that are not kept"
AnyRunner = TypeVar("AnyRunner", Runner, HeadRunner)


@dataclass
class Text:
    """A text and what the target made of it, shared by all replays.

    Attributes:
        known: the text, and what was kept of its decoding.
        states: the target's hidden states at its places, of the layers that some draft reads; None before one asks.
        passes: target passes that were run for what had not been kept.
        missed: rows that were asked for and are not known.
        ask_target: whether the target is run for these; each is then run once.
    """

    known: KnownText
    ask_target: bool = False
    states: HiddenStates | None = None
    passes: int = 0
    missed: int = 0

    def __post_init__(self) -> None:
        self.tokens = np.asarray(self.known.tokens)
        self._on_text: dict[int, NDArray[np.int32]] = {}
        self._rows: dict[Place, tuple[int, int]] | None = None
        self._read: dict[int, NDArray[np.int32]] = {}

    def place(self, tokens: Sequence[int], end: int) -> Place:
        """Where a path is whose tokens stand at the positions before and up to `end`."""
        start = end + 1 - len(tokens)
        same = next((at for at, token in enumerate(tokens) if not self._has(start + at, token)), len(tokens))
        return start + same - 1, tuple(tokens[same:])

    def places(self, tokens: Sequence[int], positions: Sequence[int], visible: Bools) -> list[Place]:
        """Of the `m` rows of a pass, that see `[m, m]` of each other."""
        at = np.asarray(positions)
        same = self.tokens[np.minimum(at, len(self.tokens) - 1)] == tokens
        strays = (visible & ~(same & (at < len(self.tokens)))).any(1)
        found: list[Place] = [(position, ()) for position in positions]
        for row in np.flatnonzero(strays).tolist():
            path = sorted(np.flatnonzero(visible[row]).tolist(), key=positions.__getitem__)
            found[row] = self.place([tokens[one] for one in path], positions[row])
        return found

    def below(self, place: Place, token: int) -> Place:
        """Where a token is after a place."""
        position, off = place
        return (position + 1, ()) if not off and self._has(position + 1, token) else (position, (*off, token))

    def rows(self, places: Sequence[Place]) -> list[NDArray[np.int32] | None]:
        """`[2, KEPT]` ids and bits of probabilities, as of `Logits.successors`, after each; None where not known."""
        rows = [self._row(place) for place in places]
        missing = [row for row, found in enumerate(rows) if found is None]
        if missing and self.ask_target:
            for row, (found, _) in zip(missing, self._target.ask([places[row] for row in missing], KEPT), strict=True):
                rows[row] = found
        elif missing:
            self.missed += len(missing)
        return rows

    @cached_property
    def _target(self) -> SaidByTarget:
        return SaidByTarget(self, self.known.pair.target)

    def _row(self, place: Place) -> NDArray[np.int32] | None:
        if not place[1] and place[0] in self._on_text:
            return self._on_text[place[0]]
        if self._rows is None:
            self._rows = dict(self._recorded())
        found = self._rows.get(place)
        if found is None:
            return None
        step, row = found
        if step not in self._read:
            answers = self.known.answers[step]
            self._read[step] = to_host(answers.ids, answers.probs)
        kept: NDArray[np.int32] = self._read[step][row]
        return kept

    def learn(self, rows: NDArray[np.int32]) -> None:
        """Takes over what a target pass made of the whole text, `[T - 1, 2, KEPT]`."""
        self._on_text.update(enumerate(rows))

    def run_prompt(self, tokens: Sequence[int], positions: Sequence[int], visible: Bools) -> None:
        """Runs a part of the prompt through the target, as a drafter asked for it, and keeps its rows."""
        if positions[-1] in self._on_text:
            return
        if positions[0] == 0:
            self._runner = self.known.pair.target.fork()
        rows = self._runner.logits(tokens, positions, visible).successors(KEPT)
        self.passes += 1
        self._on_text.update(zip(positions, rows, strict=True))

    def hidden(self, layers: Sequence[int]) -> None:
        """Sees to the hidden states of these layers: those that the text was decoded with, or of one pass over it."""
        if self.states is not None:
            if set(layers) <= set(self.states.layers):
                return
            layers = sorted({*self.states.layers, *layers})
        kept, needed = self.known.pair.target.hidden, len(self.tokens) - 1
        if kept is not None and set(layers) <= set(kept.layers) and kept.length >= needed:
            self.states = kept.copy(needed)
            return
        target = self.known.pair.target.fork()
        target.watch(layers)
        target.logits(self.tokens[:needed].tolist())
        self.passes += 1
        self.states = target.hidden

    def _has(self, position: int, token: int) -> bool:
        return position < len(self.tokens) and bool(self.tokens[position] == token)

    def _recorded(self) -> Iterator[tuple[Place, tuple[int, int]]]:
        """Every row of the decoding with its place; of several for one place the last."""
        for number, (step, _) in enumerate(zip(self.known.steps, self.known.answers, strict=False)):
            tree, start = step.tree, step.prefix_length
            places: list[Place] = []
            for token, parent in zip(tree.token.tolist(), tree.parent.tolist(), strict=True):
                places.append(self.below((start - 1, ()) if parent < 0 else places[parent], token))
            tokens = [*tree.token.tolist(), *(row.token for row in step.extra)]
            depths = [*tree.depth.tolist(), *(row.depth for row in step.extra)]
            for row in step.extra:
                path = sorted(row.sees, key=depths.__getitem__)
                places.append(self.place([tokens[one] for one in path], start + row.depth))
            yield from ((place, (number, row)) for row, place in enumerate(places))


class KnownLogits(Logits):
    """What the target made of some rows, from the text: its choice on it, and what was kept of its probabilities."""

    def __init__(self, text: Text, places: Sequence[Place]) -> None:
        super().__init__(torch.empty(0))
        self._text, self._places = text, places

    @property
    def rows(self) -> Tensor:
        raise NotRecordedError(
            "it reads all of the target's logits, and of a text that was decoded the most probable tokens are kept"
        )

    @property
    def decided(self) -> bool:
        return True

    def part(self, rows: slice | list[int]) -> Logits:
        places = self._places[rows] if isinstance(rows, slice) else [self._places[row] for row in rows]
        return KnownLogits(self._text, places)

    def choice(self, row: int) -> int:
        """The token of the text that follows a row on it; -1 off the text, where nothing can be accepted."""
        position, off = self._places[row]
        following = position + 1
        return UNKNOWN if off or following >= len(self._text.tokens) else int(self._text.tokens[following])

    @property
    def choices(self) -> list[int]:
        found = self._text.rows(self._places)
        if any(row is None for row in found):
            raise NotRecordedError(
                "it asks the target about rows that are no candidates, and its answers to these were not kept; with "
                "ask_target=True they are computed"
            )
        return [int(row[0, 0]) for row in found if row is not None]

    def successors(self, k: int) -> NDArray[np.int32]:
        if k > KEPT:
            raise NotRecordedError(
                f"it wants the {k} most probable tokens after a node, and {KEPT} are kept: set successors to {KEPT}"
            )
        blank = np.full((2, KEPT), UNKNOWN, np.int32)
        found = self._text.rows(self._places)
        return np.stack([blank if row is None else row for row in found])[:, :, :k]


class KnownTarget(Runner):
    """The target's stand-in: a cache by its length alone, and answers from the text."""

    def __init__(self, text: Text) -> None:
        self.__dict__.update(text.known.pair.target.__dict__)
        self._text, self._real = text, text.known.pair.target
        self.length = self.calls = 0
        self.kept = Kept(0, 0, ())
        self.hidden = None

    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        *,
        topk: int = 0,
    ) -> Logits:
        start = self.length
        self.calls += 1
        self.length += len(tokens)
        if positions is None or visible is None:
            return KnownLogits(self._text, [(at, ()) for at in range(start, self.length)])
        if positions[-1] < self._text.known.prompt_length:
            self._text.run_prompt(tokens, positions, visible)
        return KnownLogits(self._text, self._text.places(tokens, positions, visible[:, -len(tokens) :]))

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        self.kept = Kept(self.length, prefix, tuple(slots))
        self.length = prefix + len(slots)

    def crop(self, length: int) -> None:
        self.kept = Kept(self.length, length, ())
        self.length = length

    def watch(self, layers: Sequence[int]) -> None:
        self._text.hidden(layers)
        self.hidden = self._text.states

    def fork(self, length: int = 0) -> Runner:
        return self._real.fork(length)


# Drafts

Answer = tuple[Any, Tensor | None]
"""What a model said after a place: a draft its most probable next tokens (`TopK`), the target those of
`Logits.successors`; and of a head its feature `[hidden]`."""


class Said(Generic[AnyRunner]):
    """What a draft model or head said, by place: for what was asked before, no model runs.

    Its runner holds the whole text, run once, and behind it rows off the text, each of which sees what leads to it.
    """

    _runner: AnyRunner

    def __init__(self, text: Text, runner: AnyRunner) -> None:
        self.text: Text = text
        self._real: AnyRunner = runner
        self._width = self._length = 0
        self._answers: dict[Place, Answer] = {}
        self._slots: dict[Place, int] = {}

    def ask(self, places: Sequence[Place], k: int) -> list[Answer]:
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

    def _on_text(self, part: range) -> list[Answer]:
        """Runs places of the text, `part`, behind those before them."""
        raise NotImplementedError

    def _off_text(self, rows: Sequence[Place], visible: Bools) -> list[Answer]:
        raise NotImplementedError


class SaidByModel(Said[Runner]):
    """A draft model's."""

    def _on_text(self, part: range) -> list[Answer]:
        tokens = self.text.tokens[part.start : part.stop].tolist()
        visible = np.tri(len(part), dtype=np.bool_)
        return self._found(self._runner.logits(tokens, part, visible, topk=self._width))

    def _off_text(self, rows: Sequence[Place], visible: Bools) -> list[Answer]:
        tokens, positions = [off[-1] for _, off in rows], [at + len(off) for at, off in rows]
        return self._found(self._runner.logits(tokens, positions, visible, topk=self._width))

    def _found(self, logits: Logits) -> list[Answer]:
        return [(top, None) for top in logits.topk_logprobs(self._width)]


class SaidByTarget(SaidByModel):
    """The target's, of rows that were in no tree when the text was decoded."""

    def _found(self, logits: Logits) -> list[Answer]:
        self.text.passes += 1
        return [(row, None) for row in logits.successors(self._width)]


class SaidByHead(Said[HeadRunner]):
    """A draft head's. Entry `i` of its cache belongs to token `i + 1`; a drafted token is none of the text even if it
    is the same, since the head goes on from its own output there and not from the target's.
    """

    @property
    def _places(self) -> int:
        return len(self.text.tokens) - 1

    def _on_text(self, part: range) -> list[Answer]:
        assert self.text.states is not None
        states = self.text.states.rows(part.start, part.stop, self._runner.config.layers)
        tokens = self.text.tokens[part.start + 1 : part.stop + 1].tolist()
        return self._found(*self._runner.after_each(tokens, states, self._width))

    def _off_text(self, rows: Sequence[Place], visible: Bools) -> list[Answer]:
        tokens, positions = [off[-1] for _, off in rows], [at + len(off) for at, off in rows]
        above = [self._answers[at, off[:-1]][1] for at, off in rows]
        features = torch.stack([feature for feature in above if feature is not None])
        return self._found(*self._runner.forward(tokens, features, positions, visible, self._width))

    def _found(self, logits: Logits, features: Tensor) -> list[Answer]:
        return list(zip(logits.topk_logprobs(self._width), features, strict=True))


class SaidLogits(Logits):
    """What a draft said after some places."""

    def __init__(self, said: Said[Runner] | Said[HeadRunner], places: Sequence[Place]) -> None:
        super().__init__(torch.empty(0))
        self._said, self._places = said, places

    @property
    def rows(self) -> Tensor:
        raise NotRecordedError(DRAWN)

    def topk_logprobs(self, k: int) -> list[TopK]:
        return [top[:k] for top, _ in self._said.ask(self._places, k)]


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
    ) -> Logits:
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
        return SaidLogits(self._said, found)

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

    def extend(self, tokens: Sequence[int], states: Tensor, topk: int = 0) -> tuple[Logits, Tensor]:
        first = self.length
        return self._asked([(at, ()) for at in range(first, first + len(tokens))], slice(-1, None), topk)

    def forward(
        self, tokens: Sequence[int], features: Tensor, positions: Sequence[int], visible: Bools, topk: int = 0
    ) -> tuple[Logits, Tensor]:
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

    def _asked(self, places: list[Place], wanted: slice, topk: int) -> tuple[Logits, Tensor]:
        self._places += places
        self.calls += 1
        self.length = len(self._places)
        features = [feature for _, feature in self._said.ask(places[wanted], topk) if feature is not None]
        return SaidLogits(self._said, places[wanted]), torch.stack(features)[-1] if wanted.start else torch.stack(
            features
        )


def _above(visible: Bools, held: int) -> list[int]:
    """Of each row of a pass behind `held` entries the slot of the row before it on its path."""
    first = held + len(visible) - visible.shape[1]
    seen = visible.copy()
    own = visible.shape[1] - len(visible)
    seen[np.arange(len(visible)), own + np.arange(len(visible))] = False
    last = seen.shape[1] - 1 - seen[:, ::-1].argmax(1)
    above: list[int] = np.where(seen.any(1), first + last, first - 1).tolist()
    return above
