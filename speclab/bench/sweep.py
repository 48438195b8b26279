"""`sweep` tries settings of a strategy one after another, keeps every trial, and finds the best.

Trials run in worker processes that Dask starts on this machine: it replaces one that died, tries its
trial again, and gives a trial up that several workers died of. What a trial came to is stored by `sweep_study`.
"""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from speclab.bench.sweep_decode import LESS_IS_BETTER, TIMED, Decode, Measured
from speclab.bench.sweep_study import Asked, Ledger, Row, grid, opened, read_over, table
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, SpeclabError

if TYPE_CHECKING:
    import pyarrow


__all__ = ["Decode", "Measured", "Sweep", "sweep"]

Study = Literal["grid", "optuna"]
VERSION = 2
"""Of what a study holds; a sweep goes on only in a study of the same version."""
DEATHS = 3
"""Workers of this machine that may die of a trial before it counts as failed."""
PATIENCE = 60
"""Seconds to wait for the workers."""


Measure = Callable[[Strategy], Measured]
Report = Callable[[Row, int, int], None]
"""Is called with each trial: its row, how many are done, and how many there are in all."""


@dataclass(frozen=True)
class Sweep:
    """The trials of a sweep, by number."""

    kind: type[Strategy]
    objective: str
    rows: tuple[Row, ...]
    folder: Path

    @property
    def default(self) -> Row:
        """Trial 0: the strategy with its defaults."""
        return self.rows[0]

    @property
    def measured(self) -> tuple[Row, ...]:
        """Trials that have a figure."""
        return tuple(row for row in self.rows if row.objective is not None)

    @property
    def best(self) -> Row:
        """The best trial; of equal ones the earliest, so a setting that only equals the default is not preferred.

        Raises:
            MeasurementError: no trial has a figure.
        """
        if not self.measured:
            raise MeasurementError(
                f"None of the {len(self.rows)} trials gave {self.objective}; the first says: {self.rows[0].failed}"
            )
        sign = -1 if self.objective in LESS_IS_BETTER else 1
        return max(self.measured, key=lambda row: sign * (row.objective or 0.0))

    @property
    def strategy(self) -> Strategy:
        """The best strategy, to decode with."""
        return self.best.built(self.kind)

    def table(self) -> pyarrow.Table:
        """All trials, as in `trials.parquet`."""
        return table(self.rows)

    def notes(self) -> list[str]:
        """What to know before the best setting is believed, in sentences."""
        on = f" was chosen on {self.best.prompts} prompts, and" if self.best.prompts else ""
        notes = [f"The best{on} looks better on what it was chosen on than it is: try others."]
        if self.objective in TIMED:
            notes.append(self._noise())
        elif "tokens_per_iteration" in self.best.figures:
            notes.append(
                f"{self.objective} is counted, not timed: the same on any machine, and blind to what a forward pass "
                "costs, so larger trees tend to win; --objective throughput weighs that too."
            )
        if (texts := len({row.text for row in self.measured})) > 1:
            notes.append(
                f"The trials decoded {texts} different texts: with sampling, lossy acceptance or half precision "
                "that may be; in float32 and greedily it may not."
            )
        if failed := [row for row in self.rows if row.failed is not None]:
            notes.append(
                f"{len(failed)} of {len(self.rows)} trials have no figure; trial {failed[0].trial}: {failed[0].failed}"
            )
        return notes

    def _noise(self) -> str:
        spreads = [row.figures[name] for row in self.measured if (name := f"{self.objective}_spread") in row.figures]
        noise = (
            f"(largest − least) / median of its repeats was {max(spreads):.1%} at most: a smaller difference is noise"
            if spreads
            else "it was measured once per trial, so its noise is not known: --repeats 3 shows it"
        )
        workers = len({row.worker for row in self.measured})
        shared = f"; {workers} workers took part, and those on one machine slow each other" if workers > 1 else ""
        return (
            f"{self.objective} is timed: {noise}{shared}; trials ran one after another, not in turn: confirm the best "
            "with speclab bench."
        )


def sweep(
    strategy: type[Strategy],
    over: Mapping[str, Asked] | Sequence[str],
    out: str | os.PathLike[str],
    *,
    study: Study = "grid",
    trials: int = 20,
    objective: str = "tokens_per_iteration",
    measure: Measure | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    resume: bool = False,
    seed: int = 0,
    report: Report | None = None,
) -> Sweep:
    """Tries settings of a strategy and finds the best; the defaults are trial 0. See `docs/sweeps.md`.

    Args:
        strategy, over: a class; its fields, as texts of the command line or as values by name (None: all allowed).
        out: a folder for `study.db` and `trials.parquet`; with `resume`, one that holds this sweep.
        objective: a figure of what `measure` returns for a strategy; by default `Decode.shipped`.
        executor: of `concurrent.futures`, a Dask client's among them; by default processes of this machine.
        workers: trials at once; by default one per core, 1 where a clock decides.

    Raises:
        SettingsError, MeasurementError: in one sentence; what is done is kept, as after Ctrl-C.
    """
    named = read_over(strategy, over)
    points = grid(strategy, named) if study == "grid" else None
    slots = workers or slots_for(objective)
    measure = measure or Decode.shipped(repeats=3 if objective in TIMED else 1, threads=threads_for(slots))
    if isinstance(measure, Decode):
        _check_figure(objective, measure.figures)
    plan = {
        "version": VERSION, "strategy": strategy.__name__, "over": {name: str(own) for name, own in named.items()},
        "study": study, "objective": objective, "seed": seed, "measured": _described(measure),
    }  # fmt: skip
    maximize = objective not in LESS_IS_BETTER
    with opened(Path(out), plan, maximize=maximize, resume=resume) as opened_study:
        total = 1 + (trials if points is None else len(points))
        ledger = Ledger(Path(out), strategy, named, opened_study, points, total)
        ledger.resume()
        try:
            if len(ledger.rows) < total:
                with _workers(slots) if executor is None else nullcontext((executor, lambda: slots)) as (pool, free):
                    _run(ledger, objective, measure, pool, free, report)
        except BaseException:
            with suppress(SpeclabError):
                ledger.write_table()
            raise
        ledger.write_table()
    return Sweep(strategy, objective, tuple(sorted(ledger.rows, key=lambda row: row.trial)), Path(out))


