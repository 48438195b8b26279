"""Counts the calls of speclab's own functions that one piece of work makes, by room and by function.

`python tests/lab/call_counts.py [rows]` prints them for one `lab.step()` of the mini family.
"""

from __future__ import annotations

import dis
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import speclab

ROOT = f"{Path(speclab.__file__).parent}/"


GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@cache
def first_entry(code: CodeType) -> int:
    """The offset at which a generator begins: a frame that stands further on is resumed, which is no call."""
    return next(line.offset for line in dis.get_instructions(code) if line.opname == "RESUME")


class Calls(Counter[tuple[str, str]]):
    """Calls by (file, function); a generator counts once, when it is entered first."""

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self}

    def of(self, *rooms: str) -> Calls:
        """Those of some rooms of the package."""
        return Calls({call: count for call, count in self.items() if call[0].split("/")[0] in rooms})

    def by_room(self) -> Counter[str]:
        rooms: Counter[str] = Counter()
        for (file, _), count in self.items():
            rooms[file.split("/")[0]] += count
        return rooms


@contextmanager
def profiled() -> Iterator[Callable[[Callable[[], Any]], Calls]]:
    """Gives a function that counts; threads that are to be counted must begin within."""
    calls, counting = Calls(), [False]

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not counting[0] or not code.co_filename.startswith(ROOT):
            return
        if not code.co_flags & GENERATOR or frame.f_lasti <= first_entry(code):
            calls[code.co_filename[len(ROOT) :], code.co_qualname] += 1

    def count(work: Callable[[], Any]) -> Calls:
        calls.clear()
        counting[0] = True
        try:
            work()
        finally:
            counting[0] = False
        return Calls(calls)

    former = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield count
    finally:
        sys.setprofile(former)
        threading.setprofile(None)


if __name__ == "__main__":
    with profiled() as count:
        lab = speclab.Lab(speclab.load_pair())
        lab.step()
        found = count(lab.step)
    print(found.total(), "calls in", len(found.files), "files", dict(found.by_room().most_common()))
    for (file, name), number in found.most_common(int(sys.argv[1]) if len(sys.argv) > 1 else 40):
        print(number, file, name)
