"""One file for each request, in the folder that `SPECLAB_RECORD` names."""

from __future__ import annotations

import functools
import inspect
import os
import pkgutil
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speclab.errors import SpeclabError
from speclab.recorder import Recorder, topk

VARIABLE = "SPECLAB_RECORD"
LEAST = -100.0
"""Log-probability that stands for that of an excluded token, which no JSON has."""


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
        self._opened = Counter[str]()
        self._broken = False

    def step(self, request: str, header: Mapping[str, Any], **fields: Any) -> None:
        """A verification pass of a request. `header` has `prompt_ids`, and is written with its
        first pass; a request that comes back gets a new file."""
        if request not in self._open:
            name = re.sub(r"[^\w.-]", "_", request)[:120]
            self._opened[name] += 1
            if self._opened[name] > 1:
                name = f"{name}-{self._opened[name]}"
            path = self.folder / f"{self.engine}-{name}.jsonl"
            self._open[request] = Recorder(path, engine=self.engine, request=request, **header)
        self._open[request].step(**fields)

    def keep(self, alive: Collection[str]) -> None:
        """Closes the files of all other requests."""
        for request in self._open.keys() - set(alive):
            self._open.pop(request).close()

    def safely(self, record: Callable[[], None]) -> None:
        """Records; what fails stops the recording with one warning, and never the engine."""
        if self._broken:
            return
        try:
            record()
        except Exception as error:
            self._broken = True
            self.keep(())
            warnings.warn(f"The recording of {self.engine} stopped: {error!r}", stacklevel=2)


def found(value: Any, path: str, default: Any = None) -> Any:
    """What lies under a dotted name; the default if a version of the engine lacks it."""
    for name in path.split("."):
        value = getattr(value, name, None)
    return default if value is None else value


def proposals(log_probs: Any, token: Sequence[int]) -> dict[str, Any]:
    """`log_prob` and `draft_topk` of a chain: what the drafter gave after each row but the last,
    `[n - 1, V]`; tokens of probability 0 are left out."""
    chosen = [0.0]
    tops = []
    for row, own, top in zip(log_probs, token[1:], topk(log_probs), strict=True):
        chosen.append(max(min(float(row[own]), 0.0), LEAST))
        tops.append([pair for pair in top if pair[1] > LEAST])
    tops.append([])
    return {"log_prob": chosen, "draft_topk": tops}


def cuts(top_k: Any, top_p: Any, size: int) -> dict[str, Any]:
    """The header's `top_k` and `top_p`, where they cut anything."""
    cut: dict[str, Any] = {}
    if top_k < size:
        cut["top_k"] = int(top_k)
    if top_p < 1:
        cut["top_p"] = float(top_p)
    return cut


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


After = Callable[[dict[str, Any], Any], object]
"""Called with the arguments of a function by name, and its result."""


@contextmanager
def wrapping(module: Any, *after: After) -> Iterator[None]:
    """Calls each of these after the function of the module that has its name."""
    originals: dict[str, Any] = {}
    try:
        for then in after:
            name = then.__name__
            originals[name] = named(module.__name__, f"{module.__name__}:{name}")
            setattr(module, name, _wrapped(originals[name], then))
        yield
    finally:
        for name, original in originals.items():
            setattr(module, name, original)


def _wrapped(original: Any, after: After) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*given: Any, **more: Any) -> Any:
        result = original(*given, **more)
        after(signature.bind(*given, **more).arguments, result)
        return result

    return call
