"""Which slot of a bounded store holds which key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

ENTRY_BYTES = 256
"""Memory of a key: its pair of numbers, a place in a dict and one in a list. An estimate of ours, on the high side."""


Taken = tuple[Hashable, Hashable | None]
"""A key that was given a slot, and the one that had it before."""


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
        """The slot of each key, in turn; for each new one `taken` gets a note of it."""
        known = self.slots.get
        return [self._new(key, taken) if (slot := known(key)) is None else slot for key in keys]

    def give_back(self, taken: Iterable[Taken]) -> None:
        """Undoes the latest takes, given in the order they were made."""
        for key, evicted in reversed(list(taken)):
            slot = self.slots.pop(key)
            if evicted is None:
                self._keys.pop()
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
        if len(self._keys) < self.size:
            place, evicted = len(self._keys), None
            self._keys.append(key)
        else:
            place = self._oldest
            evicted, self._keys[place] = self._keys[place], key
            self._oldest = (place + 1) % self.size
            del self.slots[evicted]
        taken.append((key, evicted))
        self.slots[key] = slot = self._first + place
        return slot
