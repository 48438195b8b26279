"""What a strategy learns from text to text position: batches that can be learned again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True, eq=False)
class History(Generic[Batch]):
    """The batches that were learned, the newest first; the states of one run share the older ones."""

    older: History[Batch] | None
    newest: Batch


class Learned(ABC, Generic[Batch]):
    """A store whose contents follow from the batches that it was given and from their order alone.

    So a snapshot is the history of its batches, which takes no time, and `restore` reads them again.
    """

    def __init__(self) -> None:
        self._history: History[Batch] | None = None
        self.clear()

    def add(self, batch: Batch) -> None:
        """Learns a batch."""
        self.read(batch)
        self._history = History(self._history, batch)

    def snapshot(self) -> History[Batch] | None:
        """What was learned so far, as a value."""
        return self._history

    def restore(self, state: History[Batch] | None) -> None:
        """Goes back to a snapshot of this store or of another."""
        self.clear()
        self._history = state
        batches = []
        while state is not None:
            batches.append(state.newest)
            state = state.older
        for batch in reversed(batches):
            self.read(batch)

    @abstractmethod
    def clear(self) -> None:
        """Forgets everything."""

    @abstractmethod
    def read(self, batch: Batch) -> None:
        """Updates the contents."""
