"""Runners for replays: the target answers from a known text, and drafts answer from memory.

The decoding loop and the drafters run unchanged. The target's choice after a node on the text is
the text's next token; a node off the text is rejected. A draft's answer after a path does not
depend on the settings, so another replay of the same text runs the draft only for new paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from speclab.errors import NotRecordedError
from speclab.heads.runner import HeadRunner
from speclab.models.answer import KEPT, Answer, Ids, RecordedAnswer, TopTokens
from speclab.models.runner import Runner
from speclab.settings import SessionSettings
from speclab.trace.records import Trace
from speclab.tree import Bools

if TYPE_CHECKING:
    from speclab.engine.session import Session
    from speclab.models.cache import HiddenStates

Place = tuple[int, tuple[int, ...]]
"""The path to a row: its last position on the text, and the tokens off the text after it."""
PART = 256
"""Most rows of the text in one pass, because the logits of a long text need much memory."""
MOST_KEPT = 512
"""Most rows off the text in the cache of a `Memo`."""


class Row(NamedTuple):
    """A model's answer at a place: its most probable next tokens, and for a head its feature `[hidden]`."""

    ids: Ids
    log_probs: Any
    feature: Tensor | None = None


def session_settings(trace: Trace) -> SessionSettings:
    """The session settings of a trace."""
    names = SessionSettings.model_fields
    return SessionSettings(
        **{name: value for name, value in trace.settings.items() if name in names}
    )


def text_passes(runner: Runner, tokens: Sequence[int]) -> Iterator[tuple[range, Answer]]:
    """Run a text through an empty runner, in parts; yields an answer with one row per position."""
    for first in range(0, len(tokens), PART):
        part = range(first, min(first + PART, len(tokens)))
        yield (
            part,
            runner.logits(
                tokens[part.start : part.stop], part, np.tri(len(part), dtype=np.bool_), topk=KEPT
            ),
        )


class Text:
    """A text and its target's answers, shared by all replays.

    Attributes:
        rows: the target's answers by place.
        states: the target's hidden states along the text, for draft heads; None until a head needs
            them.
        passes: target passes for missing records.
        missed: requested rows of this replay that are unknown.
    """

    def __init__(self, session: Session, *, ask_target: bool = False) -> None:
        self.pair = session.pair
        self.trace = session.trace
        self.tokens = [*self.trace.prompt_ids, *self.trace.token_ids()]
        self.rows: dict[Place, Row] = dict(self._recorded(session.answers))
        self.states: HiddenStates | None = None
        self.passes = self.missed = 0
        self._asked = Memo(self, self.pair.target) if ask_target else None

    def below(self, place: Place, token: int) -> Place:
        """The place of a token that follows a place."""
        position, off = place
        on_text = not off and self.tokens[position + 1 : position + 2] == [token]
        return (position + 1, ()) if on_text else (position, (*off, token))

    def answer(self, places: Sequence[Place]) -> Answer:
        """The target's answer: the text's next token, or -1 off the text, and the most probable tokens."""
        followed = [not off and position + 1 < len(self.tokens) for position, off in places]
        choice = [
            self.tokens[place[0] + 1] if on_text else -1
            for place, on_text in zip(places, followed, strict=True)
        ]
        return RecordedAnswer(
            np.array(choice), lambda index, k: self._top([places[row] for row in index], k)
        )

    def _top(self, places: Sequence[Place], k: int) -> TopTokens:
        if k > KEPT:
            raise NotRecordedError(
                f"it reads the {k} most probable tokens after a node, and only {KEPT} are recorded"
            )
        missing = [place for place in places if place not in self.rows]
        if missing and self._asked is not None:
            self.rows.update(zip(missing, self._asked.ask(missing, KEPT), strict=True))
            self.passes = self.passes + self._asked.passes
            self._asked.passes = 0
        elif missing and k == 1:
            raise NotRecordedError(
                "it reads the target's answers to rows that are not candidates, which were not "
                "recorded; "
                "ask_target=True computes them"
            )
        else:
            self.missed += len(missing)
        blank = Row(np.full(KEPT, -1), np.full(KEPT, -np.inf, np.float32))
        rows = [self.rows.get(place, blank) for place in places]
        return np.stack([row.ids for row in rows])[:, :k], np.stack(
            [row.log_probs for row in rows]
        )[:, :k]

    def run_prompt(self) -> None:
        """Run the prompt through the target and keep its rows, which a drafter reads before the first iteration."""
        prompt = self.trace.prompt_ids
        if (len(prompt) - 1, ()) in self.rows and (0, ()) in self.rows:
            return
        for part, answer in text_passes(self.pair.target.fork(), prompt):
            for position, ids, log_probs in zip(part, *answer.topk(KEPT), strict=True):
                self.rows[position, ()] = Row(ids, log_probs)
            self.passes += 1

    def watch(self, layers: Sequence[int]) -> None:
        """Provide the hidden states of these layers, from the decoding or by one more pass over the text."""
        if self.states is not None:
            if set(layers) <= set(self.states.layers):
                return
            layers = sorted({*self.states.layers, *layers})
        kept = self.pair.target.hidden
        needed = len(self.tokens) - 1
        if kept is not None and set(layers) <= set(kept.layers) and kept.length >= needed:
            self.states = kept.copy(needed)
            return
        target = self.pair.target.fork()
        target.watch(layers)
        target.logits(self.tokens[:needed])
        self.passes += 1
        self.states = target.hidden

    def _recorded(self, answers: Sequence[TopTokens]) -> Iterator[tuple[Place, Row]]:
        for step, (ids, log_probs) in zip(self.trace.steps, answers, strict=True):
            tree = step.tree
            root = self.below((step.prefix_length - 1, ()), int(step.tree.token[0]))
            places = [root]
            for node in range(1, len(tree)):
                places.append(self.below(places[int(tree.parent[node])], int(tree.token[node])))
            for row in step.extra:
                above = max((seen for seen in row.sees if seen != len(places)), default=0)
                places.append(self.below(places[above], row.token))
            yield from zip(places, map(Row, ids, log_probs), strict=True)


