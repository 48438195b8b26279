"""One file for each request, in the folder that `SPECLAB_RECORD` names."""

from __future__ import annotations

import atexit
import os
import pkgutil
import re
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from speclab.errors import SpeclabError
from speclab.recorder import Recorder

VARIABLE = "SPECLAB_RECORD"


class Requests:
    """The open files of an engine.

    Args:
        folder: where they are; by default what `SPECLAB_RECORD` names.
    """

    def __init__(self, engine: str, folder: str | os.PathLike[str] | None = None) -> None:
        self.engine = engine
        self.folder = Path(folder or os.environ[VARIABLE])
        self.folder.mkdir(parents=True, exist_ok=True)
        self._open: dict[str, Recorder] = {}
        self._broken = False
        atexit.register(self.close)

    def step(self, request: str, header: Callable[[], dict[str, Any]], **fields: Any) -> None:
        """A verification pass of a request; `header`, with `prompt_ids`, is called for its first."""
        if request not in self._open:
            name = re.sub(r"[^\w.-]", "_", request)[:120]
            path = self.folder / f"{self.engine}-{name}.jsonl"
            self._open[request] = Recorder(path, engine=self.engine, request=request, **header())
        self._open[request].step(**fields)

    def keep(self, alive: Collection[str]) -> None:
        """Closes the files of all other requests."""
        for request in self._open.keys() - set(alive):
            self._open.pop(request).close()

    def close(self) -> None:
        self.keep(())

    def safely(self, record: Callable[[], None]) -> None:
        """Records; what fails stops the recording with one warning, and never the engine."""
        if self._broken:
            return
        try:
            record()
        except Exception as error:
            self._broken = True
            self.close()
            warnings.warn(f"The recording of {self.engine} stopped: {error!r}", stacklevel=2)


def wanted() -> bool:
    """Whether `SPECLAB_RECORD` turns recording on."""
    return bool(os.environ.get(VARIABLE))


def named(engine: str, path: str) -> Any:
    """What the engine has under a name.

    Raises:
        SpeclabError: nothing: the engine's version is not one that this recorder knows.
    """
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        raise SpeclabError(
            f"This version of {engine} has no {path}: use one that docs/steps.md lists, or record "
            "with speclab.recorder.Recorder."
        ) from None
