"""`sweep`: what is asked for made a plan, its trials run, and what they came to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from speclab.bench.sweeping.decode import LESS_IS_BETTER, TIMED, Decode
from speclab.bench.sweeping.drive import Report, run
from speclab.bench.sweeping.found import Sweep
from speclab.bench.sweeping.opening import open_ledger
from speclab.bench.sweeping.plan import Plan, Study
from speclab.bench.sweeping.rows import Row
from speclab.bench.sweeping.space import Asked, axes
from speclab.bench.sweeping.workers import GivenWorkers, LocalWorkers, Measure, Workers
from speclab.drafters.base import Strategy


def silent(_row: Row, _done: int, _total: int) -> None:
    """Reports nothing."""


def sweep(
    strategy: type[Strategy],
    over: Mapping[str, Asked] | Sequence[str],
    out: str | os.PathLike[str],
    *,
    study: Study = "grid",
    trials: int = 20,
    objective: str = "tokens_per_iteration",
    measure: Measure | None = None,
    executor: Executor | str | None = None,
    workers: int | None = None,
    resume: bool = False,
    seed: int = 0,
    report: Report = silent,
) -> Sweep:
    """Tries settings of a strategy and finds the best; the defaults are trial 0, measured in the same sweep.

    Args:
        strategy: a strategy class.
        over: fields to values, as `{"max_depth": range(3, 9), "high_confidence": "0.7:0.9:0.1", "history": None}`
            (None: all that the field allows); or texts as on the command line, `["max_depth=3:8"]`.
        out: a folder; it gets `study.db` and `trials.parquet`.
        study: "grid" tries every combination, "optuna" as many as `trials`, proposed by its TPE sampler.
        trials: settings tried besides the defaults; of "optuna" only.
        objective: a figure of `measure`; smaller is better for times and calls, larger for the rest.
        measure: strategy → `Measured`; by default the shipped prompts decoded with the mini family (`Decode`). A
            worker in another process must be able to import it.
        executor: of `concurrent.futures`, a Dask client's `get_executor(pure=False)` among them; or the address of a
            Dask scheduler, `tcp://…` or `local:4`; by default processes of this machine.
        workers: trials under way at once; by default as many as there are cores, and 1 where a clock decides. A Dask
            cluster by address has as many as it has workers.
        resume: go on with the sweep in `out`.
        seed: of the sampler.
        report: hears of each trial when it is kept.

    Raises:
        SettingsError: a field or a value does not exist.
        MeasurementError: nothing can be measured, stored or reached; what is done is kept.
        KeyboardInterrupt: Ctrl-C; what is done is kept.
    """
    swept = axes(strategy, over)
    slots = workers or slots_for(objective)
    measuring = measure or Decode.shipped(repeats=3 if objective in TIMED else 1, threads=threads_for(slots))
    plan = Plan(
        strategy=strategy.__name__,
        over={axis.name: str(axis) for axis in swept},
        study=study,
        objective=objective,
        direction="minimize" if objective in LESS_IS_BETTER else "maximize",
        seed=seed,
        measured=_told(measuring),
    )
    ledger = open_ledger(Path(out), plan, strategy, swept, trials=trials, resume=resume)
    try:
        if len(ledger.rows) < ledger.total:
            run(ledger, objective, measuring, lambda: _workers(executor, slots), report)
        return Sweep(plan, strategy, tuple(sorted(ledger.rows, key=lambda row: row.trial)), Path(out))
    finally:
        ledger.close()


def slots_for(objective: str) -> int:
    """Trials at once on this machine: one a core; one in all where a clock decides, since others would disturb it."""
    return 1 if objective in TIMED else _cores()


def threads_for(slots: int) -> int:
    """Threads of torch for each of so many processes on this machine."""
    return max(1, _cores() // slots)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _workers(executor: Executor | str | None, slots: int) -> Workers:
    if executor is None:
        return LocalWorkers(slots)
    if isinstance(executor, str):
        from speclab.bench.sweeping.cluster import of_address

        return of_address(executor)
    return GivenWorkers(executor, slots)


def _told(measure: Measure) -> dict[str, Any]:
    describe = getattr(measure, "describe", None)
    if describe is not None:
        told: dict[str, Any] = describe()
        return told
    return {"function": f"{measure.__module__}.{getattr(measure, '__qualname__', type(measure).__qualname__)}"}