class Memo:
    """The answers of a draft model or the target by place; a known place runs no model.

    The cache of its runner contains the whole text, then rows off the text, each of which sees its
    own path.
    """

    def __init__(self, text: Text, runner: Any) -> None:
        self.text = text
        self.real = runner
        self.passes = self._width = 0
        self._rows: dict[Place, Row] = {}
        self._slots: dict[Place, int] = {}

    def ask(self, places: Sequence[Place], k: int) -> list[Row]:
        """At least the `k` most probable tokens after each place; the parent of a place must be known."""
        if k > self._width:
            self._width = max(k, KEPT)
            self._rows.clear()
            self._slots.clear()
            self._runner = self.real.fork()
            self._run_text()
            self._length = self._runner.length
        new = [place for place in places if place not in self._rows]
        if new:
            self._run(new)
        return [self._rows[place] for place in places]

    def _run(self, places: Sequence[Place]) -> None:
        if len(self._slots) > MOST_KEPT:
            self._runner.crop(self._length)
            self._slots.clear()
        paths = [
            (position, off[:depth]) for position, off in places for depth in range(1, len(off) + 1)
        ]
        rows = [place for place in dict.fromkeys(paths) if place not in self._slots]
        held = self._runner.length
        self._slots.update((place, held + row) for row, place in enumerate(rows))
        visible = np.zeros((len(rows), held + len(rows)), dtype=np.bool_)
        for row, (position, off) in enumerate(rows):
            visible[row, : position + 1] = True
            visible[
                row, [self._slots[position, off[:depth]] for depth in range(1, len(off) + 1)]
            ] = True
        tokens = [off[-1] for _, off in rows]
        positions = [position + len(off) for position, off in rows]
        self._pass(rows, tokens, positions, visible)

    def _keep(
        self, places: Sequence[Place], answer: Answer, features: Tensor | None = None
    ) -> None:
        rows = zip(
            *answer.topk(self._width),
            [None] * len(places) if features is None else features,
            strict=True,
        )
        self._rows.update(zip(places, (Row(*row) for row in rows), strict=True))
        self.passes += 1

    def _run_text(self) -> None:
        for part, answer in text_passes(self._runner, self.text.tokens):
            self._keep([(position, ()) for position in part], answer)

    def _pass(
        self, rows: Sequence[Place], tokens: list[int], positions: list[int], visible: Bools
    ) -> None:
        self._keep(rows, self._runner.logits(tokens, positions, visible, topk=self._width))


