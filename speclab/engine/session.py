"""A Session: the decoding loop stepped by hand, with records, time travel and forks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import RLock
from time import perf_counter
from typing import Any, NamedTuple

from speclab.drafters import cost, setting_names
from speclab.drafters.base import Context, Draft, Strategy, checked
from speclab.drafters.by_hand import REDRAWN, TreeEdit, forced_root, given_draft
from speclab.engine.decode import Decoding, Iteration, Snapshot, iterate, resume, start
from speclab.engine.exactness import Checker
from speclab.engine.record import kept_answers, record
from speclab.errors import CancelledError, ExactnessError, FinishedError, SettingsError
from speclab.models.answer import TopTokens
from speclab.models.pair import ModelPair, checked_pair
from speclab.prompts import PromptInput
from speclab.settings import SessionSettings
from speclab.trace.conditions import Condition, compiled, stateful
from speclab.trace.metrics import Counts, Metrics
from speclab.trace.records import Lookup, Step, Trace
from speclab.tree import DraftTree

FRESH = "Forked here to this strategy: of what lies before, its drafter knows the text alone."
"""The note of the first step that a drafter decodes which did not decode the steps before it."""


class _Learned(NamedTuple):
    """A drafter's snapshot: of which strategy, and since which iteration it has learned (None: since the prompt).

    `note`: of the step that comes next, where its root was forced.
    """

    strategy: Strategy
    since: int | None
    state: object
    note: str = ""


class KnownText(NamedTuple):
    """A text that was decoded, prompt included, and what is known of it without running the target again.

    `answers`: for each of `steps` the target's most probable tokens, the nodes first and then the extra rows; empty
    where only the steps were kept.
    """

    pair: ModelPair
    tokens: tuple[int, ...]
    prompt_length: int
    settings: SessionSettings
    steps: tuple[Step, ...]
    answers: tuple[TopTokens, ...]


@dataclass(frozen=True, slots=True)
class _Past:
    """What has been decoded, whole: replaced in one assignment, so that an iteration and its record come together.

    `answers`: of each iteration, what the target made of its nodes. `learned`: after 0, 1, … iterations. `snapshot`,
    `finished`: of the decoding, after the last.
    """

    steps: tuple[Step, ...]
    answers: tuple[TopTokens, ...]
    learned: tuple[_Learned, ...]
    snapshot: Snapshot
    finished: str
    cursor: int
    ties: int


class Session:
    """One prompt decoded step by step.

    Steps already decoded are history: `back`, `goto` and `step` move through them without a model call, and what lies
    ahead of the cursor is not decoded again. To decode it differently, `fork`.

    Args:
        pair: the models; the session takes caches of its own.
        strategy: settings of the strategy.
        prompt: text; token ids; or messages, such as `[{"role": "user", "content": "…"}]`, for the chat template of the
            tokenizer. A last message of the assistant is continued.
        settings: `max_new_tokens`, `temperature`, `top_k`, `top_p`, `seed`, `stop_at_eos`, `check`.

    An iteration that Ctrl-C, `cancel` or an error stops has not happened, wherever it was stopped.

    Raises:
        SpeclabError: the prompt, a setting or the pair does not fit; the message names the way out.
    """

    def __init__(self, pair: ModelPair, strategy: Strategy, prompt: PromptInput, **settings: Any) -> None:
        cost.prepare(checked(strategy), checked_pair(pair))
        began = perf_counter()
        chosen = SessionSettings(**settings)
        ids, self.messages = pair.read_prompt(prompt)
        """Of a prompt given as messages: each with the tokens of its content; all others are the template's."""
        decoding = start(pair.fresh(), strategy, ids, chosen)
        prefill = Metrics(Counts(), perf_counter() - began, decoding.pair.target.calls)
        self._begin(decoding, strategy, prefill, decoding.prompt_length)

    def _begin(
        self,
        decoding: Decoding,
        strategy: Strategy,
        prefill: Metrics,
        first: int,
        steps: tuple[Step, ...] = (),
        answers: tuple[TopTokens, ...] = (),
        learned: tuple[_Learned, ...] = (),
        since: int | None = None,
        note: str = "",
    ) -> None:
        """`first`: the position of the first token that this session decodes itself; the rest comes from a fork."""
        self.strategy, self.settings = strategy, decoding.settings
        self._decoding, self._prefill, self._lock = decoding, prefill, RLock()
        self._checker = Checker(decoding) if decoding.settings.check else None
        ties = self._checker.compare(first) if self._checker is not None else 0
        now = decoding.snapshot()
        learned = (*learned, _Learned(strategy, since, now.learned, note))
        self._past = _Past(steps, answers, learned, now, decoding.finished, len(steps), ties)
        self._in_iteration = False
        """Whether the decoding may be ahead of `_past`: an iteration runs, or was stopped and is not undone yet."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every iteration decoded."""
        return self._past.steps

    @property
    def known(self) -> KnownText:
        """The text as decoded so far, whatever the cursor, with what is kept of the target's answers: for replays."""
        with self._lock:
            decoding, past = self._settled(), self._past
            tokens = tuple(decoding.tokens[: past.snapshot.tokens])
            return KnownText(decoding.pair, tokens, decoding.prompt_length, self.settings, past.steps, past.answers)

    @property
    def cursor(self) -> int:
        """How many of `steps` are shown."""
        return self._past.cursor

    @property
    def learned_since(self) -> int | None:
        """The iterations that the drafter has not learned from: those before a fork that changed the strategy.

        None where it has learned from the prompt on. Of what lies before, it knows the text alone.
        """
        return self._past.learned[-1].since

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
        return self._past.finished

    @property
    def ties(self) -> int:
        """With `check=True`: commits that differ from the target alone within the tolerance of half precision."""
        return self._past.ties

    @property
    def metrics(self) -> Metrics:
        """Figures of the iterations up to the cursor."""
        return replace(self._prefill, counts=sum((step.counts for step in self.steps[: self.cursor]), Counts()))

    @property
    def trace(self) -> Trace:
        """The whole run as plain data, whatever the cursor."""
        past, prompt_length = self._past, self._decoding.prompt_length
        tokens = self._decoding.tokens[: past.snapshot.tokens]
        return Trace(
            prompt_ids=tuple(tokens[:prompt_length]),
            first_token=tokens[prompt_length],
            steps=past.steps,
            settings={**self.strategy.describe(), **self.settings.model_dump()},
            models=self.pair.describe(),
            texts=self.pair.token_texts(sorted(set(tokens))),
            prefill_seconds=self._prefill.ttft,
            prefill_calls=self._prefill.prefill_calls,
            finished=past.finished,
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
            past = self._past
            if not self.strategy.by_hand:
                name = type(self.strategy).__name__
                raise SettingsError(f"{name} drafts its own trees here: fork(strategy=ByHand()) takes yours")
            if past.cursor < len(past.steps):
                ahead = len(past.steps) - past.cursor
                raise SettingsError(f"{ahead} iterations lie ahead of the cursor: fork here, or go to the end")
            self._decoding.cancel.clear()
            given = given_draft(tree, mask)
            self._decode(past, lambda _: given)
            return self._past.steps[past.cursor]

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
            self._past = replace(self._past, cursor=index)
            return self.steps[index - 1] if index else None

    def run(self, until: Condition | None = None) -> Step | None:
        """Steps on until `until` holds, the text ends, or `cancel` is called; the last step shown.

        `until`: a function of a step, or an expression such as `accepted < 2` (see `speclab.trace.conditions`). A
        Ctrl-C or an error inside an iteration leaves the session as it was before that iteration.
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

    def fork(
        self, at: int | None = None, strategy: Strategy | None = None, *, token: int | None = None, **settings: Any
    ) -> Session:
        """A session of its own with the same text up to iteration `at` (the cursor by default).

        No more than one token is run again, and this session stays as it is. The strategy that was in force there
        goes on with what its drafter had learned by then. Another one starts from scratch: of the prompt and the shared
        iterations its drafter knows the text, and not what the target made of it, which a table of transitions or a
        history is made of. `learned_since` says so, and the note of the first step that it decodes.

        Args:
            at: iterations to share.
            strategy: another strategy; this one's by default.
            token: a token of your choice in place of the newest one; the text goes on from it, and the drafter starts
                from scratch.
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
            past, known = self._past, self._learned_by(other, at) if token is None else None
            steps, note = past.steps[:at], past.learned[at].note
            if token is not None:
                token = self.pair.encode([token])[0]
                former = self._decoding.tokens[shared - 1]
                steps, note = forced_root(steps, former, token, self.pair.token_texts([former, token]))
            decoding = resume(self._settled(), shared, other, chosen, None if known is None else known.state, token)
        twin = type(self).__new__(type(self))
        twin.messages = self.messages
        since = at if known is None else known.since
        history = steps, past.answers[:at], past.learned[:at]
        twin._begin(decoding, other, self._prefill, shared, *history, since, note)
        return twin

    def lookup(self, token: int, previous: int | None = None, at: int | None = None) -> Lookup | None:
        """What the drafter had learned of `token`, after `previous`, when `at` iterations were done (by default here).

        No model runs. None where the strategy keeps nothing that can be looked up. Nothing had been learned where
        another strategy decoded, before a fork.

        Raises:
            SpeclabError: no such token, or no such iteration.
        """
        with self._lock:
            at = self._known(self.cursor if at is None else at, "look up what was learned by")
            self.pair.encode([token] if previous is None else [previous, token])
            found = self._settled().drafter.lookup(token, previous)
            if found is None:
                return None
            if at < len(self.steps):  # our own drafter stays where it is: another one goes back
                former = self.strategy.drafter(replace(self.pair, shared_state={}))
                known = self._learned_by(None, at)
                if known is not None:
                    former.restore(known.state)
                found = former.lookup(token, previous)
                assert found is not None
        ids = {id_ for row in found.rows for id_ in (*row.key, *(successor for successor, _ in row.successors))}
        return replace(found, after=at, texts=self.pair.token_texts(sorted(ids)))

    def _advance(self) -> Step:
        with self._lock:
            past = self._past
            if past.cursor < len(past.steps):
                self._past = replace(past, cursor=past.cursor + 1)
            else:
                self._decode(past)
            return self._past.steps[past.cursor]

    def _decode(self, past: _Past, propose: Callable[[Context], Draft] | None = None) -> None:
        """Decodes and records one iteration: either `_past` holds all of it, or nothing has happened."""
        if past.finished:
            raise FinishedError(f"the text has ended ({past.finished}): go back, or fork with a larger max_new_tokens")
        decoding, learned, index = self._settled(), past.learned[-1], len(past.steps)
        self._in_iteration = True
        try:
            iteration = iterate(decoding, propose)
            fresh = FRESH if learned.since == index and not self.strategy.by_hand else ""
            redrawn = "" if iteration.draft.mask is None else REDRAWN
            step = record(decoding, iteration, index, " ".join(filter(None, (learned.note, fresh, redrawn))))
            if learned.note:
                step = replace(step, counts=replace(step.counts, lossy=1))
            ties, fault = self._checked(past, iteration)
            now = decoding.snapshot()
            self._past = _Past(
                steps=(*past.steps, step),
                answers=(*past.answers, kept_answers(iteration)),
                learned=(*past.learned, learned._replace(state=now.learned, note="")),
                snapshot=now,
                finished=decoding.finished,
                cursor=past.cursor + (fault is None),
                ties=past.ties + ties,
            )
        except BaseException:
            self._settled()
            raise
        self._in_iteration = False
        if fault is not None:
            raise fault

    def _settled(self) -> Decoding:
        """The decoding where `_past` says that it is; a stopped iteration is undone first."""
        if self._in_iteration:
            self._decoding.restore(self._past.snapshot)
            self._in_iteration = False
        return self._decoding

    def _checked(self, past: _Past, iteration: Iteration) -> tuple[int, ExactnessError | None]:
        """With `check=True`, the ties of an iteration, and the fault in it: the record of a fault is kept."""
        if self._checker is None or iteration.draft.mask is not None:  # under a redrawn mask nothing is its own
            return 0, None
        try:
            return self._checker.compare(past.snapshot.tokens, iteration.rule), None
        except ExactnessError as fault:
            return 0, fault

    def _length(self, steps: int) -> int:
        """Tokens, prompt included, after that many iterations."""
        return self._decoding.prompt_length + 1 + sum(len(step.committed) for step in self.steps[:steps])

    def _known(self, at: int, what: str) -> int:
        if at not in range(len(self.steps) + 1):
            raise SettingsError(f"cannot {what} iteration {at}: 0 to {len(self.steps)} are decoded")
        return at

    def _learned_by(self, strategy: Strategy | None, at: int) -> _Learned | None:
        """What this strategy (our own by default) had learned after `at` iterations, if it was in force there."""
        learned = self._past.learned[at]
        return learned if learned.strategy == (strategy or self.strategy) else None

    def _changed(self, strategy: Strategy, changes: dict[str, Any]) -> tuple[SessionSettings, Strategy]:
        own = {name: value for name, value in changes.items() if name in SessionSettings.model_fields}
        rest = {name: value for name, value in changes.items() if name not in own}
        return self.settings.changed(**own), strategy.changed(**rest) if rest else strategy
