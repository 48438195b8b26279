"""One thread for all work of a lab, so clicks return at once and Stop works."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError as Dropped
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Event, Thread, current_thread
from time import monotonic
from typing import Any

from speclab.errors import CancelledError, SpeclabError
from speclab.lab.state import LabState

OWNED = {"prompt", "settings"}
"""Places whose form removes its own errors."""
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Request:
    """Queued work.

    `where`: the place that shows its error; empty if the caller waits and gets the exception.
    """

    work: Callable[[], Any]
    busy: str
    where: str
    key: str
    result: Future[Any] = field(default_factory=Future)


class Worker:
    """Runs requests one after another, and reports work and errors in the state.

    `cancelled`: set to end the running work. `update`: sends the changes to the page; called only
    on this thread.
    """

    def __init__(
        self, state: LabState, update: Callable[[], None], interrupt: Callable[[], None]
    ) -> None:
        self.cancelled = Event()
        self.began = 0.0
        self._state = state
        self._update = update
        self._interrupt = interrupt
        self._waiting: deque[Request] = deque()
        self._changed = Condition()
        self._running: Request | None = None
        self._closed = False
        self._thread: Thread | None = None

    def submit(
        self, work: Callable[[], Any], busy: str = "", where: str = "", key: str = ""
    ) -> Future[Any]:
        """Queue work.

        `busy`: shown while it runs. `key`: a newer request replaces a waiting one with the same
        key.
        """
        request = Request(work, busy, where, key)
        if current_thread() is self._thread:  # called by a condition or an observer
            request.result.set_result(work())
            return request.result
        with self._changed:
            if self._closed:
                request.result.set_exception(CancelledError("The lab is closed: make a new one."))
                return request.result
            if key:
                self._drop(key)
            self._waiting.append(request)
            if self._thread is None:
                self._thread = Thread(target=self._loop, name="speclab-lab", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return request.result

    def stop(self) -> None:
        """Drop waiting work and end the running work."""
        with self._changed:
            self._drop()
            if self._running is None:
                return
            self.cancelled.set()
        self._interrupt()

    @property
    def closed(self) -> bool:
        return self._closed

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the worker is idle; False if `timeout` came first."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._running is None and not self._waiting, timeout
            )

    def close(self) -> None:
        """End the thread after the running work."""
        self.stop()
        with self._changed:
            self._closed = True
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
                self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
                if self._closed:
                    self._drop()
                    return
                self._running = self._waiting.popleft()
            self._run(self._running)

    def _run(self, request: Request) -> None:
        state = self._state
        error: BaseException | None = None
        self.began = monotonic()
        if request.busy:
            state.busy = request.busy
            state.sentence = ""
            self._update()
        try:
            result = request.work()
            if state.where not in OWNED and (request.busy or request.where == state.where):
                state.fail("", "")
        except CancelledError as stopped:
            state.sentence = str(stopped)
            error = stopped
        except SpeclabError as refused:
            error = refused
            if request.where and str(refused) != state.error:
                state.fail(request.where, str(refused))
        except BaseException as bug:  # show bugs too
            error = bug
            if request.where:
                _log.exception("the lab failed")
                sentence = (
                    f"Something went wrong inside speclab ({type(bug).__name__}: {bug}); nothing "
                    "decoded is lost."
                )
                state.fail(request.where, sentence)
        state.busy = ""
        try:
            self._update()
        except Exception as bug:  # drawing errors must not end the thread
            _log.exception("the page could not be told")
            error = error or bug
        if error is None:
            request.result.set_result(result)
        else:
            request.result.set_exception(error)
