"""Records some of whose fields are worked out when one of them is first read: nobody waits for what nobody looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self


class Late:
    """Base of a frozen dataclass with slots; to whoever reads, compares, copies or saves it no field is late."""

    __slots__ = ("_later",)

    def put_off(self, *names: str, later: Callable[[Self], Mapping[str, Any]]) -> Self:
        """Forgets the fields `names`; `later` gives them, from the record without them, when one is read.

        `later` is called once, or again if two threads read at the same time: it must give equal values.
        """
        for name in names:
            object.__delattr__(self, name)
        object.__setattr__(self, "_later", later)
        return self

    if not TYPE_CHECKING:  # a type checker would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            try:
                later = object.__getattribute__(self, "_later")
            except AttributeError:  # nothing is late, or another thread has just put it in
                return object.__getattribute__(self, name)
            for field, value in later(self).items():
                object.__setattr__(self, field, value)
            with suppress(AttributeError):  # another thread was as fast
                object.__delattr__(self, "_later")
            return object.__getattribute__(self, name)
