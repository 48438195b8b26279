"""Repetition in continuations: repeated 4-grams, and exact periods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from speclab.trace.metrics import NGRAM

LONGEST_PERIOD = 24
PERIODIC_TAIL = 48


def repeated(tokens: Sequence[int], before: int = 1) -> list[bool]:
    """For every token, whether the 4-gram that ends with it occurred at least `before` times earlier in `tokens`."""
    seen: Counter[tuple[int, ...]] = Counter()
    marks = [False] * len(tokens)
    for end in range(NGRAM, len(tokens) + 1):
        gram = tuple(tokens[end - NGRAM : end])
        marks[end - 1] = seen[gram] >= before
        seen[gram] += 1
    return marks


def periodic(tokens: Sequence[int]) -> bool:
    """A narrower criterion than `loops`: the last 48 tokens repeat exactly, with a period of 24 or less."""
    tail = list(tokens[-PERIODIC_TAIL:])
    if len(tail) < PERIODIC_TAIL:
        return False
    return any(tail[period:] == tail[:-period] for period in range(1, LONGEST_PERIOD + 1))
