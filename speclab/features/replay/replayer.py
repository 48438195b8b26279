"""Replay a known text under any strategy and setting, without running the target.

Greedy text does not depend on the strategy. Neither does sampled text if candidates are chosen
beforehand, because its random numbers belong to positions. So the loop of `speclab.engine.decode`
runs with a target that knows the text (`known_text`), and its iterations, histories and tables are
those of a real run.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from speclab.display import line, table
from speclab.drafters import cost
from speclab.drafters.base import Draft, Strategy, checked
from speclab.drafters.by_hand import ByHand
from speclab.engine.acceptance import Rule
from speclab.engine.decode import Decoding, iterate, runners, start
from speclab.engine.record import record
from speclab.engine.session import Session
from speclab.errors import NotRecordedError, SettingsError, named
from speclab.features.replay.known_text import KnownTarget, Text
from speclab.models.runner import Runner
from speclab.pair import ModelPair, checked_pair
from speclab.settings import SessionSettings
from speclab.trace.records import Step, Trace

Check = Callable[[], None]
"""Raises an error if the replay was cancelled."""


@dataclass(frozen=True)
class Passes:
    """One replayed iteration: `nodes` rows of the target's pass, and for each draft its calls and
    all their rows.

    `accepted`: accepted drafted nodes. `others`: rows of further target passes, if the strategy
    runs committed tokens again.
    """

    nodes: int
    accepted: int
    committed: tuple[int, ...]
    drafts: Sequence[Sequence[int]]
    others: int

    @property
    def draft_calls(self) -> int:
        return sum(calls for calls, _ in self.drafts)


@dataclass(frozen=True)
class Replay:
    """The replay of a strategy on a text: `passes` are its iterations.

    `inexact`: why a real run may differ; empty if it does not. `traces`: of a replay for another
    pair, the strategy's run, and its trees as the other target verifies them.
    """

    strategy: Strategy
    passes: tuple[Passes, ...]
    pair: ModelPair = field(compare=False)
    inexact: str = ""
    traces: tuple[Trace, ...] = field(default=(), compare=False, repr=False)

    def __repr__(self) -> str:
        return line("Replay", **self._facts())

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return table([self._facts()])

    def _facts(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "iterations": self.iterations,
            "tokens_per_iteration": round(self.tokens_per_iteration, 3),
            "draft_calls": self.draft_calls,
            "inexact": self.inexact,
        }

    @property
    def iterations(self) -> int:
        """Target passes of a real run after the prefill."""
        return len(self.passes)

    @property
    def committed(self) -> tuple[tuple[int, ...], ...]:
        return tuple(iteration.committed for iteration in self.passes)

    @property
    def tokens_per_iteration(self) -> float:
        return sum(map(len, self.committed)) / max(1, self.iterations)

    @property
    def draft_calls(self) -> int:
        return sum(iteration.draft_calls for iteration in self.passes)

    @property
    def seconds(self) -> float:
        """Modelled from the measured costs of all passes (`drafters.cost`), without the drafter's own work."""
        target, *drafts = runners(self.pair)
        seconds = 0.0
        for iteration in self.passes:
            seconds += sum(
                cost.seconds(target, rows) for rows in (iteration.nodes, iteration.others) if rows
            )
            for runner, (calls, rows) in zip(drafts, iteration.drafts, strict=True):
                if calls:
                    seconds += calls * cost.seconds(runner, max(1, round(rows / calls)))
        return seconds

    @property
    def tokens_per_second(self) -> float:
        """Modelled, as `seconds`, without the prefill and its token."""
        if not self.passes:
            return 0.0
        return sum(map(len, self.committed)) / self.seconds


def replay(session: Session, strategy: Strategy, pair: ModelPair | None = None) -> Replay:
    """Replay the whole text of a session under `strategy`; for many strategies on one text use a
    `Replayer`.

    Args:
        pair: another target, such as the first one after its training, reads the same text and
            verifies the same trees (`Replay.traces`). `speclab.nodes(replay.traces)` has each node
            twice: where `accepted` or `right` differ, the token lost or gained acceptance.

    Raises:
        NotRecordedError: the records do not suffice; the message names what is missing.
        SpeclabError: the strategy does not fit the pair, or `pair` does not fit the text.
    """
    replayed = Replayer(session).replay(strategy)
    if pair is None:
        return replayed
    own = session.fork(0, strategy, max_new_tokens=len(session.token_ids))
    own.run()
    return replace(replayed, traces=(own.trace, _verified_by(pair, own.trace)))


