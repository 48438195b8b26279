"""A Session: the decoding loop stepped by hand, with records, time travel and forks."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from threading import RLock
from time import perf_counter
from typing import Any, NamedTuple

from speclab.drafters import cost, setting_names
from speclab.drafters.base import Strategy, checked
from speclab.drafters.by_hand import REDRAWN, TreeEdit, given_draft
from speclab.engine.decode import Iteration, Propose, iterate, resume, start
from speclab.engine.exactness import Checker
from speclab.engine.record import kept_answers, record
from speclab.errors import CancelledError, ExactnessError, FinishedError, SettingsError
from speclab.models.answer import KEPT, TopTokens
from speclab.models.pair import ModelPair, checked_pair
from speclab.prompts import PromptInput
from speclab.settings import SessionSettings
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.metrics import Counts, Metrics
from speclab.trace.records import Step, Trace
from speclab.tree import DraftTree

FRESH = "Forked here to this strategy: of what lies before, its drafter knows the text alone."
"""The note of the first step of a drafter that did not decode the steps before it."""


class _Learned(NamedTuple):
    """What a drafter of this strategy had learned."""

    strategy: Strategy
    state: object


class _History(NamedTuple):
    """What has been decoded, replaced in one assignment, so that an iteration and its record come together.

    `answers`: for each of `steps`, the target's most probable tokens. `learned`: after 0, 1, … iterations. `tokens`:
    prompt included. `finished`: why decoding ended. `ties`: commits that differ within the tolerance.
    """

    steps: tuple[Step, ...]
    answers: tuple[TopTokens, ...]
    learned: tuple[_Learned, ...]
    tokens: int
    finished: str
    cursor: int
    ties: int


class Session:
    """One prompt decoded step by step.

    Steps already decoded are history: `back`, `goto` and `step` move through them without a model call, and what lies
    ahead of the cursor is not decoded again. To decode it differently, `fork`. An iteration that Ctrl-C, `cancel` or an
    error stops has not happened.

    Args:
        pair: the models; the session takes caches of its own.
        strategy: settings of the strategy.
        prompt: text; token ids; or messages, such as `[{"role": "user", "content": "…"}]`, for the chat template of the
            tokenizer. A last message of the assistant is continued.
        settings: `max_new_tokens`, `temperature`, `top_k`, `top_p`, `seed`, `stop_at_eos`, `check`.

    Attributes:
        messages: those of the prompt, each with the tokens of its content; all other tokens are the template's.

    Raises:
        SpeclabError: the prompt, a setting or the pair does not fit; the message names the way out.
    """

    def __init__(self, pair: ModelPair, strategy: Strategy, prompt: PromptInput, **settings: Any) -> None:
        cost.prepare(checked(strategy), checked_pair(pair))
        began = perf_counter()
        self.strategy, self.settings = strategy, SessionSettings(**settings)
        ids, self.messages = pair.read_prompt(prompt)
        self._decoding = start(pair.fresh(), strategy, ids, self.settings)
        self._prefill = Metrics(Counts(), perf_counter() - began, self.pair.target.calls)
        self._lock = RLock()
        self._shared, self._note = 0, ""
        self._begin(self._decoding.prompt_length, (), (), ())

    def _begin(
        self, first: int, steps: tuple[Step, ...], answers: tuple[TopTokens, ...], learned: tuple[_Learned, ...]
    ) -> None:
        """`first`: the position of the first token that this session decodes itself; the rest comes from a fork."""
        decoding = self._decoding
        decoding.topk = KEPT
        self._checker = Checker(decoding) if self.settings.check else None
        ties = 0 if self._checker is None else self._checker.compare(first)
        learned = (*learned, _Learned(self.strategy, decoding.drafter.snapshot()))
        self._history = _History(steps, answers, learned, len(decoding.tokens), decoding.finished, len(steps), ties)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every iteration decoded."""
        return self._history.steps

    @property
    def answers(self) -> tuple[TopTokens, ...]:
        """For each of `steps` the target's 16 most probable tokens after each row: the nodes, then the extra rows."""
        return self._history.answers

    @property
    def cursor(self) -> int:
        """How many of `steps` are shown."""
        return self._history.cursor

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
        """Whether the text has ended and the cursor is at its end."""
        return bool(self.finished) and self.cursor == len(self.steps)

    @property
    def finished(self) -> str:
        """Why decoding has ended ("end of text", "max_new_tokens"); empty while it can go on."""
        return self._history.finished

    @property
    def ties(self) -> int:
        """With `check=True`: commits that differ from the target alone within the tolerance of half precision."""
        return self._history.ties

    @property
    def metrics(self) -> Metrics:
        """Metrics of the iterations up to the cursor."""
        return replace(self._prefill, counts=sum((step.counts for step in self.steps[: self.cursor]), Counts()))

    @property
    def trace(self) -> Trace:
        """The whole run as plain data, whatever the cursor."""
        history, prompt_length = self._history, self._decoding.prompt_length
        tokens = self._decoding.tokens[: history.tokens]
        return Trace(
            prompt_ids=tuple(tokens[:prompt_length]),
            first_token=tokens[prompt_length],
            steps=history.steps,
            settings={**self.strategy.describe(), **self.settings.model_dump()},
            models=self.pair.describe(),
            texts=self.pair.token_texts(sorted(set(tokens))),
            prefill_seconds=self._prefill.ttft,
            prefill_calls=self._prefill.prefill_calls,
            finished=history.finished,
            messages=self.messages,
        )

    def step(self) -> Step:
        """Goes on by one iteration: through history if the cursor lies in it, else by decoding.

        Raises:
            FinishedError: the text has ended.
            CancelledError: `cancel` was called meanwhile; nothing changed.
        """
        self._decoding.cancel.clear()
        return self._advance()

    def verify(self, tree: DraftTree | TreeEdit, mask: Any = None) -> Step:
        """As `step`, but verifies a tree that a person built; for a session of `ByHand`, at its end.

        Args:
            tree: its root is the newest token of the text, `token_ids[-1]`.
            mask: `[n, n]` bool, which nodes each row sees, itself included; by default as edited, else its ancestors.
                With any other mask the text need not be the target's own, as the step's note then says.

        Raises:
            SettingsError: another strategy drafts here, iterations lie ahead of the cursor, or the tree does not fit.
        """
        with self._lock:
            if not self.strategy.by_hand:
                name = type(self.strategy).__name__
                raise SettingsError(f"{name} drafts its own trees here: fork(strategy=ByHand()) takes yours")
            if ahead := len(self.steps) - self.cursor:
                raise SettingsError(f"{ahead} iterations lie ahead of the cursor: fork here, or go to the end")
            self._decoding.cancel.clear()
            given = given_draft(tree, mask)
            return self._decode(lambda _: given)

    def back(self) -> Step | None:
        """Goes back by one iteration; the step now shown, None at the beginning."""
        return self.goto(max(0, self.cursor - 1))

    def goto(self, index: int) -> Step | None:
        """Shows the text after `index` iterations, 0 to `len(steps)`; no model call."""
        with self._lock:
            if index not in range(len(self.steps) + 1):
                raise SettingsError(
                    f"there is no iteration {index}: {len(self.steps)} are decoded; step() or run() decodes more"
                )
            self._history = self._history._replace(cursor=index)
            return self.steps[index - 1] if index else None

    def run(self, until: Condition | None = None) -> Step | None:
        """Steps on until `until` holds, the text ends, or `cancel` is called; the last step shown.

        `until`: a function of a step, or an expression such as `accepted < 2` (see `speclab.trace.conditions`).
        """
        holds = stateful(compiled(until, setting_names()), self.steps[self.cursor - 1] if self.cursor else None)
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
        """Stops a `run` from any thread; the iteration under way is undone, everything before it stays."""
        self._decoding.cancel.set()

    def fork(self, at: int | None = None, strategy: Strategy | None = None, **settings: Any) -> Session:
        """A session of its own with the same text up to iteration `at` (the cursor by default).

        No more than one token is run again, and this session stays as it is. The strategy that decoded there goes on
        with what its drafter had learned by then. Another one starts from scratch: of the prompt and the shared
        iterations its drafter knows the text, and not what the target made of it; the note of its first step says so.

        Args:
            at: iterations to share.
            strategy: another strategy; this one's by default.
            settings: changed settings, of the session or of the strategy.
        """
        with self._lock:
            history = self._history
            at = history.cursor if at is None else at
            if at not in range(len(history.steps) + 1):
                raise SettingsError(f"cannot fork at iteration {at}: 0 to {len(history.steps)} are decoded")
            chosen, other = self._changed(self.strategy if strategy is None else checked(strategy), settings)
            shared = self._length(at)
            generated = shared - self._decoding.prompt_length
            if generated > chosen.max_new_tokens:
                raise SettingsError(
                    f"iteration {at} has {generated} tokens already: raise max_new_tokens or fork earlier"
                )
            learned, steps = history.learned[at], history.steps[:at]
            goes_on = learned.strategy == other
            twin = copy(self)
            twin.strategy, twin.settings, twin._lock, twin._shared = other, chosen, RLock(), at
            if at != self._shared or not goes_on:
                twin._note = "" if goes_on or other.by_hand else FRESH
            twin._decoding = resume(self._decoding, shared, other, chosen, learned.state if goes_on else None)
        twin._begin(shared, steps, history.answers[:at], history.learned[:at])
        return twin

    def _advance(self) -> Step:
        with self._lock:
            history = self._history
            if history.cursor == len(history.steps):
                return self._decode()
            self._history = history._replace(cursor=history.cursor + 1)
            return history.steps[history.cursor]

    def _decode(self, propose: Propose | None = None) -> Step:
        """Decodes and records one iteration; one that raises has not happened."""
        history, decoding = self._history, self._decoding
        if history.finished:
            raise FinishedError(
                f"the text has ended ({history.finished}): go back, or fork with a larger max_new_tokens"
            )
        before, index = decoding.snapshot(), len(history.steps)
        try:
            iteration = iterate(decoding, propose)
            # The first that this session decodes itself has the note.
            step = record(decoding, iteration, index, self._note if index == self._shared else "")
            if iteration.draft.mask is not None:
                step = replace(step, note=f"{step.note} {REDRAWN}".strip())
            ties, fault = self._check(history.tokens, iteration)
            self._history = _History(
                steps=(*history.steps, step),
                answers=(*history.answers, kept_answers(iteration)),
                learned=(*history.learned, _Learned(self.strategy, decoding.drafter.snapshot())),
                tokens=len(decoding.tokens),
                finished=decoding.finished,
                cursor=index + (fault is None),
                ties=history.ties + ties,
            )
        except BaseException:
            if self._history is history:
                decoding.restore(before)
            raise
        if fault is not None:
            raise fault
        return step

    def _check(self, first: int, iteration: Iteration) -> tuple[int, ExactnessError | None]:
        """With `check=True`, the ties of an iteration, and the fault in it: the record of a fault is kept."""
        if self._checker is None or iteration.draft.mask is not None:  # under a redrawn mask nothing is its own
            return 0, None
        try:
            return self._checker.compare(first, iteration.rule), None
        except ExactnessError as fault:
            return 0, fault

    def _length(self, steps: int) -> int:
        """Tokens, prompt included, after that many iterations."""
        return self._decoding.prompt_length + 1 + sum(len(step.committed) for step in self.steps[:steps])

    def _changed(self, strategy: Strategy, changes: dict[str, Any]) -> tuple[SessionSettings, Strategy]:
        own = {name: value for name, value in changes.items() if name in SessionSettings.model_fields}
        rest = {name: value for name, value in changes.items() if name not in own}
        return self.settings.changed(**own), strategy.changed(**rest) if rest else strategy
