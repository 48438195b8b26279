"""Tests of answers: hand-made cases, then random worlds; inputs are compared afterwards."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from ctypes import c_ulong, py_object, pythonapi
from functools import wraps
from inspect import signature, unwrap
from io import StringIO
from itertools import chain
from math import isclose
from numbers import Number
from random import Random
from threading import Event, Thread, get_ident
from time import perf_counter, process_time
from typing import Any

from speclab.course.export import solution

WORLDS = 50
"""Random worlds in each test."""
Answer = Callable[..., Any]

right: set[Answer] = set()
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
    seed: int | None = 0,
    limit: float = 15,
) -> None:
    """Test an answer and print whether it is open (an empty function) or right.

    What the answer prints is shown if it is wrong: graders compare what a right one prints.

    Args:
        exercise: its letter.
        cases: the arguments of a call, and last what it should return.
        through: called as `through(answer, *arguments)` in the answer's place; for answers whose
            result has to be prepared or looked at before it can be compared. It may return a dict:
            each part is compared, and the message names the first that differs.
        worlds: makes a random case; it is called 50 times.
        seed: other seeds give other worlds; None leaves them out.
        limit: seconds of the processor for each call.

    Raises:
        AssertionError: the answer is wrong, changes its arguments, or exceeds the limit.
    """
    name = _name(answer)
    if is_open(answer):
        print(f"{exercise} is open: {name} returns None")
        return
    tests = cases
    if worlds is not None and seed is not None:
        randoms = (Random(f"{seed} {exercise} {i}") for i in range(WORLDS))
        tests = chain(cases, map(worlds, randoms))
    printed = StringIO()
    try:
        for *arguments, expected in tests:
            with _within(limit, name), redirect_stdout(printed):
                expect(answer, *arguments, expected=expected, through=through)
    except BaseException:
        print(printed.getvalue()[-2000:], end="")
        raise
    right.add(answer)
    print(f"{exercise} is right")


def expect(
    function: Answer, *arguments: Any, expected: object, through: Answer | None = None
) -> None:
    """Assert what a function returns, and that its arguments are the same before and after.

    It gets copies: what it changes is not the caller's.
    """
    name = _name(function)
    call = _call(name, arguments, through)
    before = _shown(arguments)
    arguments = deepcopy(arguments)
    _tested.append(name)
    try:
        if through is None:
            result = plain(function(*arguments))
        else:
            result = plain(through(function, *arguments))
    except SystemExit:  # a notebook would go on as if nothing had happened
        raise AssertionError(f"{call}: expected {expected}, got an exit") from None
    finally:
        _tested.pop()
    if isinstance(expected, Mapping):
        for part, value in expected.items():
            got = result[part]
            assert same(got, plain(value)), f"{call}: {part}: expected {plain(value)}, got {got}"
    else:
        assert same(result, plain(expected)), f"{call}: expected {expected}, got {result}"
    assert _shown(arguments) == before, f"{call} changed what it was given"


def own(name: str, default: Answer | None = None) -> Answer:
    """Return the caller's function of this name if it has passed its test.

    Otherwise the default, or the solution that is folded in the course; an answer to the same
    exercise must not call it.
    """
    names = sys._getframe(1).f_globals
    if names.get(name) in right:
        return names[name]  # type: ignore[no-any-return]
    if default is not None:
        return default
    known = dict(names)
    exec(solution(name), known)
    return version(known[name])


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


def is_open(answer: Answer) -> bool:
    """Whether a function has no body but a docstring and comments."""

    def empty() -> None:
        """Nothing."""

    code = getattr(unwrap(answer), "__code__", None)
    if code is None:  # an object that can be called
        return False
    operations = [[each.opname for each in dis.Bytecode(one)] for one in (code, empty)]
    return operations[0] == operations[1] and not {*code.co_consts} - {None, answer.__doc__}


def plain(value: Any) -> Any:
    """Nested lists, so that a tuple, an array, a tensor or a generator equals a list."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | set):
        return [plain(part) for part in value]
    return value


def same(one: Any, other: Any) -> bool:
    """Whether nested lists agree; numbers may differ by rounding in float32."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Number) and isinstance(other, Number):
        return isclose(one, other, rel_tol=1e-5, abs_tol=1e-6)  # type: ignore[arg-type]
    return bool(one == other)


def _name(function: Answer) -> str:
    """A function's name, or that of an object's class."""
    return getattr(function, "__name__", type(function).__name__)


def _call(name: str, arguments: Sequence[Any], through: Answer | None) -> str:
    """The call that a message is about; of a test with steps of its own, what it was made of."""
    if through is None:
        return f"{name}({_shown(arguments)})"
    parameters = [*signature(through).parameters][1:]
    values = zip(parameters, map(plain, arguments), strict=False)
    return f"{name}, in the test with " + ", ".join(f"{key} = {value!r}" for key, value in values)


def _shown(arguments: Sequence[Any]) -> str:
    return ", ".join([repr(plain(each)) for each in arguments])


class _LateError(BaseException):
    """Raised in an answer that takes too long; no `except Exception` of the answer's stops it."""


@contextmanager
def _within(seconds: float, name: str) -> Iterator[None]:
    """Interrupt what takes longer, counted in time of the processor; waiting counts a tenth.

    Not by a signal: a kernel that was started in the background of a shell ignores it.
    """
    thread = c_ulong(get_ident())
    done = Event()
    began = process_time() + perf_counter() / 10

    def watch() -> None:
        while not done.wait(0.1):
            if process_time() + perf_counter() / 10 - began > seconds:
                pythonapi.PyThreadState_SetAsyncExc(thread, py_object(_LateError))

    Thread(target=watch, daemon=True).start()
    try:
        yield
    except _LateError:
        raise AssertionError(
            f"{name}: expected an answer within {seconds:g} seconds; does a loop never end?"
        ) from None
    finally:
        done.set()
