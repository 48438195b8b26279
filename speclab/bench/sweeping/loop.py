"""`sweep`: what is asked for made a plan, its trials run, and what they came to."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path

from speclab.bench.sweeping.decode import TIMED, Decode
from speclab.bench.sweeping.drive import Report, run
from speclab.bench.sweeping.found import Sweep
from speclab.bench.sweeping.opening import open_ledger
from speclab.bench.sweeping.plan import Plan, Study
from speclab.bench.sweeping.reading import Asked, axes
from speclab.bench.sweeping.rows import Row
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
    """Tries settings of a strategy and finds the best; the defaults are trial 0. See `docs/sweeps.md`.

    Args:
        strategy, over: a class; its fields, as texts of the command line or as values by name (None: all allowed).
        out: a folder for `study.db` and `trials.parquet`; with `resume`, one that holds this sweep.
        objective: a figure of what `measure`, importable by workers, tells of a strategy; by default `Decode.shipped`.
        executor: of `concurrent.futures`; or a Dask scheduler, `tcp://…`, `local:4`; by default processes.
        workers: trials at once; by default one a core, 1 where a clock decides, all that a scheduler has.

    Raises:
        SettingsError, MeasurementError: in one sentence; what is done is kept, as after Ctrl-C.
    """
    swept, slots = axes(strategy, over), workers or slots_for(objective)
    measuring = measure or Decode.shipped(repeats=3 if objective in TIMED else 1, threads=threads_for(slots))
    plan = Plan.of(strategy, swept, study, objective, seed, measuring)
    ledger = open_ledger(Path(out), plan, strategy, swept, trials=trials, resume=resume)
    try:
        if len(ledger.rows) < ledger.total:
            run(ledger, objective, measuring, lambda: _workers(executor, slots), report)
    finally:
        ledger.close()
    return Sweep(plan, strategy, tuple(sorted(ledger.rows, key=lambda row: row.trial)), Path(out))


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
