"""One thread for all work of a lab, so clicks return at once and Stop works."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError as Dropped
from concurrent.futures import Future
from threading import Condition, Event, Thread, current_thread
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from speclab.errors import CancelledError, SpeclabError
from speclab.lab._form import FORM
from speclab.lab._state import LabState

Result = TypeVar("Result")
PAUSE = 0.3
"""Seconds between two reports of a running task."""
_log = logging.getLogger(__name__)


class Request(NamedTuple):
    """Queued work.

    `where`: the place that shows its error; empty if the caller waits and gets the exception.
    """

    work: Callable[[], Any]
    busy: str
    where: str
    key: str
    result: Future[Any]


class Worker:
    """Runs requests one after another, and reports work and errors in the state.

    `flush`: sends the changes of the state to the page; called only on this thread.
    """

    def __init__(self, state: LabState, flush: Callable[[], None]) -> None:
        self.closed = False
        self._flush = flush
        self._state = state
        self.cancelled = Event()  # set while the running work is to stop
        self._waiting: list[Request] = []
        self._changed = Condition()
        self._running: Request | None = None
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

        `busy`: shown while it runs. `key`: replaces a waiting request with the same key.
        """
        request = Request(work, busy, where, key, Future())
        # a condition or an observer calls from this thread: it must not wait for itself
        if current_thread() is self._thread and not key:
            request.result.set_result(work())
            return request.result
        with self._changed:
            if self.closed:
                raise CancelledError("The lab is closed: make a new one.")
            if key:
                self._drop(key)
            self._waiting.append(request)
            if self._thread is None:
                self._thread = Thread(target=self._loop, name="speclab-lab", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return request.result

    def stop(self) -> None:
        """Drop waiting work and stop the running work."""
        with self._changed:
            self._drop()
            if self._running is not None:
                self.cancelled.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the worker is idle; False if `timeout` came first."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._running is None and not self._waiting, timeout
            )

    def close(self) -> None:
        """End the thread after the running work."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not current_thread():
            self._thread.join(10)

    def _drop(self, key: str = "") -> None:
        for request in [request for request in self._waiting if not key or request.key == key]:
            self._waiting.remove(request)
            request.result.set_exception(Dropped())

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self.cancelled.clear()
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting) or self.closed)
                if self.closed:
                    self._drop()
                    return
                self._running = self._waiting.pop(0)
            self._run(self._running)

    def _run(self, request: Request) -> None:
        self._next_report = 0.0
        try:
            if request.busy:
                self._state.moved()
                self.report(request.busy)
            try:
                result = request.work()
                if request.where not in FORM:
                    self._state.mend([request.where])
            except BaseException as error:
                self._explain(error, request.where)
                raise
            finally:
                self.report("")
        except BaseException as error:  # nothing may end the thread
            request.result.set_exception(error)
        else:
            request.result.set_result(result)

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
