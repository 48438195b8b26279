"""Tests of answers: hand-made cases, then random worlds; inputs are compared afterwards."""

from __future__ import annotations

import dis
from _thread import interrupt_main
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from math import isclose
from numbers import Number
from random import Random
from threading import Timer
from typing import Any

WORLDS = 50
"""Random worlds in each test."""
Answer = Callable[..., Any]

_right: set[Answer] = set()
"""Answers that passed their test in this kernel."""
_tested: list[str] = []
"""The answer under test, while it runs."""


def check(
    exercise: str,
    answer: Answer,
    cases: Iterable[Sequence[Any]] = (),
    *,
    through: Answer | None = None,
    worlds: Callable[[Random], Sequence[Any]] | None = None,
    seed: int = 0,
    limit: float = 100,
) -> None:
    """Test an answer and print whether it is open (an empty function) or right.

    Args:
        exercise: its letter.
        cases: the arguments of a call, and last what it should return.
        through: called as `through(answer, *arguments)` in the answer's place; for answers whose
            result has to be prepared or looked at before it can be compared.
        worlds: makes a random case; it is called 50 times.
        seed: other seeds give other worlds.
        limit: seconds for the whole test.

    Raises:
        AssertionError: the answer is wrong, changes its arguments, or exceeds the limit.
    """
    if is_open(answer):
        print(f"{exercise} is open: {answer.__name__} returns None")
        return
    run = partial(through, answer) if through else answer
    made = (worlds(Random(f"{seed} {exercise} {i}")) for i in range(WORLDS)) if worlds else ()
    with _within(limit, answer.__name__):
        for given in (cases, made):
            for *arguments, expected in given:
                expect(run, *arguments, expected=expected, name=answer.__name__)
    _right.add(answer)
    print(f"{exercise} is right")


def expect(function: Answer, *arguments: Any, expected: object, name: str = "") -> None:
    """Assert what a function returns, and that its arguments are the same before and after.

    It gets copies of lists, dicts, arrays and tensors: what it changes is not the caller's.
    """
    before = _shown(arguments)
    arguments = tuple(_copied(each) for each in arguments)
    name = name or getattr(function, "__name__", "the function")
    _tested.append(name)
    try:
        result = plain(function(*arguments))
    finally:
        _tested.pop()
    assert same(result, plain(expected)), f"{name}({before}): expected {expected}, got {result}"
    assert _shown(arguments) == before, f"{name}({before}) changed what it was given"


def own(answer: Answer, version: Answer) -> Answer:
    """Return the answer if it passed its test, otherwise the course's version."""
    return answer if answer in _right else version


def is_open(answer: Answer) -> bool:
    """Whether a function has no body but a docstring and comments."""

    def empty() -> None:
        """Nothing."""

    operations = [[each.opname for each in dis.Bytecode(one)] for one in (answer, empty)]
    rest = {*answer.__code__.co_consts} - {None, answer.__doc__}
    return operations[0] == operations[1] and not rest


def plain(value: Any) -> Any:
    """Nested lists, so that a tuple, an array, a tensor or a generator equals a list."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | set | Mapping):
        return [plain(part) for part in value]
    return value


def same(one: Any, other: Any) -> bool:
    """Whether nested lists agree; numbers may differ by rounding in float32."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Number) and isinstance(other, Number):
        return isclose(one, other, rel_tol=1e-5, abs_tol=1e-6)  # type: ignore[arg-type]
    return bool(one == other)


def version(function: Answer) -> Answer:
    """Mark a version of the course's: the answer to the same exercise must not call it."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        asked = _tested[-1] if _tested else ""
        assert asked != function.__name__, (
            f"{asked}: expected code of your own, got a call of the course's version"
        )
        return function(*arguments, **named)

    return call


def _copied(value: Any) -> Any:
    """Containers, arrays and tensors anew, with what is in them; anything else as it is."""
    if type(value) is dict:
        return {name: _copied(each) for name, each in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(map(_copied, value))
    if hasattr(value, "tolist"):
        return value.clone() if hasattr(value, "clone") else value.copy()
    return value


def _shown(arguments: Sequence[Any]) -> str:
    return ", ".join([repr(plain(each)) for each in arguments])


@contextmanager
def _within(seconds: float, name: str) -> Iterator[None]:
    """Interrupt what takes longer."""
    late: list[bool] = []

    def interrupt() -> None:
        late.append(True)
        interrupt_main()

    timer = Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except KeyboardInterrupt:
        if not late:
            raise
        raise AssertionError(
            f"{name}: expected an answer within {seconds:g} seconds; does a loop never end?"
        ) from None
    finally:
        timer.cancel()
