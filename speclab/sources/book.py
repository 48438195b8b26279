"""Which slot of a bounded store holds which key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

ENTRY_BYTES = 256
"""Memory of a key: its pair of numbers, a place in a dict and one in a list. An estimate of ours, on the high side."""


class Taken(NamedTuple):
    """A key about to be given a slot, the key that has it before (None: nobody), and how many slots were given."""

    key: Hashable
    slot: int
    evicted: Hashable | None
    given: int


class Book:
    """Gives the slots `first`, `first + 1`, … to keys as they come; when all are given, the oldest key loses its slot.

    Attributes:
        slots: key to slot.
        size: how many slots there are.
    """

    def __init__(self, first: int, size: int) -> None:
        self.slots: dict[Hashable, int] = {}
        self.size = size
        self._first = first
        self._keys: list[Hashable] = []
        self._oldest = 0

    def __len__(self) -> int:
        return len(self._keys)

    def take(self, keys: Iterable[Hashable], taken: list[Taken]) -> list[int]:
        """The slot of each key, in turn; for each new one `taken` gets a note of it, before it is given."""
        known = self.slots.get
        return [self._new(key, taken) if (slot := known(key)) is None else slot for key in keys]

    def give_back(self, taken: Iterable[Taken]) -> None:
        """Undoes the latest takes, given in the order they were made; one that was stopped midway is done again."""
        for key, slot, evicted, given in reversed(list(taken)):
            self.slots.pop(key, None)
            if evicted is None:
                del self._keys[given:]
            else:
                self._oldest = slot - self._first
                self._keys[self._oldest] = evicted
                self.slots[evicted] = slot

    def copy(self) -> Book:
        """A book of its own with the same entries."""
        twin = Book(self._first, self.size)
        twin.slots, twin._keys, twin._oldest = dict(self.slots), list(self._keys), self._oldest
        return twin

    def _new(self, key: Hashable, taken: list[Taken]) -> int:
        given = len(self._keys)
        full = given == self.size
        place = self._oldest if full else given
        slot, evicted = self._first + place, self._keys[place] if full else None
        taken.append(Taken(key, slot, evicted, given))
        if full:
            self._keys[place] = key
            self._oldest = (place + 1) % self.size
            del self.slots[evicted]
        else:
            self._keys.append(key)
        self.slots[key] = slot
        return slot
