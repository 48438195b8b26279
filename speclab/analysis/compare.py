"""Several runs on one prompt: what each came to, and whether their texts are the same.

A `Comparison` is made of recorded runs and needs no torch; `compare` decodes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from speclab.errors import SpeclabError
from speclab.prompts import PromptInput
from speclab.settings import SessionSettings
from speclab.trace.records import Step, Trace, depth_counts

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair

Watch = Callable[[str, "Session"], bool]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run. `trace` is None where it could not begin; `problem` says why it did not reach its end."""

    name: str
    trace: Trace | None
    problem: str = ""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Generated ids, the prefill's first included."""
        return () if self.trace is None else self.trace.token_ids()

    @property
    def steps(self) -> tuple[Step, ...]:
        """Its iterations."""
        return () if self.trace is None else self.trace.steps

    @property
    def tokens_per_iteration(self) -> float:
        """Committed tokens / verification passes; 0 where it could not begin."""
        return 0.0 if self.trace is None else self.trace.metrics.tokens_per_iteration

    @property
    def complete(self) -> bool:
        """Whether the text reached its end or its most tokens."""
        return self.trace is not None and bool(self.trace.finished)

    @property
    def ended(self) -> bool:
        """Whether nothing could follow the text: it was not cut at a number of tokens."""
        return self.trace is not None and self.trace.finished not in {"", "max_new_tokens"}

    def seconds(self, phase: str) -> float:
        """Seconds in a phase, over all iterations."""
        return sum(step.seconds.get(phase, 0.0) for step in self.steps)

    @property
    def depths(self) -> list[tuple[int, int]]:
        """For each depth from 1: (iterations that drafted so deep, iterations that accepted so deep)."""
        return depth_counts(self.steps)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs on the same prompt with the same settings; texts are compared with `reference`.

    Each strategy ran once, one after another: its seconds are of this machine at that time (`speclab bench` repeats and
    alternates). `stopped`: whether it was cancelled before all had run.
    """

    runs: tuple[ComparedRun, ...]
    stopped: bool = False

    @property
    def greedy(self) -> bool:
        """Whether every text must be the target's own: temperature 0."""
        return all(not run.trace.settings.get("temperature") for run in self.runs if run.trace is not None)

    @property
    def reference(self) -> tuple[int, ...]:
        """The text that the others are compared with: the first that is complete, else the first."""
        return () if self._first is None else self._first.token_ids

    @property
    def _first(self) -> ComparedRun | None:
        begun = [run for run in self.runs if run.token_ids]
        return next((run for run in begun if run.complete), begun[0] if begun else None)

    @property
    def shared(self) -> tuple[int, ...]:
        """Generated ids that no text differs in, as far as each came."""
        differing = [at for run in self.runs if (at := self.differs_at(run)) is not None]
        return self.reference[: min(differing, default=None)]

    def differs_at(self, run: ComparedRun) -> int | None:
        """Where a run's text leaves `reference`, counted from 0; None where it does not, as far as it came."""
        one, other = self.reference, run.token_ids
        shortest = min(len(one), len(other))
        at = next((i for i in range(shortest) if one[i] != other[i]), shortest)
        shorter = run if len(other) == shortest else self._first
        ended_apart = len(one) != len(other) and shorter is not None and shorter.ended
        return at if at < shortest or ended_apart else None

    def __str__(self) -> str:
        names = ("tokens_per_iteration", "target_calls", "draft_calls")
        cells: list[tuple[str, ...]] = [("strategy", "tokens", *names)]
        for run in self.runs:
            found = [getattr(run.trace.metrics, name) for name in names] if run.trace else [""] * len(names)
            figures = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in found]
            cells.append((run.name, str(len(run.token_ids)), *figures))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def compare(
    pair: ModelPair,
    strategies: Mapping[str, Strategy],
    prompt: PromptInput,
    *,
    watch: Watch = lambda _name, _session: False,
    **settings: Any,
) -> Comparison:
    """Decodes the prompt with each strategy, to the end of its text.

    None takes over what another has carried from prompt to prompt. A strategy that these models cannot run becomes a
    run with its problem, and the others go on.

    Args:
        pair: the models; every run takes caches of its own, and gives them back.
        strategies: by the name that each run gets.
        watch: called with a run's name and session before its first iteration and after each; True ends everything,
            what was decoded stays.

    Raises:
        SpeclabError: the prompt or a setting fits none of them.
    """
    SessionSettings(**settings)
    pair.encode(prompt)
    runs: list[ComparedRun] = []
    for name, strategy in strategies.items():
        run, stopped = _run(replace(pair, shared_state={}), name, strategy, prompt, watch, settings)
        runs.append(run)
        if stopped:
            return Comparison(tuple(runs), stopped=True)
    return Comparison(tuple(runs))


def _run(
    pair: ModelPair, name: str, strategy: Strategy, prompt: PromptInput, watch: Watch, settings: dict[str, Any]
) -> tuple[ComparedRun, bool]:
    """A run, and whether it was stopped."""
    from speclab.engine.session import Session  # brings torch, which comparing what was recorded does without

    try:
        session = Session(pair, strategy, prompt, **settings)
    except SpeclabError as error:
        return ComparedRun(name, None, str(error)), False
    problem, stopped = "", watch(name, session)

    def each(_: Step) -> bool:
        nonlocal stopped
        stopped = watch(name, session)
        return stopped

    try:
        if not stopped:
            session.run(until=each)
    except SpeclabError as error:
        problem = str(error)
    stopped = stopped or (not problem and not session.finished)  # cancelled inside an iteration
    if stopped and not session.finished:
        problem = "stopped before its end"
    return ComparedRun(name, session.trace, problem), stopped
