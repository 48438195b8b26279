"""Going back in time: a store notes how each change is undone, and a snapshot is a checkpoint between two changes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

Undo = TypeVar("Undo")


@dataclass(eq=False)
class Checkpoint(Generic[Undo]):
    """It holds the next checkpoint, and what leads back from there; one that nobody keeps is freed."""

    next: tuple[Undo, Checkpoint[Undo]] | None = None


class UndoLog(Generic[Undo]):
    """A store with a way back: a subclass notes each change before it makes it, and says how it is undone.

    Each step forward or back in the log is one assignment, so Ctrl-C finds it done or not done. A store whose way back
    was stopped goes it again from the start: its undos must give the same when they are done twice.
    """

    def __init__(self) -> None:
        self._known: Checkpoint[Undo] = Checkpoint()  # any that a snapshot may still hold; the newest is at the end

    def snapshot(self) -> Snapshot[Self, Undo]:
        """The store as it is now; costs nothing until it is restored."""
        return Snapshot(self, self._newest)

    def restore(self, state: Snapshot[Self, Undo]) -> None:
        """Takes back a snapshot: of this store by undoing what came after it, of another by a copy of it.

        Undoing makes snapshots of this store that were taken after `state` worthless.
        """
        other, checkpoint = state
        if other is not self:
            self._copy(other)
            self._known = Checkpoint()
        for undo in other._since(checkpoint):
            self._undo(undo)
        if other is self:
            self._known = checkpoint
            checkpoint.next = None

    def _note(self, undo: Undo) -> None:
        """Notes how the change that follows is undone; before its first part, so that one stopped midway can be."""
        self._newest.next = undo, Checkpoint()

    @property
    def _newest(self) -> Checkpoint[Undo]:
        while self._known.next is not None:
            self._known = self._known.next[1]
        return self._known

    def _since(self, checkpoint: Checkpoint[Undo]) -> list[Undo]:
        """What leads back from now to a checkpoint, in the order in which it has to be done."""
        undos: list[Undo] = []
        while checkpoint.next is not None:
            undo, checkpoint = checkpoint.next
            undos.append(undo)
        assert checkpoint is self._newest, "a snapshot from after a checkpoint that was gone back to"
        return undos[::-1]

    @abstractmethod
    def _undo(self, undo: Undo) -> None:
        """Takes one change back."""

    @abstractmethod
    def _copy(self, other: Self) -> None:
        """Takes over what another store of this kind holds."""


Store = TypeVar("Store", bound=UndoLog)  # type: ignore[type-arg]


class Snapshot(NamedTuple, Generic[Store, Undo]):
    """The store as it was at a checkpoint."""

    store: Store
    checkpoint: Checkpoint[Undo]


ENTRY_BYTES = 256
"""Memory of a key: its pair of numbers, a place in a dict and one in a list. An estimate, on the high side."""


class Allocation(NamedTuple):
    """A key about to be given a slot, the key that has it before (None: nobody), and how many slots were given."""

    key: Hashable
    slot: int
    evicted: Hashable | None
    given: int


class SlotMap:
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

    def allocate(self, keys: Iterable[Hashable], made: list[Allocation]) -> list[int]:
        """The slot of each key, in turn; for each new one `made` gets a note of it, before it is given."""
        known = self.slots.get
        return [self._new(key, made) if (slot := known(key)) is None else slot for key in keys]

    def release(self, made: Iterable[Allocation]) -> None:
        """Undoes the latest allocations, in the order they were made; one that was stopped midway is done again."""
        for key, slot, evicted, given in reversed(list(made)):
            self.slots.pop(key, None)
            if evicted is None:
                del self._keys[given:]
            else:
                self._oldest = slot - self._first
                self._keys[self._oldest] = evicted
                self.slots[evicted] = slot

    def copy(self) -> SlotMap:
        """A map of its own with the same entries."""
        twin = SlotMap(self._first, self.size)
        twin.slots, twin._keys, twin._oldest = dict(self.slots), list(self._keys), self._oldest
        return twin

    def _new(self, key: Hashable, made: list[Allocation]) -> int:
        given = len(self._keys)
        full = given == self.size
        place = self._oldest if full else given
        slot, evicted = self._first + place, self._keys[place] if full else None
        made.append(Allocation(key, slot, evicted, given))
        if full:
            self._keys[place] = key
            self._oldest = (place + 1) % self.size
            del self.slots[evicted]
        else:
            self._keys.append(key)
        self.slots[key] = slot
        return slot
