"""Run several strategies on one prompt and compare their metrics and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from speclab.display import line, table
from speclab.errors import SettingsError, SpeclabError, named
from speclab.prompts import PromptInput
from speclab.settings import SessionSettings
from speclab.trace.records import Trace

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.pair import ModelPair


_FIGURES = ("tokens_per_iteration", "target_calls", "draft_calls")


@dataclass(frozen=True)
class ComparedRun:
    """One run. `trace` is None if it could not begin; `problem`: why it did not finish."""

    name: str
    trace: Trace | None
    problem: str = ""

    @property
    def token_ids(self) -> list[int]:
        """Generated ids, including the prefill's first token."""
        if self.trace is None:
            return []
        return self.trace.token_ids

    @property
    def complete(self) -> bool:
        return self.trace is not None and bool(self.trace.finished)


@dataclass(frozen=True)
class Comparison:
    """Runs on the same prompt with the same settings; `stopped`: cancelled before all had run."""

    runs: tuple[ComparedRun, ...]
    stopped: bool = False

    @property
    def reference(self) -> ComparedRun | None:
        """The run that the others are compared with: the first complete one, else the first."""
        begun = sorted(
            [run for run in self.runs if run.token_ids], key=lambda run: not run.complete
        )
        return next(iter(begun), None)

    def differs_at(self, run: ComparedRun) -> int | None:
        """First position (from 0) at which a run's text differs from `reference`; None if they
        agree.

        A finished text differs from a longer one at its end.
        """
        if self.reference is None:
            return None
        shorter, longer = sorted((run, self.reference), key=lambda each: len(each.token_ids))
        for index, (token, other) in enumerate(
            zip(shorter.token_ids, longer.token_ids, strict=False)
        ):
            if token != other:
                return index
        ended = shorter.trace is not None and shorter.trace.finished not in {"", "max_new_tokens"}
        if ended and len(shorter.token_ids) < len(longer.token_ids):
            return len(shorter.token_ids)
        return None

    def __repr__(self) -> str:
        rates = {
            run.name: round(run.trace.metrics.tokens_per_iteration, 2)
            for run in self.runs
            if run.trace is not None
        }
        return line("Comparison", tokens_per_iteration=rates, stopped=self.stopped or None)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        rows = []
        for run in self.runs:
            row = {"strategy": run.name, "tokens": str(len(run.token_ids))}
            for name in _FIGURES:
                row[name] = "-"
                if run.trace is not None:
                    row[name] = f"{run.trace.metrics.as_dict()[name]:.4g}"
            row["problem"] = run.problem
            rows.append(row)
        return table(rows)


def compare(
    pair: ModelPair,
    strategies: Mapping[str, Strategy],
    prompt: PromptInput,
    *,
    watch: Callable[[str, Session], bool] = lambda _name, _session: False,
    **settings: Any,
) -> Comparison:
    """Decode the prompt with each of the named strategies.

    A strategy that these models cannot run becomes a run with a problem. `watch` is called with a
    run's name and session before its first iteration and after each; if it returns True, the
    comparison stops with the runs so far.

    Raises:
        SpeclabError: the pair, the mapping, the prompt or a session setting is invalid.
    """
    # these need torch; comparing recorded runs does not
    from speclab.engine.session import Session
    from speclab.pair import checked_pair

    if not isinstance(strategies, Mapping):
        raise SettingsError(
            f'Expected strategies by name, as in {{"DynaTree": DynaTree()}}, got {named(strategies)}.'
        )
    SessionSettings(**settings)
    checked_pair(pair).encode(prompt)
    runs: list[ComparedRun] = []
    stopped = False
    for name, strategy in strategies.items():
        session = None
        problem = ""
        try:
            session = Session(replace(pair, shared_state={}), strategy, prompt, **settings)
            if not watch(name, session):
                session.run(until=lambda _, name=name, session=session: watch(name, session))
        except SpeclabError as error:
            problem = str(error)
        # by `watch`, or by Session.cancel
        stopped = session is not None and not problem and not session.finished
        if stopped:
            problem = "stopped before its end"
        trace = None
        if session is not None:
            trace = session.trace
        runs.append(ComparedRun(name, trace, problem))
        if stopped:
            break
    return Comparison(tuple(runs), stopped)
