"""A text that is known, and the stand-in for its target; those for the drafts are in `speclab.analysis.said`.

The decoding loop and the drafters run on stand-ins as ever. The target's runs nothing: what follows a node on the text
is the text, and a node off it is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from speclab.analysis.said import Place, SaidByTarget
from speclab.engine.session import KnownText
from speclab.errors import NotRecordedError
from speclab.models.answer import KEPT, Answer, Ids, RecordedAnswer, TopTokens
from speclab.models.cache import HiddenStates, KVCache
from speclab.models.runner import Kept, Runner
from speclab.tree import Bools

UNKNOWN = -1


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
        self._on_text: dict[int, TopTokens] = {}
        self._rows: dict[Place, tuple[int, int]] | None = None

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

    def rows(self, places: Sequence[Place]) -> list[TopTokens | None]:
        """Ids and log-probabilities `[KEPT]` after each; None where not known."""
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

    def _row(self, place: Place) -> TopTokens | None:
        if not place[1] and place[0] in self._on_text:
            return self._on_text[place[0]]
        if self._rows is None:
            self._rows = dict(self._recorded())
        found = self._rows.get(place)
        if found is None:
            return None
        step, row = found
        ids, log_probs = self.known.answers[step]
        return ids[row], log_probs[row]

    def learn(self, top: TopTokens) -> None:
        """Takes over what a target pass made of the whole text, `[T - 1, KEPT]` each."""
        self._on_text.update(enumerate(zip(*top, strict=True)))

    def run_prompt(self, tokens: Sequence[int], positions: Sequence[int], visible: Bools) -> None:
        """Runs a part of the prompt through the target, as a drafter asked for it, and keeps its rows."""
        if positions[-1] in self._on_text:
            return
        if positions[0] == 0:
            self._runner = self.known.pair.target.fork()
        rows = self._runner.logits(tokens, positions, visible).topk(KEPT)
        self.passes += 1
        self._on_text.update(zip(positions, zip(*rows, strict=True), strict=True))

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


def known_answer(text: Text, places: Sequence[Place]) -> Answer:
    """What the target made of some rows, from the text: its choice on it, and what was kept of its probabilities."""

    def choice(place: Place) -> int:
        following = place[0] + 1
        return UNKNOWN if place[1] or following >= len(text.tokens) else int(text.tokens[following])

    def top(rows: Ids, k: int) -> TopTokens:
        if k > KEPT:
            raise NotRecordedError(
                f"it wants the {k} most probable tokens after a node, and {KEPT} are kept: set successors to {KEPT}"
            )
        found = text.rows([places[row] for row in rows])
        if k == 1 and any(row is None for row in found):
            raise NotRecordedError(
                "it asks the target about rows that are no candidates, and its answers to these were not kept; with "
                "ask_target=True they are computed"
            )
        blank = np.full(KEPT, UNKNOWN), np.full(KEPT, -np.inf, np.float32)
        ids, log_probs = zip(*(blank if row is None else row for row in found), strict=True)
        return np.stack(ids)[:, :k], np.stack(log_probs)[:, :k]

    return RecordedAnswer(np.array([choice(place) for place in places]), top)


class KnownTarget(Runner):
    """The target's stand-in: a cache by its length alone, and answers from the text."""

    def __init__(self, text: Text) -> None:
        self.__dict__.update(text.known.pair.target.__dict__)
        self._text, self._real = text, text.known.pair.target
        self.length = self.calls = 0
        self.kept = Kept(0, 0, ())
        self.cache = KVCache()

    def logits(
        self,
        tokens: Sequence[int],
        positions: Sequence[int] | None = None,
        visible: Bools | None = None,
        *,
        topk: int = 0,
    ) -> Answer:
        start = self.length
        self.calls += 1
        self.length += len(tokens)
        if positions is None or visible is None:
            return known_answer(self._text, [(at, ()) for at in range(start, self.length)])
        if positions[-1] < self._text.known.prompt_length:
            self._text.run_prompt(tokens, positions, visible)
        return known_answer(self._text, self._text.places(tokens, positions, visible[:, -len(tokens) :]))

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        self.kept = Kept(self.length, prefix, tuple(slots))
        self.length = prefix + len(slots)

    def crop(self, length: int) -> None:
        self.kept = Kept(self.length, length, ())
        self.length = length

    def watch(self, layers: Sequence[int]) -> None:
        self._text.hidden(layers)
        self.cache.hidden = self._text.states

    def fork(self, length: int = 0) -> Runner:
        return self._real.fork(length)
