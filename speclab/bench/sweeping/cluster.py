"""A Dask cluster as workers: by its address, or one started here."""

from __future__ import annotations

import logging
import re
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from typing import Any

from speclab.bench.sweeping.workers import Measure, Outcome, Verdict, measured
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError, SettingsError

PATIENCE = 10
"""Seconds to wait for a scheduler, and for its first worker; a default of ours."""


def of_address(text: str) -> DaskWorkers:
    """The workers of `tcp://host:port` (or `tls://…`), or of a cluster of so many processes here, `local:4`.

    Raises:
        SettingsError: it is neither.
        MeasurementError: the scheduler cannot be reached, has no workers, or these cannot import speclab.
    """
    local = re.fullmatch(r"local:([0-9]{1,4})", text)
    if local is None and "://" not in text:
        raise SettingsError(f"{text!r} is no cluster: write tcp://host:port of a Dask scheduler, or local:4")
    if local is not None and not int(local[1]):
        raise SettingsError("A cluster of no workers measures nothing: write local:1 or more")
    return DaskWorkers(text, int(local[1]) if local else 0)


class DaskWorkers:
    """The workers of a Dask scheduler; it gives the trial of a worker that died to another one by itself."""

    def __init__(self, address: str, started_here: int = 0) -> None:
        try:
            dask: Any = import_module("distributed")
        except ImportError:
            raise MeasurementError(
                "A cluster needs dask, which is not installed: pip install 'speclab[bench]'."
            ) from None
        self.address = address
        self.name = f"The Dask cluster {address}"
        self._cluster: Any = None
        # What goes wrong with a connection is said in one sentence, by us.
        for name in ("distributed.client", "distributed.core", "distributed.nanny", "distributed.scheduler"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            if started_here:
                self._cluster = dask.LocalCluster(
                    n_workers=started_here, threads_per_worker=1, processes=True, dashboard_address=None
                )
            self._client: Any = dask.Client(self._cluster or address, timeout=PATIENCE, set_as_default=False)
            self._client.wait_for_workers(1, timeout=PATIENCE)
        except (OSError, TimeoutError, ValueError) as error:
            self.close(now=True)
            raise _unreachable(address, error) from None
        self._executor = self._client.get_executor(pure=False)
        self._check()

    @property
    def slots(self) -> int:
        """Its workers now: those that join later get trials as well."""
        try:
            return max(1, len(self._client.nthreads()))
        except (OSError, TimeoutError) as error:
            raise _unreachable(self.address, error) from None

    def submit(self, measure: Measure, strategy: Strategy) -> Future[Outcome]:
        """Gives a trial to the scheduler."""
        future: Future[Outcome] = self._executor.submit(measured, measure, strategy)
        return future

    def judge(self, error: BaseException) -> Verdict:
        """A trial that took several workers with it is given up by the scheduler; all else is the connection."""
        from distributed import KilledWorker

        return "gave up" if isinstance(error, KilledWorker) else "unreachable"

    def renew(self) -> None:
        """The scheduler does that."""

    def close(self, *, now: bool) -> None:
        """Leaves the cluster; one started here ends."""
        for part in (getattr(self, "_client", None), self._cluster):
            if part is not None:
                with suppress(OSError, TimeoutError):  # it may be gone
                    part.close(timeout=1 if now else 10)

    def _check(self) -> None:
        try:
            self._executor.submit(_ready).result(timeout=3 * PATIENCE)
        except Exception as error:  # noqa: BLE001  # whatever it is, nothing can be measured there
            self.close(now=True)
            raise MeasurementError(
                f"The workers of {self.address} cannot import speclab ({type(error).__name__}: {error}): install the "
                "same version there"
            ) from None


def _ready() -> bool:
    return True


def _unreachable(address: str, error: Exception) -> MeasurementError:
    first = " ".join(str(error).rpartition(">: ")[2].split())[:160] or type(error).__name__
    return MeasurementError(
        f"The Dask scheduler {address} cannot be reached, or has no workers ({first}): check the address and start it; "
        "what is done is kept, and --resume goes on"
    )
