"""A Session: the decoding loop stepped by hand, with records, time travel and forks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import RLock
from time import perf_counter
from typing import Any

from speclab.breakpoints import Asked, following
from speclab.decoder import iterate, resume, start
from speclab.decoding import Decoding, undone_on_failure
from speclab.drafters.base import Strategy, checked
from speclab.drafters.cost_aware import drafter_of
from speclab.errors import CancelledError, FinishedError, SettingsError
from speclab.exactness import Checker
from speclab.lookup import Lookup
from speclab.metrics import Counts, Metrics
from speclab.models.pair import ModelPair
from speclab.recording import record
from speclab.settings import SessionSettings
from speclab.trace import Step, Trace


class Session:
    """One prompt decoded step by step.

    Steps already decoded are history: `back`, `goto` and `step` move through them without a model call, and what lies
    ahead of the cursor is not decoded again. To decode it differently, `fork`.

    Args:
        pair: the models; the session takes caches of its own.
        strategy: settings of the strategy.
        prompt: text or token ids.
        settings: `max_new_tokens`, `temperature`, `top_k`, `top_p`, `seed`, `stop_at_eos`, `check`.

    Attributes:
        steps: every iteration decoded.
        cursor: how many of them are shown.

    Raises:
        SpeclabError: the prompt, a setting or the pair does not fit; the message names the way out.
    """

    def __init__(self, pair: ModelPair, strategy: Strategy, prompt: str | Sequence[int], **settings: Any) -> None:
        began = perf_counter()
        chosen = SessionSettings(**settings)
        decoding = start(pair.fresh(), strategy, pair.encode(prompt), chosen)
        prefill = Metrics(Counts(), perf_counter() - began, decoding.pair.target.calls)
        self._begin(decoding, strategy, (), prefill, [decoding.drafter.snapshot()], decoding.prompt_length)

    def _begin(
        self,
        decoding: Decoding,
        strategy: Strategy,
        steps: Sequence[Step],
        prefill: Metrics,
        learned: list[object],
        own: int,
    ) -> None:
        """`own`: the place of the first token that this session decodes itself."""
        self.strategy, self.settings = strategy, decoding.settings
        self.steps, self.cursor = list(steps), len(steps)
        self._decoding, self._prefill, self._learned = decoding, prefill, learned
        self._checker = Checker(decoding, own) if decoding.settings.check else None
        self._lock = RLock()

    @property
    def pair(self) -> ModelPair:
        """The models, with this session's caches."""
        return self._decoding.pair

    @property
    def prompt_ids(self) -> list[int]:
        """Token ids of the prompt."""
        return self._decoding.tokens[: self._decoding.prompt_length]

    @property
    def token_ids(self) -> list[int]:
        """Generated ids up to the cursor; the first is the prefill's."""
        return self._decoding.tokens[self._decoding.prompt_length : self._length(self.cursor)]

    @property
    def text(self) -> str:
        """The text of `token_ids`."""
        return self.pair.decode(self.token_ids)

    @property
    def done(self) -> bool:
        """Whether the text has ended and the cursor stands at its end."""
        return bool(self.finished) and self.cursor == len(self.steps)

    @property
    def finished(self) -> str:
        """Why decoding has ended ("end of text", "max_new_tokens"); empty while it can go on."""
        return self._decoding.finished

    @property
    def ties(self) -> int:
        """With `check=True`: commits that differ from the target alone within the tolerance of half precision."""
        return self._checker.ties if self._checker is not None else 0

    @property
    def metrics(self) -> Metrics:
        """Figures of the iterations up to the cursor."""
        return replace(self._prefill, counts=sum((step.counts for step in self.steps[: self.cursor]), Counts()))

    @property
    def trace(self) -> Trace:
        """The whole run as plain data, whatever the cursor."""
        tokens, prompt_length = self._decoding.tokens, self._decoding.prompt_length
        return Trace(
            prompt_ids=tuple(tokens[:prompt_length]),
            first_token=tokens[prompt_length],
            steps=tuple(self.steps),
            settings={**self.strategy.describe(), **self.settings.model_dump()},
            models=self.pair.describe(),
            texts={token: self.pair.token_text(token) for token in sorted(set(tokens))},
            prefill_seconds=self._prefill.ttft,
            prefill_calls=self._prefill.prefill_calls,
            finished=self.finished,
        )

    def step(self) -> Step:
        """Goes on by one iteration: through history if the cursor lies in it, else by decoding.

        Raises:
            FinishedError: the text has ended.
            CancelledError: `cancel` was called meanwhile; nothing changed.
        """
        self._decoding.cancel.clear()
        return self._advance()

    def back(self) -> Step | None:
        """Goes back by one iteration; the step now shown, None at the beginning."""
        return self.goto(max(0, self.cursor - 1))

    def goto(self, index: int) -> Step | None:
        """Shows the text after `index` iterations, 0 to `len(steps)`; no model call."""
        with self._lock:
            if not 0 <= index <= len(self.steps):
                raise SettingsError(
                    f"there is no iteration {index}: {len(self.steps)} are decoded; step() or run() decodes more"
                )
            self.cursor = index
            return self.steps[index - 1] if index else None

    def run(self, until: Asked | None = None) -> Step | None:
        """Steps on until `until` holds, the text ends, or `cancel` is called; the last step shown.

        `until`: a function of a step, or an expression such as `accepted < 2` (see `speclab.breakpoints`). A Ctrl-C or
        an error inside an iteration leaves the session as it was before that iteration.
        """
        holds = following(until, self.steps[self.cursor - 1] if self.cursor else None)
        self._decoding.cancel.clear()
        while not self.done and not self._decoding.cancel.is_set():
            try:
                step = self._advance()
            except CancelledError:
                break
            if holds(step):
                break
        return self.steps[self.cursor - 1] if self.cursor else None

    def cancel(self) -> None:
        """Stops a `run` from any thread; the iteration under way is undone, everything before it stands."""
        self._decoding.cancel.set()

    def fork(self, at: int | None = None, strategy: Strategy | None = None, **settings: Any) -> Session:
        """A session of its own with the same text up to iteration `at` (the cursor by default).

        No more than one token is run again, and this session stays as it is. An unchanged strategy goes on with what
        its drafter had learned by then; a changed one starts afresh.

        Args:
            at: iterations to share.
            strategy: another strategy; this one's by default.
            settings: changed settings, of the session or of the strategy.
        """
        with self._lock:
            at = self._known(self.cursor if at is None else at, "fork at")
            chosen, other = self._changed(self.strategy if strategy is None else checked(strategy), settings)
            shared = self._length(at)
            generated = shared - self._decoding.prompt_length
            if generated > chosen.max_new_tokens:
                raise SettingsError(
                    f"iteration {at} has {generated} tokens already: raise max_new_tokens or fork earlier"
                )
            learned = self._learned[at] if other == self.strategy else None
            decoding = resume(self._decoding, shared, other, chosen, learned)
        twin = type(self).__new__(type(self))
        snapshots = [*self._learned[:at], decoding.drafter.snapshot()]
        twin._begin(decoding, other, self.steps[:at], self._prefill, snapshots, shared)
        return twin

    def lookup(self, token: int, previous: int | None = None, at: int | None = None) -> Lookup | None:
        """What the drafter had learned of `token`, after `previous`, when `at` iterations were done (by default here).

        No model runs. None where the strategy keeps nothing that can be looked up.

        Raises:
            SpeclabError: no such token, or no such iteration.
        """
        with self._lock:
            at = self._known(self.cursor if at is None else at, "look up what was learned by")
            self.pair.encode([token] if previous is None else [previous, token])
            found = self._decoding.drafter.lookup(token, previous)
            if found is None:
                return None
            if at < len(self.steps):  # ours cannot go back and stay: a copy of it does
                former = drafter_of(self.strategy, replace(self.pair, carried={}))
                former.restore(self._learned[at])
                found = former.lookup(token, previous)
                assert found is not None
        ids = {id_ for row in found.rows for id_ in (*row.key, *(successor for successor, _ in row.successors))}
        return replace(found, after=at, texts={id_: self.pair.token_text(id_) for id_ in sorted(ids)})

    def _known(self, at: int, what: str) -> int:
        if not 0 <= at <= len(self.steps):
            raise SettingsError(f"cannot {what} iteration {at}: 0 to {len(self.steps)} are decoded")
        return at

    def _advance(self) -> Step:
        with self._lock:
            if self.cursor == len(self.steps):
                self._decode()
            self.cursor += 1
            return self.steps[self.cursor - 1]

    def _decode(self) -> None:
        if self.finished:
            raise FinishedError(f"the text has ended ({self.finished}): go back, or fork with a larger max_new_tokens")
        with undone_on_failure(self._decoding):
            iteration = iterate(self._decoding)
            step = record(self._decoding, iteration, len(self.steps))
        self.steps.append(step)
        self._learned.append(self._decoding.drafter.snapshot())
        if self._checker is not None:
            self._checker.compare(iteration.rule)

    def _length(self, steps: int) -> int:
        """Tokens, prompt included, after that many iterations."""
        return self._decoding.prompt_length + 1 + sum(len(step.committed) for step in self.steps[:steps])

    def _changed(self, strategy: Strategy, changes: dict[str, Any]) -> tuple[SessionSettings, Strategy]:
        own = {name: value for name, value in changes.items() if name in SessionSettings.model_fields}
        rest = {name: value for name, value in changes.items() if name not in own}
        return self.settings.changed(**own), strategy.changed(**rest) if rest else strategy
