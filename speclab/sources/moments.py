"""Going back in time: a store notes how each change is undone, and a snapshot is the moment before or after one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

Undo = TypeVar("Undo")
Store = TypeVar("Store")


@dataclass(eq=False)
class Moment(Generic[Undo]):
    """It holds what leads back to it from the next moment; one that nobody keeps is freed."""

    undo: Undo | None = None
    later: Moment[Undo] | None = None


class State(NamedTuple, Generic[Store, Undo]):
    """A snapshot: the store as it was at a moment."""

    store: Store
    moment: Moment[Undo]


class Moments(Generic[Undo]):
    """The moments of one store's life, from the oldest that a snapshot still holds up to `now`."""

    def __init__(self) -> None:
        self.now: Moment[Undo] = Moment()

    def change(self, undo: Undo) -> None:
        """Notes how the change that follows is undone; before its first part, so that one stopped midway can be."""
        later: Moment[Undo] = Moment()
        self.now.undo, self.now.later = undo, later
        self.now = later

    def since(self, moment: Moment[Undo]) -> list[Undo]:
        """What leads back from now to a moment, in the order in which it has to be done."""
        undos: list[Undo] = []
        while moment.undo is not None:
            assert moment.later is not None
            undos.append(moment.undo)
            moment = moment.later
        assert moment is self.now, "a snapshot from after a moment that was gone back to"
        return undos[::-1]

    def back_to(self, moment: Moment[Undo]) -> None:
        """Makes it now again; snapshots of later moments are worthless from here on."""
        self.now = moment
        moment.undo = moment.later = None
