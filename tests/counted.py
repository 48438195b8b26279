"""A text that counts what is read of it."""

from __future__ import annotations


class Counted(list):
    """Tokens; reading some counts them, and reading all of them in turn fails."""

    read = 0

    def __getitem__(self, at):
        found = super().__getitem__(at)
        Counted.read += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self):
        raise AssertionError("a scan of the whole text")
