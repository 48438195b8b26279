"""Who measures trials: local processes, a Dask cluster, or any executor of `concurrent.futures`."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from threading import Lock, Thread
from time import perf_counter
from typing import Literal, Protocol

from speclab.bench.sweeping.rows import Measured
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, SpeclabError

Measure = Callable[[Strategy], Measured]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker says of one trial; `failed` says why there is nothing `measured`."""

    measured: Measured | None
    seconds: float
    worker: str
    failed: str | None = None


Verdict = Literal["broken", "gave up", "unreachable"]
"""What an error of a worker means: all under way is lost and may be tried again; this trial took several workers with
it; no trial can be run at all."""


class Workers(Protocol):
    """Runs trials somewhere else.

    `name`: in sentences. `slots`: how many to give it at once. `submit`: as an executor's. `judge`: an error that is
    none of the trial's own. `renew`: takes new workers for those that died. `close`: `now` without waiting.
    """

    name: str

    @property
    def slots(self) -> int: ...  # noqa: D102

    def submit(self, measure: Measure, strategy: Strategy) -> Future[Outcome]: ...  # noqa: D102

    def judge(self, error: BaseException) -> Verdict: ...  # noqa: D102

    def renew(self) -> None: ...  # noqa: D102

    def close(self, *, now: bool) -> None: ...  # noqa: D102


def measured(measure: Measure, strategy: Strategy) -> Outcome:
    """Measures one strategy in this process, one at a time: two on the same cores would slow each other.

    Raises:
        MeasurementError: nothing can be measured here, whatever the strategy.
    """
    worker = f"{socket.gethostname()}:{os.getpid()}"
    with _ONE_AT_A_TIME:
        began = perf_counter()
        try:
            found = measure(strategy)
        except MeasurementError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever a strategy raises is a row that says so
            told = str(error) if isinstance(error, SpeclabError) else f"{type(error).__name__}: {error}"
            first = next(iter(told.splitlines()), "")[:300]
            return Outcome(None, perf_counter() - began, worker, first)
    return Outcome(found, perf_counter() - began, worker)


_ONE_AT_A_TIME = Lock()


class LocalWorkers:
    """Processes of this machine, started fresh (spawn); they end with this one."""

    name = "The processes of this machine"

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._pool = self._start()

    def submit(self, measure: Measure, strategy: Strategy) -> Future[Outcome]:
        """Gives a trial to a process that is free."""
        return self._pool.submit(measured, measure, strategy)

    def judge(self, error: BaseException) -> Verdict:
        """A process that is killed breaks the whole pool."""
        return "broken" if isinstance(error, BrokenExecutor) else "unreachable"

    def renew(self) -> None:
        """Another pool; the one that broke has ended by itself."""
        self.close(now=True)
        self._pool = self._start()

    def close(self, *, now: bool) -> None:
        """Ends the processes; `now` in the middle of their trials."""
        running = list((self._pool._processes or {}).values()) if now else []
        self._pool.shutdown(wait=not now, cancel_futures=True)
        for process in running:
            process.terminate()

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.slots, mp_context=get_context("spawn"), initializer=_follow)


class GivenWorkers:
    """An executor that the caller made, and will shut down."""

    name = "The executor"

    def __init__(self, executor: Executor, slots: int) -> None:
        self.slots = slots
        self._executor = executor

    def submit(self, measure: Measure, strategy: Strategy) -> Future[Outcome]:
        """Gives a trial to the executor."""
        return self._executor.submit(measured, measure, strategy)

    def judge(self, error: BaseException) -> Verdict:
        """As for local processes."""
        return "broken" if isinstance(error, BrokenExecutor) else "unreachable"

    def renew(self) -> None:
        """Cannot be done for an executor of the caller's."""
        raise MeasurementError(
            "A worker of the executor died and the executor with it; what is done is kept: go on with resume=True and "
            "another executor"
        )

    def close(self, *, now: bool) -> None:
        """Leaves it as it is."""


def _follow() -> None:
    """In a worker: ends with the parent, however that ends, and at Ctrl-C without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=follow, daemon=True).start()
