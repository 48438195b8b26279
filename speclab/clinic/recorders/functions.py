"""Wraps functions of a module for a while."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from speclab.clinic.recorders.files import named

After = Callable[[dict[str, Any], Any], object]
"""Called with the arguments of a function by name, and its result."""


@contextmanager
def wrapping(module: Any, after: Mapping[str, After]) -> Iterator[None]:
    """Calls these after functions of a module, with their arguments by name and their result."""
    originals = {name: named(module.__name__, f"{module.__name__}:{name}") for name in after}
    for name, original in originals.items():
        setattr(module, name, _wrapped(original, after[name]))
    try:
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
