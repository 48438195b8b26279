"""What a piece of work does, counted: calls that it makes, tokens that it reads of a text."""

from __future__ import annotations

import sys


def calls(work) -> int:
    """Calls, Python's and C's, that are made on the way."""
    count = [0]

    def count_one(_frame, event, _argument):
        count[0] += event in ("call", "c_call")

    sys.setprofile(count_one)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count[0]


class Counted(list):
    """Tokens; reading some counts them, and reading all of them in turn fails."""

    read = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        Counted.read += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self):
        raise AssertionError("a scan of the whole text")
