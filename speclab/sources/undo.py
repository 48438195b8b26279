"""Going back in time: a store notes how each change is undone, and a snapshot is the moment before or after one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Undo = TypeVar("Undo")
Store = TypeVar("Store")


@dataclass(eq=False)
class Moment(Generic[Undo]):
    """It holds the next moment, and what leads back from there; one that nobody keeps is freed."""

    next: tuple[Undo, Moment[Undo]] | None = None


class State(NamedTuple, Generic[Store, Undo]):
    """A snapshot: the store as it was at a moment."""

    store: Store
    moment: Moment[Undo]


class Moments(Generic[Undo]):
    """The moments of one store's life, from the oldest that a snapshot still holds up to `now`.

    Each step forward or back is one assignment, so Ctrl-C finds it done or not done. A store whose way back was stopped
    goes it again from the start: its undos must give the same when they are done twice.
    """

    def __init__(self) -> None:
        self._known: Moment[Undo] = Moment()

    @property
    def now(self) -> Moment[Undo]:
        """The last moment."""
        while self._known.next is not None:
            self._known = self._known.next[1]
        return self._known

    def change(self, undo: Undo) -> None:
        """Notes how the change that follows is undone; before its first part, so that one stopped midway can be."""
        self.now.next = undo, Moment()

    def since(self, moment: Moment[Undo]) -> list[Undo]:
        """What leads back from now to a moment, in the order in which it has to be done."""
        undos: list[Undo] = []
        while moment.next is not None:
            undo, moment = moment.next
            undos.append(undo)
        assert moment is self.now, "a snapshot from after a moment that was gone back to"
        return undos[::-1]

    def back_to(self, moment: Moment[Undo]) -> None:
        """Makes it now again; snapshots of later moments are worthless from here on."""
        self._known = moment
        moment.next = None


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