def _verified_by(pair: ModelPair, trace: Trace) -> Trace:
    """The trees of a run as another target verifies them, each after the text of that run."""
    if any(0 in step.drafted for step in trace.steps):
        raise SettingsError("The root of these trees is drafted: choose root='verified'.")
    text = checked_pair(pair).encode(list(trace.prompt_ids) + trace.token_ids)
    decoding = start(pair.fresh(), ByHand(), trace.prompt_ids, SessionSettings.of(trace.settings))
    target = decoding.pair.target
    steps: list[Step] = []
    for step in trace.steps:
        if steps:  # what this target chose in the pass before leaves the cache
            target.crop(steps[-1].prefix_length)
        decoding.tokens[:] = text[: step.prefix_length + 1]
        decoding.catch_up()
        iteration = iterate(decoding, partial(lambda tree, _: Draft(tree), step.tree))
        steps.append(replace(record(decoding, iteration, step.index), committed=step.committed))
    return replace(trace, steps=tuple(steps), models=pair.describe())


class Replayer:
    """Replays one text under any number of strategies: the target is known, and drafts are run.

    It has its own caches, so the session may go on; the text ends where the session was.

    Args:
        ask_target: tables of transitions learn from rejected rows too, but only rows of the decoded
            run are recorded. By default a replay skips the other rows and reports it (`inexact`);
            True runs the target for them.

    Raises:
        NotRecordedError: there is no iteration, or the text depends on the drafts.
    """

    def __init__(self, session: Session | Text, *, ask_target: bool = False) -> None:
        if not isinstance(session, Session | Text):
            raise SettingsError(
                f"Expected a session to replay, got {named(session)}: decode the text with "
                "speclab.Session(pair, strategy, prompt)."
            )
        if isinstance(session, Session):
            self._text = Text(session)
            _check(self._text)
        else:
            self._text = session
        self._ask_target = ask_target

    def __repr__(self) -> str:
        return line("Replayer", tokens=len(self._text.trace.token_ids))

    def replay(self, strategy: Strategy, check: Check = lambda: None) -> Replay:
        """Replay the text; `check` is called before each iteration and may raise to end the replay.

        Raises:
            NotRecordedError: the strategy needs records that are missing.
            SpeclabError: the strategy does not fit the pair, or a model was changed.
        """
        text = self._text
        # the record has the answers of the target as it was
        text.pair.target.check_unchanged(whole=True)
        prompt = self._text.trace.prompt_ids
        text.missed = 0
        pair = self._known_pair()
        new = len(text.tokens) - len(prompt)
        settings = SessionSettings.of(text.trace.settings).changed(max_new_tokens=new, check=False)
        asked = None
        if self._ask_target:
            asked = text.pair.target.fork()
        target = KnownTarget(text, asked)
        decoding = start(pair, checked(strategy), prompt, settings, target=target)
        text.watch(self._target.cache.watched)
        self._target.cache.hidden = text.states
        passes = []
        while not decoding.finished:
            check()
            before = _calls_and_rows(decoding)
            iteration = iterate(decoding)
            (_, rows), *drafts = (_calls_and_rows(decoding) - before).tolist()
            outcome = iteration.outcome
            nodes = len(outcome.tree) + len(iteration.draft.extra.token)
            passes.append(
                Passes(nodes, len(outcome.accepted), outcome.committed, drafts, rows - nodes)
            )
        assert decoding.tokens == text.tokens
        return Replay(strategy, tuple(passes), text.pair, _doubt(text, pair, strategy))

    @cached_property
    def _target(self) -> Runner:
        """An empty copy of the target, which runs no pass; heads read its hidden states."""
        return self._text.pair.target.fork()

    def _known_pair(self) -> ModelPair:
        text = self._text
        draft = text.pair.draft and text.pair.draft.fork()
        heads = tuple(head.fork(0, self._target) for head in text.pair.heads)
        # indexed texts, which depend on no prompt
        shared = text.pair.shared_state
        indexed: dict[Hashable, Any] = {key: shared[key] for key in shared if isinstance(key, str)}
        return replace(
            text.pair, target=self._target, draft=draft, heads=heads, shared_state=indexed
        )


def _calls_and_rows(decoding: Decoding) -> Any:
    """The calls and rows of each runner so far, `[runners, 2]`."""
    return np.array([(runner.calls, runner.rows) for runner in decoding.runners])


def _doubt(text: Text, pair: ModelPair, strategy: Strategy) -> str:
    if text.missed:
        return (
            f"it also learns from the target's answers to rejected tokens, and {text.missed} of "
            "these rows are not recorded because they were in no tree of the decoded run"
        )
    if strategy in pair.shared_state:
        return "its state from earlier prompts is not recorded, so the replay starts as on a first prompt"
    return ""


def _check(text: Text) -> None:
    steps = text.trace.steps
    if not steps and len(text.trace.token_ids) <= 1:
        raise NotRecordedError("there is no text to replay yet: decode at least one iteration")
    if fault := text.pair.describe().get("fault"):
        raise NotRecordedError(
            f"the pair has the fault {fault!r}, so its text depends on the tree: replay a run "
            "without the fault"
        )
    if any(step.rule and not Rule(step.rule).follows_the_target for step in steps):
        raise NotRecordedError(
            "this text depends on the drafts, because its candidates were sampled from the draft's "
            "probabilities: replay a greedy text, or one sampled with candidates='top'"
        )
