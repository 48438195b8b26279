"""Prompt lookup by scanning: every n-gram of the text compared with its end, one after the other."""

from __future__ import annotations

from collections.abc import Sequence


def places(text: Sequence[int], length: int, after: Sequence[int] = ()) -> list[int]:
    """Where in the text the last `length` tokens of it and `after` occurred, but for the end of the text."""
    whole = [*text, *after]
    if length > len(whole):
        return []
    end = whole[len(whole) - length :]
    return [place for place in range(length, len(text)) if list(text[place - length : place]) == end]


def agreement(whole: Sequence[int], place: int) -> int:
    """Tokens before `place` that equal those at the end."""
    count = 0
    while count < place and whole[place - 1 - count] == whole[len(whole) - 1 - count]:
        count += 1
    return count


def copied(whole: Sequence[int], place: int, limit: int) -> tuple[int, ...]:
    """What follows `place`; at the end the copy goes on with what it has copied."""
    longer = list(whole)
    for offset in range(limit):
        longer.append(longer[place + offset])
    return tuple(longer[len(whole) :])


def matches(
    text: Sequence[int],
    lengths: Sequence[int],
    pick: str,
    limit: int,
    reach: int,
    after: Sequence[int] = (),
) -> list[tuple[int, int, tuple[int, ...]]]:
    """(n, place, tokens copied) for each length, longest first. "longest" compares so many tokens back."""
    found, whole = [], [*text, *after]
    for length in sorted(lengths, reverse=True):
        at = places(text, length, after)
        if not at:
            continue
        if pick == "longest":
            place = max(at, key=lambda place: (min(agreement(whole, place), reach), place))
        else:
            place = at[0] if pick == "first" else at[-1]
        found.append((length, place, copied(whole, place, limit)))
    return found


def unanimous(text: Sequence[int], lengths: Sequence[int], after: Sequence[int] = ()) -> bool:
    """Whether the longest n-gram that occurred did so twice or more, with one next token."""
    longest = next(filter(None, (places(text, length, after) for length in sorted(lengths, reverse=True))), [])
    return len(longest) > 1 and len({text[place] for place in longest}) == 1
