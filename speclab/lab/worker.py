"""One thread for all model work of a lab, so that a click returns at once and Stop is heard."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from threading import Condition, Event, Thread, current_thread
from typing import Any

Work = Callable[[], Any]


@dataclass(eq=False)
class _Request:
    work: Work
    key: str = ""
    yields: bool = False
    result: Future[Any] = field(default_factory=Future)


class Worker:
    """Runs requests one after another on a thread of its own.

    `interrupt`: called, from any thread, to stop what runs now. `cancelled`: set while what runs now should end;
    `stopped`: set while that is because of a Stop, and not because something newer was asked for.
    """

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self.cancelled, self.stopped = Event(), Event()
        self._interrupt = interrupt
        self._waiting: deque[_Request] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._running: _Request | None = None
        self._closed = False

    def submit(self, work: Work, key: str = "", *, yields: bool = False) -> Future[Any]:
        """Queues `work`; from the worker's own thread it runs at once. `key` and `yields`: as of `actions.action`."""
        request = _Request(work, key, yields)
        if current_thread() is self._thread:
            _run(request)
            return request.result
        with self._changed:
            if self._closed:
                request.result.set_exception(CancelledError("the lab is closed"))
                return request.result
            if key:
                self._drop(key)
            self._waiting.append(request)
            ends = self._running is not None and self._running.yields
            if ends:
                self.cancelled.set()
            if self._thread is None:
                self._thread = Thread(target=self._loop, name="speclab-lab", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if ends:
            self._interrupt()
        return request.result

    def cancel(self) -> None:
        """Drops what waits and interrupts what runs."""
        with self._changed:
            self._drop(None)
            runs = self._running is not None
            if runs:
                self.stopped.set()
                self.cancelled.set()
        if runs:
            self._interrupt()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until nothing runs and nothing waits; whether it came to that."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running is None and not self._waiting, timeout)

    def close(self) -> None:
        """Ends the thread once what runs now has ended."""
        self.cancel()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _drop(self, key: str | None) -> None:
        for request in [request for request in self._waiting if key in {None, request.key}]:
            self._waiting.remove(request)
            request.result.set_exception(CancelledError("something newer was asked for"))

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self.cancelled.clear()
                self.stopped.clear()
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
                if self._closed:
                    self._drop(None)
                    return
                self._running = self._waiting.popleft()
                if self._running.yields and self._waiting:
                    self.cancelled.set()
            _run(self._running)


def _run(request: _Request) -> None:
    try:
        request.result.set_result(request.work())
    except BaseException as error:  # whoever waits for the result gets it
        request.result.set_exception(error)
