"""Prompt lookup by scanning: every n-gram of the text compared with its end, one after the other."""

from __future__ import annotations

from collections.abc import Sequence


def places(text: Sequence[int], length: int) -> list[int]:
    """Where an n-gram that equals the last `length` tokens ends, but for the very end."""
    if length > len(text):
        return []
    end = list(text[len(text) - length :])
    return [place for place in range(length, len(text)) if list(text[place - length : place]) == end]


def agreement(text: Sequence[int], place: int) -> int:
    """Tokens before `place` that equal those at the end."""
    count = 0
    while count < place and text[place - 1 - count] == text[len(text) - 1 - count]:
        count += 1
    return count


def copied(text: Sequence[int], place: int, limit: int) -> tuple[int, ...]:
    """What follows `place`; at the end of the text the copy goes on with what it has copied."""
    whole = list(text)
    for offset in range(limit):
        whole.append(whole[place + offset])
    return tuple(whole[len(text) :])


def matches(
    text: Sequence[int], lengths: Sequence[int], pick: str, limit: int, compared: int, reach: int
) -> list[tuple[int, int, tuple[int, ...]]]:
    """(n, place, tokens copied) for each length, longest first. "longest" compares the newest places, so far back."""
    found = []
    for length in sorted(lengths, reverse=True):
        at = places(text, length)
        if not at:
            continue
        if pick == "longest":
            newest = at[-compared:]
            place = max(newest, key=lambda place: (min(agreement(text, place), reach), place))
        else:
            place = at[0] if pick == "first" else at[-1]
        found.append((length, place, copied(text, place, limit)))
    return found
