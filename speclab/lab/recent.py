"""The pictures drawn last, so that going back and forth in a run draws nothing twice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from speclab.trace.records import Step, Trace

ROOM = 2**22
"""Characters kept: some hundred pictures of a tree of 60 nodes."""


class Recent:
    """Strings by what they depend on, the newest kept. Records are told apart by identity: they are immutable."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], tuple[tuple[Any, ...], str]] = OrderedDict()
        self._size = 0

    def get(self, key: tuple[Any, ...], draw: Callable[[], str]) -> str:
        """The string of `key`, drawn where it is not kept."""
        place = tuple(id(part) if isinstance(part, _RECORDS) else part for part in key)
        if place in self._kept:
            self._kept.move_to_end(place)
            return self._kept[place][1]
        drawn = draw()
        self._kept[place] = key, drawn  # with its records: while they live, no other has their id
        self._size += len(drawn)
        while self._size > ROOM and len(self._kept) > 1:
            self._size -= len(self._kept.popitem(last=False)[1][1])
        return drawn

    def forget(self) -> None:
        """Keeps nothing."""
        self._kept.clear()
        self._size = 0


_RECORDS = (Step, Trace)
