"""What the tests of the course's exercises call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def expect(function: Callable[..., object], *arguments: Any, expected: object) -> None:
    """Asserts what a function returns, and that its arguments are the same before and after."""
    before = repr(arguments)
    result = plain(function(*arguments))
    name = getattr(function, "__name__", "the function")
    assert result == plain(expected), f"{name}{before}: expected {expected}, got {result}"
    assert repr(arguments) == before, f"{name}{before} changed what it was given: {arguments}"


def plain(value: Any) -> Any:
    """Nested lists and rounded numbers, so that a tuple or an array equals a list."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple | range):
        return [plain(part) for part in value]
    return round(value, 9) if isinstance(value, float) else value
