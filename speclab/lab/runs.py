"""The sessions of a lab, each with its caches, as a tree of forks; and strategies compared on one prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from speclab.analysis.compare import ComparedRun, Comparison
from speclab.drafters import from_str
from speclab.errors import SettingsError
from speclab.lab.state import LabConfig
from speclab.trace.metrics import Counts
from speclab.views.markup import clip
from speclab.views.runs import Fork
from speclab.views.side_by_side import Beside

if TYPE_CHECKING:
    from speclab.drafters.base import Strategy
    from speclab.engine.session import Session
    from speclab.models.pair import ModelPair
    from speclab.trace.records import Trace

CURRENT = "current settings"
"""Stands for the strategy in the form, with its settings."""


@dataclass
class Run:
    """A session, what it was made of, and where it comes from."""

    number: int
    session: Session
    applied: LabConfig
    name: str
    parent: int | None = None
    at: int = 0

    def describe(self, *, present: bool) -> Fork:
        """As plain data."""
        steps = list(self.session.steps)
        committed = sum([len(step.committed) for step in steps])
        calls = sum([step.counts for step in steps], Counts()).iterations
        rate, caches = committed / calls if calls else 0.0, cache_bytes(self.session.pair)
        return Fork(
            self.number, self.name, self.parent, self.at, len(steps), 1 + committed, rate, caches, present=present
        )


class Runs:
    """Every run stays until it is dropped; runs of models that are no longer loaded go with them."""

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}
        self._next = 0
        self._present: int | None = None

    def begin(self, session: Session, applied: LabConfig) -> None:
        """A run from the prompt on becomes the present one; one that nothing was decoded in gives way to it."""
        model = session.pair.target.model
        kept = {number: run for number, run in self._runs.items() if run.session.pair.target.model is model}
        if self._present in kept and not kept[self._present].session.steps:
            self._forget(kept, self._present)
        self._runs = kept
        self._add(session, applied, type(session.strategy).__name__)

    def fork(self, session: Session, applied: LabConfig, at: int) -> None:
        """A fork of the present run, after `at` iterations of it, becomes the present one."""
        former = self.present
        changed = "; ".join(differences(former.applied, applied)) or "nothing changed"
        self._add(session, applied, changed, former.number, at)

    def switch(self, number: int) -> Run:
        """Another run becomes the present one."""
        found = self.find(number)
        self._present = number
        return found

    def drop(self, number: int) -> Run:
        """Lets a run go that is not shown, its caches with it; its forks stay and hang on its parent."""
        found = self.find(number)
        if number == self._present:
            raise SettingsError(f"Run {number} is shown: switch to another one, then drop it.")
        self._forget(self._runs, number)
        return found

    def find(self, number: int) -> Run:
        """The run of this number."""
        if number not in self._runs:
            there = ", ".join(map(str, self._runs)) or "none"
            raise SettingsError(f"There is no run {number}: these are kept: {there}.")
        return self._runs[number]

    @property
    def present(self) -> Run:
        """The run that the lab goes on with."""
        if self._present is None:
            raise SettingsError("No run has begun: Step decodes the first iteration.")
        return self._runs[self._present]

    def describe(self) -> tuple[Fork, ...]:
        """All runs as plain data, in the order they began."""
        return tuple(run.describe(present=run.number == self._present) for run in list(self._runs.values()))

    def comparison(self) -> Comparison:
        """Every run on the prompt of the present one, as far as it came; empty where none has begun."""
        if self._present is None:
            return Comparison(())
        prompt = self.present.session.prompt_ids
        alike = [run for run in list(self._runs.values()) if run.session.prompt_ids == prompt]
        return Comparison(tuple(ComparedRun(run.describe(present=False).label, run.session.trace) for run in alike))

    def own(self) -> list[tuple[int, Trace]]:
        """The number of each run and what it decoded itself: what a fork has from another run is that one's."""
        traces = [(run, run.session.trace) for run in list(self._runs.values())]
        return [(run.number, replace(trace, steps=trace.steps[run.at :])) for run, trace in traces]

    def beside(self, number: int) -> Beside:
        """A run as it stands, to be kept beside the one shown."""
        run = self.find(number)
        return Beside(number, run.describe(present=False).label, run.session.trace)

    def refreshed(self, kept: Beside | None) -> Beside | None:
        """What is kept beside, with what its run has decoded since; as it was where the run was dropped."""
        run = None if kept is None else self._runs.get(kept.number)
        if kept is None or run is None or len(run.session.steps) == len(kept.trace.steps):
            return kept
        return self.beside(kept.number)

    def _add(self, session: Session, applied: LabConfig, name: str, parent: int | None = None, at: int = 0) -> None:
        if fault := getattr(session.pair, "fault", ""):
            name = f"{name}, fault: {fault}"
        runs = {**self._runs, self._next: Run(self._next, session, applied, name, parent, at)}
        self._runs, self._present, self._next = runs, self._next, self._next + 1

    @staticmethod
    def _forget(runs: dict[int, Run], number: int) -> None:
        gone = runs.pop(number)
        for run in runs.values():
            if run.parent == number:
                run.parent, run.at = gone.parent, min(run.at, gone.at) if gone.parent is not None else 0


