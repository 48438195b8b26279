"""Queues what a person asks for. Buttons ask and return at once; the lab's methods ask and wait."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from speclab.errors import CancelledError, SpeclabError
from speclab.lab.state import LabState
from speclab.lab.worker import Worker

if TYPE_CHECKING:
    from speclab.lab.controller import SessionController

Method = TypeVar("Method", bound=Callable[..., Any])
_log = logging.getLogger(__name__)


def action(busy: str = "", key: str = "", *, yields: bool = False) -> Callable[[Method], Method]:
    """Says on a method how it is queued.

    `busy`: shown while it runs. `key`: of several waiting with the same key only the newest counts. `yields`: whether
    it ends, cancelled, as soon as anything else is asked for.
    """

    def marked(method: Method) -> Method:
        method.policy = busy, key, yields  # type: ignore[attr-defined]
        return method

    return marked


class Actions:
    """Runs work on the lab's worker; a failure ends in the error panel and in the log.

    `controller`: its methods are what can be asked for. `workers`: the lab's own, and those of panels besides it.
    """

    def __init__(self, state: LabState, worker: Worker, controller: SessionController) -> None:
        self._state, self._worker, self.controller = state, worker, controller
        self.cancelled, self.workers = worker.cancelled, [worker]

    def stop(self) -> None:
        """Ends what runs and forgets what waits, leaving a load behind; what was decoded stays."""
        for worker in self.workers:
            worker.cancel()

    def close(self) -> None:
        """Ends all threads, each once what it does has ended."""
        for worker in self.workers:
            worker.close()

    def ask(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
        """Queues `work(*arguments, **named)` as its `@action` says; the result is None where it failed."""
        busy, key, yields = getattr(work, "policy", ("", "", False))
        return self._worker.submit(lambda: self._guarded(partial(work, *arguments, **named), busy), key, yields=yields)

    def _guarded(self, work: Callable[[], Any], busy: str) -> Any:
        state = self._state
        state.busy = busy
        try:
            return work()
        except CancelledError as error:
            state.status = str(error)
        except SpeclabError as error:
            _log.info("%s", error)
            state.fail(str(error), "".join(traceback.format_exception_only(error)))
        except Exception as error:  # a bug too must end in the panel, not in a silent thread
            _log.exception("the lab failed")
            details = "".join(traceback.format_exception(error))
            sentence = f"Something went wrong inside speclab ({type(error).__name__}): nothing decoded is lost."
            state.fail(sentence, details)
        finally:
            state.busy = ""
