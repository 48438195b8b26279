"""Prompt lookup by scanning: every n-gram of the text compared with its end, one after the other."""

from __future__ import annotations

from collections.abc import Sequence


def places(text: Sequence[int], length: int) -> list[int]:
    """Where in the text the last `length` tokens of it occurred, but for the end of the text."""
    if length > len(text):
        return []
    end = list(text[len(text) - length :])
    return [
        place for place in range(length, len(text)) if list(text[place - length : place]) == end
    ]


def copied(text: Sequence[int], place: int, limit: int) -> tuple[int, ...]:
    """What follows `place`; at the end the copy goes on with what it has copied."""
    longer = list(text)
    for offset in range(limit):
        longer.append(longer[place + offset])
    return tuple(longer[len(text) :])


def matches(
    text: Sequence[int], lengths: Sequence[int], limit: int
) -> list[tuple[int, int, tuple[int, ...]]]:
    """(n, place, tokens copied) for each length, longest first."""
    found = []
    for length in sorted(lengths, reverse=True):
        if at := places(text, length):
            found.append((length, at[-1], copied(text, at[-1], limit)))
    return found
