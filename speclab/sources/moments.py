"""Going back in time: a store notes how each change is undone, and a snapshot is the moment before or after one."""

from __future__ import annotations

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
