"""A Session: the decoding loop stepped by hand, with records, time travel and forks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from threading import RLock
from time import perf_counter
from typing import Any, NamedTuple, Never

from speclab.display import line, short, view
from speclab.drafters import cost, setting_names
from speclab.drafters.base import Strategy, checked
from speclab.drafters.by_hand import draft_of
from speclab.engine.decode import Decoding, Iteration, Propose, Snapshot, iterate, resume, start
from speclab.engine.exactness import Checker
from speclab.engine.record import kept_answers, record
from speclab.errors import (
    CancelledError,
    ExactnessError,
    FinishedError,
    SettingsError,
    meant,
)
from speclab.models.answer import KEPT, TopTokens
from speclab.pair import ModelPair, checked_pair
from speclab.prompts import Message, PromptInput
from speclab.settings import SessionSettings
from speclab.trace.conditions import Condition, compiled
from speclab.trace.edit import TreeEdit
from speclab.trace.metrics import Counts, Metrics
from speclab.trace.records import Step, Trace, Value
from speclab.tree import DraftTree

FRESH = "forked"
"""The note of the first step of a fork whose drafter has seen the text, but has no history."""
_Learned = tuple[Strategy, object]
"""A strategy, and what its drafter had learned."""


class _History(NamedTuple):
    """What has been decoded. It is replaced in one assignment, so an iteration and its record
    appear together.

    `answers`: the target's most probable tokens for each step. `learned`: after 0, 1, … iterations.
    `tokens`: their number, prompt included. `finished`: why decoding ended. `ties`: commits that
    differ within the tolerance.
    """

    steps: tuple[Step, ...]
    answers: tuple[TopTokens, ...]
    learned: tuple[_Learned, ...]
    tokens: int
    finished: str
    cursor: int
    ties: int


_NOTHING = _History((), (), (), 0, "", 0, 0)


class Session:
    """One prompt decoded step by step.

    Decoded steps are history: `back`, `goto` and `step` move through them without a model call. To
    decode them differently, `fork`. An iteration that Ctrl-C, `cancel` or an error stops is undone.

    Args:
        pair: the models; the session uses its own caches.
        strategy: settings of the strategy.
        prompt: text; token ids; or messages, such as `[{"role": "user", "content": "…"}]`, for the
            tokenizer's chat template. A last message of the assistant is continued.
        max_new_tokens: most tokens to generate, the prefill's first token included.
        temperature: 0 is greedy. `top_k`, `top_p`: sample among the most probable tokens only.
        seed: the same seed gives the same text.
        stop_at_eos: stop at the end-of-text token.
        check: compare every commit with the target decoding alone.
        template: arguments of the chat template, for messages: `{"enable_thinking": False}`.

    Attributes:
        messages: the prompt's messages with the token range of their content; all other tokens are
            the template's.

    Raises:
        SpeclabError: the prompt, a setting or the pair does not fit.
    """

    def __init__(
        self,
        pair: ModelPair,
        strategy: Strategy,
        prompt: PromptInput,
        *,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop_at_eos: bool = True,
        check: bool = False,
        template: Mapping[str, Any] | None = None,
        **misspelt: Never,
    ) -> None:
        cost.with_node_budget(checked(strategy), checked_pair(pair))
        began = perf_counter()
        chosen = SessionSettings(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop_at_eos=stop_at_eos,
            check=check,
            **misspelt,
        )
        ids, messages = pair.read_prompt(prompt, template)
        decoding = start(pair.fresh(), strategy, ids, chosen)
        prefill = Metrics(Counts(), perf_counter() - began, decoding.pair.target.calls)
        self._construct(decoding, strategy, chosen, messages, prefill, len(ids))

    def _construct(
        self,
        decoding: Decoding,
        strategy: Strategy,
        settings: SessionSettings,
        messages: tuple[Message, ...],
        prefill: Metrics,
        first: int,
        past: _History = _NOTHING,
        note: str = "",
    ) -> None:
        """A new session or a fork.

        Args:
            first: position of the first token that it decodes itself.
            past: the iterations that a fork shares.
            note: of its first step.
        """
        self.strategy = strategy
        self.settings = settings
        self.messages = messages
        self._decoding = decoding
        self._prefill = prefill
        self._lock = RLock()
        self._shared = len(past.steps)
        self._note = note
        self._begun: tuple[Sequence[Step], Snapshot | None] = ((), None)
        decoding.topk = KEPT
        self._checker: Checker | None = None
        ties = 0
        if settings.check:
            self._checker = Checker(decoding)
            ties = self._checker.compare(first)
        self._history = past._replace(
            learned=past.learned + ((strategy, decoding.drafter.snapshot()),),
            tokens=len(decoding.tokens),
            finished=decoding.finished,
            cursor=self._shared,
            ties=ties,
        )

    def __repr__(self) -> str:
        return line(
            "Session",
            self.pair.name,
            self.strategy,
            tokens=len(self.token_ids),
            cursor=f"{self.cursor} of {len(self.steps)}",
            finished=self.finished,
            text=short(self.text),
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return view("text", self)

    @property
    def steps(self) -> tuple[Step, ...]:
        return self._history.steps

    @property
    def answers(self) -> tuple[TopTokens, ...]:
        """The target's 16 most probable tokens after each row of each step: the nodes, then the extra rows."""
        return self._history.answers

    @property
    def cursor(self) -> int:
        return self._history.cursor

    @property
    def pair(self) -> ModelPair:
        return self._decoding.pair

    @property
    def prompt_ids(self) -> list[int]:
        return self._decoding.tokens[: self._decoding.prompt_length]

    @property
    def token_ids(self) -> list[int]:
        """Generated ids up to the cursor; the first comes from the prefill."""
        return self._decoding.tokens[self._decoding.prompt_length : self._length(self.cursor)]

    @property
    def text(self) -> str:
        return self.pair.continuation(self.prompt_ids, self.token_ids)

    @property
    def done(self) -> bool:
        return bool(self.finished) and self.cursor == len(self.steps)

    @property
    def finished(self) -> str:
        """Why decoding has ended ("end of text", "max_new_tokens"); empty if it has not."""
        return self._history.finished

    @property
    def ties(self) -> int:
        """With `check=True`: commits that differ from the target's own choice within the tolerance."""
        return self._history.ties

    @property
    def metrics(self) -> Metrics:
        return replace(
            self._prefill, counts=sum((step.counts for step in self.steps[: self.cursor]), Counts())
        )

    @property
    def trace(self) -> Trace:
        """The whole run as plain data, whatever the cursor."""
        history = self._history
        prompt_length = self._decoding.prompt_length
        tokens = self._decoding.tokens[: history.tokens]
        return Trace(
            prompt_ids=tuple(tokens[:prompt_length]),
            first_token=tokens[prompt_length],
            steps=history.steps,
            settings=self._described(),
            models=self.pair.describe(),
            texts=self.pair.token_texts(sorted(set(tokens))),
            prefill_seconds=self._prefill.ttft,
            prefill_calls=self._prefill.prefill_calls,
            finished=history.finished,
            messages=self.messages,
        )

    def _described(self) -> dict[str, Value]:
        """All settings as given, and beside "auto" the number of nodes that it took."""
        settings = self.strategy.describe() | self.settings.model_dump()
        if self.strategy.is_auto:
            settings["measured_node_budget"] = self._decoding.drafter.settings.number_of_nodes
        return settings

    def step(self) -> Step:
        """Moves on by one iteration: through history if the cursor is before its end, else by
        decoding.

        Raises:
            FinishedError: the text has ended.
            CancelledError: `cancel` was called; nothing changed.
        """
        self._decoding.cancel.clear()
        return self._advance()

    def verify(self, tree: DraftTree | TreeEdit) -> Step:
        """Verifies a tree that a person built, in a session of `ByHand` whose cursor is at the end.

        Args:
            tree: its root is the newest token of the text, `token_ids[-1]`.

        Raises:
            SettingsError: another strategy drafts here, the cursor is not at the end, or the tree
                does not fit.
        """
        with self._lock:
            if not self.strategy.by_hand:
                name = type(self.strategy).__name__
                raise SettingsError(
                    f"{name} drafts its own trees: use fork(strategy=ByHand()) to verify yours."
                )
            if ahead := len(self.steps) - self.cursor:
                raise SettingsError(
                    f"{ahead} decoded iterations are ahead of the cursor: fork here, or go to the "
                    "end."
                )
            self._decoding.cancel.clear()
            draft = draft_of(tree)
            return self._decode(lambda _: draft)

    def back(self) -> Step | None:
        """Goes back by one iteration; returns the step now shown, None at the beginning."""
        return self.goto(max(0, self.cursor - 1))

    def goto(self, index: int) -> Step | None:
        """Shows the text after `index` iterations, 0 to `len(steps)`, without a model call."""
        with self._lock:
            if not self._has(index):
                raise SettingsError(
                    f"Iteration {index} does not exist: {len(self.steps)} are decoded. Use step() "
                    "or run() for more."
                )
            self._history = self._history._replace(cursor=index)
            return self._shown

    def run(self, until: Condition | None = None) -> Step | None:
        """Steps until `until` holds, the text ends, or `cancel` is called; returns the last step
        shown.

        `until`: a function of a step, or an expression such as `accepted < 2` (see
        `speclab.trace.conditions`).
        """
        holds = compiled(until, setting_names())
        self._decoding.cancel.clear()
        while not self.done and not self._decoding.cancel.is_set():
            try:
                step = self._advance()
            except CancelledError:
                break
            if holds(step):
                break
        return self._shown

    @property
    def _shown(self) -> Step | None:
        """The step at the cursor; None at the beginning."""
        if self.cursor == 0:
            return None
        return self.steps[self.cursor - 1]

    def cancel(self) -> None:
        """Stops a `run` from any thread; the current iteration is undone."""
        self._decoding.cancel.set()

    def fork(
        self, at: int | None = None, strategy: Strategy | None = None, **settings: Any
    ) -> Session:
        """A separate session with the same text up to iteration `at`; this session stays unchanged.

        At most one token is run again. The same strategy continues with what its drafter had
        learned by then. A different strategy starts with empty tables and no history; the note of
        its first step says so.

        Args:
            at: iterations to share; the cursor by default.
            strategy: by default this session's.
            settings: changed settings of the session or of the strategy.
        """
        with self._lock:
            history = self._history
            if at is None:
                at = history.cursor
            if not self._has(at):
                raise SettingsError(
                    f"Cannot fork at iteration {at}: choose one from 0 to {len(history.steps)}; a "
                    "strategy is given as strategy=…."
                )
            if strategy is None:
                strategy = self.strategy
            chosen, other = self._changed(checked(strategy), settings)
            shared = self._length(at)
            generated = shared - self._decoding.prompt_length
            if generated > chosen.max_new_tokens:
                raise SettingsError(
                    f"Iteration {at} has {generated} tokens already: raise max_new_tokens or fork "
                    "earlier."
                )
            strategy_there, learned = history.learned[at]
            note = ""
            if strategy_there != other:
                learned = None
                if not other.by_hand and getattr(other, "history", "off") != "off":
                    note = FRESH
            elif at == self._shared:
                note = self._note
            decoding = resume(self._decoding, shared, other, chosen, learned)
            past = history._replace(
                steps=history.steps[:at], answers=history.answers[:at], learned=history.learned[:at]
            )
            fork = object.__new__(Session)
            fork._construct(
                decoding, other, chosen, self.messages, self._prefill, shared, past, note
            )
        return fork

    def _advance(self) -> Step:
        with self._lock:
            history = self._history
            if history.cursor == len(history.steps):
                return self._decode()
            self._history = history._replace(cursor=history.cursor + 1)
            return history.steps[history.cursor]

    def _decode(self, propose: Propose | None = None) -> Step:
        history = self._history
        decoding = self._decoding
        if history.finished:
            raise FinishedError(
                f"The text has ended ({history.finished}): go back, or fork with a larger "
                "max_new_tokens."
            )
        for source in (self.pair.target, *decoding.drafter.runners):
            source.check_unchanged(whole=self._checker is not None)
        self._undo()  # a second Ctrl-C may have stopped that
        self._begun = history.steps, decoding.snapshot()
        index = len(history.steps)
        note = ""
        if index == self._shared:
            note = self._note
        try:
            iteration = iterate(decoding, propose)
            step = record(decoding, iteration, index, note)
            ties, fault = self._check(history.tokens, iteration)
            cursor = index
            if fault is None:
                cursor += 1
            self._history = _History(
                steps=history.steps + (step,),
                answers=history.answers + (kept_answers(iteration),),
                learned=history.learned + ((self.strategy, decoding.drafter.snapshot()),),
                tokens=len(decoding.tokens),
                finished=decoding.finished,
                cursor=cursor,
                ties=history.ties + ties,
            )
        except BaseException:
            self._undo()
            raise
        if fault is not None:
            raise fault
        return step

    def _undo(self) -> None:
        """Restores the state before the last iteration if that was not recorded."""
        steps, before = self._begun
        if before is not None and self._history.steps is steps:
            self._decoding.restore(before)

    def _check(self, first: int, iteration: Iteration) -> tuple[int, ExactnessError | None]:
        """With `check=True`: the ties of an iteration and its fault; an iteration with a fault is still recorded."""
        if self._checker is None:
            return 0, None
        try:
            return self._checker.compare(first, iteration.rule), None
        except ExactnessError as fault:
            return 0, fault

    def _has(self, index: object) -> bool:
        """Whether it counts decoded iterations."""
        return isinstance(index, Integral) and index in range(len(self.steps) + 1)

    def _length(self, steps: int) -> int:
        committed = sum(len(step.committed) for step in self.steps[:steps])
        return self._decoding.prompt_length + 1 + committed

    def _changed(
        self, strategy: Strategy, changes: dict[str, Any]
    ) -> tuple[SessionSettings, Strategy]:
        own: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in changes.items():
            if name in SessionSettings.model_fields:
                own[name] = value
                continue
            rest[name] = value
            near = meant(name, ["strategy", *SessionSettings.model_fields])
            if near and name not in type(strategy).model_fields:
                raise SettingsError(f"A session has no setting {name!r}: did you mean {near}?")
        if rest:
            strategy = strategy.changed(**rest)
        return self.settings.changed(**own), strategy