class HeadMemo(Memo):
    """The answers of a draft head. A drafted token always counts as off the text, because after it
    the head reads its own output instead of the target's.
    """

    def _run_text(self) -> None:
        states = self.text.states
        tokens = self.text.tokens
        assert states is not None
        for first in range(0, len(tokens) - 1, PART):
            part = range(first, min(first + PART, len(tokens) - 1))
            rows = states.rows(part.start, part.stop, self._runner.config.layers)
            answer, features = self._runner.after_each(
                tokens[part.start + 1 : part.stop + 1], rows, self._width
            )
            self._keep([(position, ()) for position in part], answer, features)

    def _pass(
        self, rows: Sequence[Place], tokens: list[int], positions: list[int], visible: Bools
    ) -> None:
        above = [self._rows[position, off[:-1]].feature for position, off in rows]
        features = torch.stack([feature for feature in above if feature is not None])
        self._keep(rows, *self._runner.forward(tokens, features, positions, visible, self._width))


class StandIn:
    """Replaces a runner: its cache contains places, and everything but the passes comes from the
    real runner.

    Attributes:
        rows: the number of rows of all passes.
    """

    length: int
    calls: int

    def __init__(self, text: Text, real: Runner | HeadRunner, memo: Memo | None = None) -> None:
        self._text = text
        self._real = real
        self._memo = memo
        self.places: list[Place] = []
        self.length = self.calls = self.rows = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        self.places[prefix:] = [self.places[slot] for slot in slots]
        self.length = len(self.places)

    def crop(self, length: int) -> None:
        del self.places[length:]
        self.length = length

    def fork(self, length: int = 0, *target: Any, **options: Any) -> Any:
        return self._real.fork(length, *target, **options)

    def _count(self, rows: int) -> None:
        self.calls += 1
        self.rows += rows
        self.length = len(self.places)

    def _above(self, visible: Bools) -> list[int]:
        """The slot of each row's parent: the last slot that the row sees apart from its own."""
        rows, columns = visible.shape
        others = visible.copy()
        others[np.arange(rows), columns - rows + np.arange(rows)] = False
        first = self.length + rows - columns
        last = columns - 1 - others[:, ::-1].argmax(1)
        slots: list[int] = np.where(others.any(1), first + last, first - 1).tolist()
        return slots

    def _remembered(self, places: Sequence[Place]) -> Answer:
        """A draft's answer, computed when it is read."""
        memo = self._memo
        assert memo is not None

        def top(index: Ids, k: int) -> TopTokens:
            rows = memo.ask([places[row] for row in index], k)
            return np.stack([row.ids[:k] for row in rows]), np.stack(
                [row.log_probs[:k] for row in rows]
            )

        return RecordedAnswer(np.full(len(places), -1), top)


class KnownRunner(StandIn, Runner):
    """The target (`memo` None), or a draft model."""

    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        **_: Any,
    ) -> Answer:
        first = self.length
        above = (
            range(first - 1, first + len(tokens) - 1) if visible is None else self._above(visible)
        )
        for token, slot in zip(tokens, above, strict=True):
            self.places.append(
                self._text.below(self.places[slot] if slot >= 0 else (-1, ()), token)
            )
        self._count(len(tokens))
        rows = self.places[-1:] if visible is None else self.places[first:]
        if self._memo is not None:
            return self._remembered(rows)
        if positions is not None and positions[-1] < len(self._text.trace.prompt_ids):
            self._text.run_prompt()
        return self._text.answer(rows)

    def watch(self, layers: Sequence[int]) -> None:
        self._text.watch(layers)

    @property
    def hidden(self) -> HiddenStates | None:
        return self._text.states


class KnownHead(StandIn, HeadRunner):
    """A draft head."""

    def extend(self, tokens: Sequence[int], states: Tensor, topk: int = 0) -> tuple[Answer, Tensor]:
        self.places += [
            (position, ()) for position in range(self.length, self.length + len(tokens))
        ]
        self._count(len(tokens))
        answer, features = self._asked(self.places[-1:], topk)
        return answer, features[-1]

    def forward(
        self,
        tokens: Sequence[int],
        features: Tensor,
        positions: Sequence[int],
        visible: Bools,
        topk: int = 0,
    ) -> tuple[Answer, Tensor]:
        above = [self.places[slot] for slot in self._above(visible)]
        places = [
            (position, (*off, token)) for (position, off), token in zip(above, tokens, strict=True)
        ]
        self.places += places
        self._count(len(places))
        return self._asked(places, topk)

    def _asked(self, places: Sequence[Place], topk: int) -> tuple[Answer, Tensor]:
        assert self._memo is not None
        features = [row.feature for row in self._memo.ask(places, topk) if row.feature is not None]
        return self._remembered(places), torch.stack(features)
