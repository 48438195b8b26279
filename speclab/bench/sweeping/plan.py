"""What a sweep is asked to do, and one trial of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from speclab.bench.sweeping.rows import SCHEMA_VERSION, Row
from speclab.bench.sweeping.space import Value
from speclab.drafters.base import Strategy
from speclab.drafters.written import written

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
    code = "" if strategy is None else f"speclab.{written(strategy)}"
    return Row(trial=job.trial.number, strategy=name, settings=settings, code=code, **found)
