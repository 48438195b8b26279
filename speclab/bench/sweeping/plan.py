"""What a sweep is asked to do, and one trial of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from speclab.bench.sweeping.decode import LESS_IS_BETTER
from speclab.bench.sweeping.rows import SCHEMA_VERSION, Measured, Row
from speclab.bench.sweeping.space import Axis, Value
from speclab.drafters import to_str
from speclab.drafters.base import Strategy

if TYPE_CHECKING:
    import optuna

Direction = Literal["maximize", "minimize"]
Study = Literal["grid", "optuna"]


class Plan(BaseModel):
    """All that decides what the trials are and what they measure; a sweep goes on only with the same."""

    model_config = ConfigDict(frozen=True)

    schema_version: int = SCHEMA_VERSION
    strategy: str
    over: dict[str, str]
    study: Study
    objective: str
    direction: Direction
    seed: int
    measured: dict[str, Any]
    """Of what measures: workload, lengths, pair."""

    @classmethod
    def of(
        cls,
        strategy: type[Strategy],
        axes: Sequence[Axis],
        study: Study,
        objective: str,
        seed: int,
        measure: Callable[[Strategy], Measured],
    ) -> Plan:
        """The plan of these trials; `measure` tells of itself by `describe()`, or is known by its name."""
        return cls(
            strategy=strategy.__name__,
            over={axis.name: str(axis) for axis in axes},
            study=study,
            objective=objective,
            direction="minimize" if objective in LESS_IS_BETTER else "maximize",
            seed=seed,
            measured=_told(measure),
        )


@dataclass(frozen=True, slots=True)
class Job:
    """A trial to be measured. `why`: its settings contradict each other, and there is no strategy."""

    trial: optuna.Trial
    settings: dict[str, Value]
    strategy: Strategy | None
    why: str = ""
    deaths: int = 0
    """Workers that died while they had it."""


def row_of(job: Job, **found: Any) -> Row:
    """The row of a trial."""
    settings, strategy = job.settings, job.strategy
    name = "" if strategy is None else type(strategy).__name__
    code = "" if strategy is None else f"speclab.{to_str(strategy)}"
    return Row(trial=job.trial.number, strategy=name, settings=settings, code=code, **found)


def _told(measure: Callable[[Strategy], Measured]) -> dict[str, Any]:
    describe = getattr(measure, "describe", None)
    if describe is not None:
        told: dict[str, Any] = describe()
        return told
    return {"function": f"{measure.__module__}.{getattr(measure, '__qualname__', type(measure).__qualname__)}"}