def slots_for(objective: str) -> int:
    """Trials at once on this machine: one per core; a single one where a clock decides, since others would slow it."""
    return 1 if objective in TIMED else _cores()


def threads_for(slots: int) -> int:
    """Threads of torch for each of so many processes on this machine."""
    return max(1, _cores() // slots)


def _run(
    ledger: Ledger, objective: str, measure: Measure, pool: Executor, free: Callable[[], int], report: Report | None
) -> None:
    """Gives trials to the pool, as many at once as it has workers, and stores what comes back."""
    running: dict[Future[Row], Row] = {}

    def put(row: Row) -> None:
        ledger.put(row)
        if report is not None:
            report(row, len(ledger.rows), ledger.total)

    while True:
        while len(running) < free() and (row := ledger.take()):
            if row.pruned:
                put(row)
            else:
                with _answering():
                    running[pool.submit(_measured, measure, row.built(ledger.kind), row, objective)] = row
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            put(_outcome(future, running.pop(future)))


def _outcome(future: Future[Row], row: Row) -> Row:
    with _answering():
        try:
            return future.result()
        except Exception as error:
            if type(error).__name__ != "KilledWorker":  # of distributed: it gave the trial up
                raise
            why = f"Its worker died {DEATHS} times, most likely for want of memory"
            return replace(row, failed=f"{why}: take smaller trees or fewer workers.")


def _measured(measure: Measure, strategy: Strategy, row: Row, objective: str) -> Row:
    """On a worker: the row of a trial. One trial at a time: two on the same cores would slow each other.

    Raises:
        MeasurementError: nothing can be measured here, whatever the strategy.
    """
    row = replace(row, worker=f"{socket.gethostname()}:{os.getpid()}")
    with _ONE_AT_A_TIME:
        began = perf_counter()
        try:
            found = measure(strategy)
        except MeasurementError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a strategy raises is a row that says so
            sentence = str(error) if isinstance(error, SpeclabError) else f"{type(error).__name__}: {error}"
            return replace(row, failed=next(iter(sentence.splitlines()), "")[:300], seconds=perf_counter() - began)
        row = replace(row, prompts=found.prompts, text=found.text, seconds=perf_counter() - began)
    _check_figure(objective, found.figures)
    value = float(found.figures[objective])
    if not math.isfinite(value):
        return replace(row, failed=f"{objective} is {value}, which cannot be compared.")
    return replace(row, figures=dict(found.figures), objective=value)


_ONE_AT_A_TIME = Lock()


@contextmanager
def _workers(slots: int) -> Iterator[tuple[Executor, Callable[[], int]]]:
    """So many processes of this machine, and how many are there: a trial that waits shares no other's death."""
    try:
        dask, distributed = import_module("dask"), import_module("distributed")
    except ImportError:
        raise MeasurementError("A sweep needs dask, which is not installed: pip install 'speclab[bench]'.") from None
    for name in ("client", "core", "nanny", "scheduler", "worker"):  # what fails is said in one sentence, below
        logging.getLogger(f"distributed.{name}").setLevel(logging.CRITICAL)
    config = {
        "distributed.scheduler.allowed-failures": DEATHS - 1,
        "distributed.worker.profile.enabled": False,
        "distributed.nanny.pre-spawn-environ": {},  # its settings of malloc cost torch a quarter of its speed
        "distributed.worker.preload": ["import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"],  # Ctrl-C is ours
    }
    with ExitStack() as closing:
        with _answering(), dask.config.set(config):
            cluster = distributed.LocalCluster(
                n_workers=slots, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )  # fmt: skip
            closing.callback(_close, cluster)
            client = distributed.Client(cluster, timeout=PATIENCE, set_as_default=False)
            closing.callback(_close, client)
            client.wait_for_workers(slots, timeout=PATIENCE)
        yield client.get_executor(pure=False), lambda: max(1, len(client.nthreads()))


def _close(part: Any) -> None:
    with suppress(OSError, TimeoutError):  # it may be gone
        part.close(timeout=2)


@contextmanager
def _answering() -> Iterator[None]:
    """Says in one sentence that workers cannot be started, or cannot run what they are given."""
    try:
        yield
    except SpeclabError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, nothing can be measured
        first = " ".join(str(error).rpartition(">: ")[2].split())[:160]
        raise MeasurementError(
            f"The workers cannot run trials ({type(error).__name__}: {first}): check that they can import speclab "
            "and what measures; what is done is kept, and --resume goes on"
        ) from None


def _check_figure(name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise MeasurementError(f"There is no figure {name!r}: choose one of {', '.join(known)}")


def _described(measure: Measure) -> dict[str, Any]:
    """Of what measures, for records: what it says itself, or its name."""
    if (describe := getattr(measure, "describe", None)) is not None:
        return dict(describe())
    return {"function": f"{measure.__module__}.{getattr(measure, '__qualname__', type(measure).__qualname__)}"}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