def cache_bytes(pair: ModelPair) -> int:
    """Bytes allocated for the KV caches of all its runners."""
    runners = (*pair.runners.values(), *pair.heads)
    return sum([runner.capacity * runner.slot_bytes for runner in runners])


def differences(old: LabConfig, new: LabConfig) -> list[str]:
    """What differs, in words."""
    found = [] if old.models == new.models else ["models"]
    found += [] if old.prompt == new.prompt else ["prompt"]
    before, after = {**old.strategy.describe(), **old.settings}, {**new.strategy.describe(), **new.settings}
    if type(old.strategy) is not type(new.strategy):
        after = {**new.settings, "strategy": after["strategy"]}
    changed = [name for name, value in after.items() if before[name] != value]
    return found + [f"{name.replace('_', ' ')} {_short(before[name])} → {_short(after[name])}" for name in changed]


def _short(value: Any) -> str:
    if value is None:
        return "off"
    return f"{value:g}" if isinstance(value, float) else clip(str(value), 24)


def named_strategies(strategies: Iterable[Any]) -> dict[str, Strategy]:
    """Strategies, classes of them or their names, by the name each goes by: what it changes of the default included."""
    found: dict[str, Strategy] = {}
    for given in strategies:
        strategy = _strategy(given)
        name = short_name(strategy)
        twins = sum(other == name or other.startswith(f"{name} (") for other in found)
        found[f"{name} ({twins + 1})" if name in found else name] = strategy
    return found


def short_name(strategy: Strategy) -> str:
    """`DynaTree`, `DynaTree, node budget 24`: its name, what sets it apart from its default or nearest preset."""
    kind = type(strategy)
    default = kind()
    known = {"": default, **kind.presets()}
    changes = {name: _changes(settings, strategy) for name, settings in known.items()}
    nearest = min(changes, key=lambda name: len(changes[name]))
    changed = changes[nearest]
    more = [f"{len(changed) - 3} more"] if len(changed) > 3 else []
    return ", ".join([kind.__name__, *([nearest] if nearest else []), *changed[:3], *more])


def _changes(old: Strategy, new: Strategy) -> list[str]:
    before, after = old.model_dump(), new.model_dump()
    return [
        name.replace("_", " ") + ("" if isinstance(value, dict) else f" {value}")
        for name, value in after.items()
        if before[name] != value
    ]


def _strategy(given: Any) -> Strategy:
    from speclab.drafters.base import checked

    return from_str(given) if isinstance(given, str) else checked(given() if isinstance(given, type) else given)
