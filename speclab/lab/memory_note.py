"""What the models chosen would take of the memory, said before they are loaded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from ipywidgets import HTML

from speclab.errors import SpeclabError
from speclab.lab.choices import Models
from speclab.lab.sync import assign
from speclab.lab.worker import Worker
from speclab.models.presets import PRESETS
from speclab.views.markup import tag
from speclab.views.tokens import escape

PATIENCE = 0.4
"""Seconds without a change before anything is looked up: a name half typed is nobody's."""
_log = logging.getLogger(__name__)


class MemoryNote(HTML):
    """Looks on a thread of its own, so that neither typing nor decoding waits for a disk or a hub."""

    def __init__(self) -> None:
        super().__init__()
        self.add_class("speclab-memory")
        self._worker = Worker(lambda: None)

    def look(self, models: Models | None) -> None:
        """Says what they take, as soon as it is known; None says nothing. Only the newest counts."""
        if models is None:
            self._worker.cancel()
            self._say("")
            return
        self._say(tag("span", "Looking up their size…", class_="sl-muted"))
        self._worker.submit(lambda: self._look(models), key="look", yields=True)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the newest is known; whether it came to that."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Ends the thread."""
        self._worker.close()
        super().close()

    def _look(self, models: Models) -> None:
        if self._worker.cancelled.wait(PATIENCE):
            return
        said, fine = _words(models)
        if not self._worker.cancelled.is_set():
            self._say(tag("span", escape(said), class_="sl-muted" if fine else "sl-bad"))

    def _say(self, value: str) -> None:
        assign(self, value=value)


def _words(models: Models) -> tuple[str, bool]:
    """What is known of these models, and whether they could be loaded."""
    from speclab.models.estimate import estimate

    try:
        found = estimate(**models.arguments())
    except SpeclabError as error:
        return str(error), False
    except Exception:  # noqa: BLE001  # whatever a file or a hub may do, it must not end in a silent thread
        _log.exception("no estimate")
        return "How much memory these models need could not be found out.", False
    heads = models.heads if models.target else PRESETS[models.name].heads
    return f"{found}{_named(heads)}", found.fits


def _named(heads: Sequence[str]) -> str:
    return f" Draft heads: {', '.join(Path(head).name for head in heads)}." if heads else ""
