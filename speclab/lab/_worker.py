"""One thread for all work of a lab, so clicks return at once and Stop works."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from math import inf
from threading import Event, Thread, current_thread
from time import monotonic
from typing import Any, TypeVar

from speclab.errors import CancelledError, SpeclabError
from speclab.lab._form import FORM
from speclab.lab._state import LabState

Result = TypeVar("Result")
PAUSE = 0.3
"""Seconds between two reports of a running task."""
_log = logging.getLogger(__name__)


class Worker:
    """Runs requests one after another, and reports work and errors in the state.

    `flush`: sends the changes of the state to the page; called only on this thread.
    """

    def __init__(self, state: LabState, flush: Callable[[], None]) -> None:
        self.closed = False
        self.cancelled = Event()  # set while the running work is to stop
        self._flush = flush
        self._state = state
        self._pool = ThreadPoolExecutor(1, "speclab-lab")
        self._keys: dict[Future[Any], str] = {}  # of the work that waits or runs
        self._thread: Thread | None = None
        self._next_report = 0.0

    def check(self) -> None:
        """Raises CancelledError if the running work was stopped."""
        if self.cancelled.is_set():
            raise CancelledError("Stopped; nothing changed.")

    def report(self, busy: str, progress: float | None = None) -> None:
        """Tell the page what the running work does now, and which share of it is done."""
        self._state.busy = busy
        self._state.progress = progress
        self._flush()

    def due(self) -> bool:
        """Whether the last report is long enough ago for another one."""
        now = monotonic()
        if now < self._next_report:
            return False
        self._next_report = now + PAUSE
        return True

    def submit(
        self, work: Callable[[], Result], busy: str = "", where: str = "", key: str = ""
    ) -> Future[Result]:
        """Queue work.

        `busy`: shown while it runs. `where`: the place that shows its error; empty if the caller
        waits and gets the exception. `key`: replaces a waiting request with the same key.
        """
        # a condition or an observer calls from this thread: it must not wait for itself
        if current_thread() is self._thread and not key:
            result: Future[Result] = Future()
            result.set_result(work())
            return result
        if self.closed:
            raise CancelledError("The lab is closed: make a new one.")
        for former, name in [*self._keys.items()]:
            if key and name == key:
                former.cancel()
        result = self._pool.submit(self._run, work, busy, where)
        self._keys[result] = key
        result.add_done_callback(self._keys.pop)
        return result

    def stop(self) -> None:
        """Drop waiting work and stop the running work."""
        for request in [*self._keys]:
            if not request.cancel():
                self.cancelled.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the worker is idle; False if `timeout` came first.

        Raises:
            SpeclabError: the worker's thread has ended, so that its work never will.
        """
        end = inf if timeout is None else monotonic() + timeout
        while requests := [*self._keys]:
            left = end - monotonic()
            if left < 0:
                return False
            self.wait_for(requests, left)
        return True

    def wait_for(self, requests: Sequence[Future[Any]], timeout: float = inf) -> None:
        """Wait until requests are done, at most `timeout` seconds.

        It waits in short turns, so that Ctrl-C works on every system.
        """
        end = monotonic() + timeout
        turn = min(timeout, PAUSE)
        while wait(requests, turn).not_done and monotonic() < end:
            # a process that `fork` made has the requests, but not the thread
            if self._thread is not None and not self._thread.is_alive():
                raise SpeclabError(
                    "This lab belongs to another process, which has its thread: make a new Lab here."
                )

    def close(self) -> None:
        """End the thread after the running work."""
        self.closed = True
        self._pool.shutdown(current_thread() is not self._thread, cancel_futures=True)

    def _run(self, work: Callable[[], Result], busy: str, where: str) -> Result:
        self._thread = current_thread()
        self.cancelled.clear()
        self._next_report = 0.0
        if busy:
            self._state.moved()
            self.report(busy)
        try:
            result = work()
            if where not in FORM:
                self._state.mend([where])
            return result
        except BaseException as error:
            self._explain(error, where)
            raise
        finally:
            self.report("")

    def _explain(self, error: BaseException, where: str) -> None:
        """Show an error that no caller waits for."""
        if isinstance(error, CancelledError):
            self._state.message = str(error)
        elif not where or str(error) in self._state.errors.values():
            return
        elif isinstance(error, SpeclabError):
            self._state.fail(where, str(error))
        else:  # show bugs too
            _log.error("the lab failed", exc_info=error)
            self._state.fail(
                where,
                f"Something went wrong inside speclab ({type(error).__name__}: {error}); nothing "
                "decoded is lost.",
            )
