"""A target for replays that answers from a known text.

The decoding loop, the drafters and what drafts run unchanged. The target's choice after a node on
the text is the text's next token; a node off the text is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from speclab.errors import NotRecordedError
from speclab.models.answer import KEPT, Answer, Ids, TopTokens
from speclab.models.runner import Runner
from speclab.models.source import Target
from speclab.tree import Bools

if TYPE_CHECKING:
    from speclab.engine.session import Session
    from speclab.models.cache import HiddenStates

Place = tuple[int, tuple[int, ...]]
"""The path to a row: its last position on the text, and the tokens off the text after it."""
Row = tuple[Ids, Any]
"""The target's answer at a place: ids and log-probabilities of its most probable next tokens."""
PART = 256
"""Most rows of the text in one pass, because the logits of a long text need much memory."""


class Text:
    """A text and its target's answers, shared by all replays.

    Attributes:
        rows: the target's answers by place.
        states: the target's hidden states along the text, for draft heads; None until a head needs
            them.
        missed: requested rows of this replay that are unknown.
    """

    def __init__(self, session: Session) -> None:
        self.pair = session.pair
        self.trace = session.trace
        self.tokens = list(self.trace.prompt_ids) + self.trace.token_ids
        self.rows: dict[Place, Row] = dict(self._recorded(session.answers))
        self.states: HiddenStates | None = None
        self.missed = 0

    def below(self, place: Place, token: int) -> Place:
        """The place of a token that follows a place."""
        position, off = place
        if not off and self.tokens[position + 1 : position + 2] == [token]:
            return position + 1, ()
        return position, off + (token,)

    def after(self, place: Place) -> int:
        """The text's next token after a place; -1 off the text and at its end."""
        position, off = place
        if off or position + 1 == len(self.tokens):
            return -1
        return self.tokens[position + 1]

    def top(self, places: Sequence[Place], k: int) -> TopTokens:
        """The most probable tokens after places, as in `Answer.topk`."""
        if k > KEPT:
            raise NotRecordedError(
                f"it reads the {k} most probable tokens after a node, and only {KEPT} are recorded"
            )
        missing = sum(place not in self.rows for place in places)
        if missing and k == 1:
            raise NotRecordedError(
                "it reads the target's answers to rows that are not candidates, which were not "
                "recorded; ask_target=True computes them"
            )
        self.missed += missing
        blank = np.full(KEPT, -1), np.full(KEPT, -np.inf, np.float32)
        rows = [self.rows.get(place, blank) for place in places]
        ids, log_probs = map(np.stack, zip(*rows, strict=True))
        return ids[:, :k], log_probs[:, :k]

    def run_prompt(self) -> None:
        """Run the prompt through the target and keep its rows, which a drafter reads before the first iteration."""
        prompt = self.trace.prompt_ids
        if (len(prompt) - 1, ()) in self.rows and (0, ()) in self.rows:
            return
        target = self.pair.target.fork()
        for first in range(0, len(prompt), PART):
            part = range(first, min(first + PART, len(prompt)))
            visible = np.tri(len(part), dtype=np.bool_)
            answer = target.logits(prompt[first : part.stop], part, visible, topk=KEPT)
            self.add([(position, ()) for position in part], answer)

    def add(self, places: Sequence[Place], answer: Answer) -> None:
        """Keeps what the target answered."""
        self.rows.update(zip(places, zip(*answer.topk(KEPT), strict=True), strict=True))

    def watch(self, layers: Sequence[int]) -> None:
        """Provide the hidden states of these layers, from the decoding or by one more pass over the text."""
        known: tuple[int, ...] = ()
        if self.states is not None:
            known = self.states.layers
        layers = tuple(sorted(set(known).union(layers)))
        if layers == known:
            return
        kept = self.pair.target.hidden
        needed = len(self.tokens) - 1
        if kept is not None and set(layers) <= set(kept.layers) and kept.length >= needed:
            self.states = kept.copy(needed)
            return
        target = self.pair.target.fork()
        target.watch(layers)
        target.logits(self.tokens[:needed])
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
            yield from zip(places, zip(ids, log_probs, strict=True), strict=True)


class KnownAnswer(Answer):
    """The target's answer at places of a text, without a model."""

    rows = None

    def __init__(self, text: Text, places: Sequence[Place]) -> None:
        self._text = text
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: slice | Sequence[int]) -> Answer:
        if isinstance(index, slice):
            return KnownAnswer(self._text, self._places[index])
        return KnownAnswer(self._text, [self._places[row] for row in index])

    @property
    def choice(self) -> Ids:
        """The text's next token, final whatever the sampling; -1 off the text, where none is accepted."""
        return np.array([self._text.after(place) for place in self._places])

    def topk(self, k: int) -> TopTokens:
        return self._text.top(self._places, k)


class KnownTarget(Target):
    """Stands in for the target: its cache contains places.

    `asked`: an empty copy of the target that runs every pass, too, for the answers off the text.
    """

    def __init__(self, text: Text, asked: Runner | None = None) -> None:
        self._text = text
        self._asked = asked
        self._places: list[Place] = []
        self.length = self.calls = self.rows = 0
        self.vocab_size = text.pair.target.vocab_size
        self.context = text.pair.target.context

    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        *,
        topk: int = 0,
    ) -> Answer:
        """As of a runner."""
        first = self.length
        above: Sequence[int] = range(first - 1, first + len(tokens) - 1)
        if visible is not None:
            above = self._above(visible)
        for token, slot in zip(tokens, above, strict=True):
            place: Place = (-1, ())
            if slot >= 0:
                place = self._places[slot]
            self._places.append(self._text.below(place, token))
        self.calls += 1
        self.rows += len(tokens)
        self.length = len(self._places)
        rows = self._places[first:]
        if visible is None:
            rows = rows[-1:]
        if self._asked is not None:
            answer = self._asked.logits(tokens, positions, visible)
            if any(row not in self._text.rows for row in rows):
                self._text.add(rows, answer)
        elif positions is not None and positions[-1] < len(self._text.trace.prompt_ids):
            self._text.run_prompt()
        return KnownAnswer(self._text, rows)

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        self._places[prefix:] = [self._places[slot] for slot in slots]
        self.length = len(self._places)
        if self._asked is not None:
            self._asked.keep(prefix, slots)

    def crop(self, length: int) -> None:
        del self._places[length:]
        self.length = length
        if self._asked is not None:
            self._asked.crop(length)

    def _above(self, visible: Bools) -> list[int]:
        """The slot of each row's parent: the last slot that the row sees apart from its own."""
        rows, columns = visible.shape
        others = visible.copy()
        others[np.arange(rows), columns - rows + np.arange(rows)] = False
        first = self.length + rows - columns
        last = columns - 1 - others[:, ::-1].argmax(1)
        slots: list[int] = np.where(others.any(1), first + last, first - 1).tolist()
        return slots
