"""Exact distributions of whole texts, and the chi-square test of samples against them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from reference.decoding import transformed

Logits = Callable[[tuple[int, ...]], Sequence[float]]
"""Of the next token after a text, prompt excluded."""


def chi_square_critical(freedom, z=4.26):
    """The value that chance exceeds once in 100,000 (Wilson and Hilferty's approximation)."""
    return freedom * (1 - 2 / (9 * freedom) + z * math.sqrt(2 / (9 * freedom))) ** 3


def chi_square(counts, probs):
    """The statistic and its degrees of freedom; impossible outcomes must not happen.

    Cells are due 5 draws or more: outcomes join one in the order of their probability until it has
    that many.
    """
    draws = sum(counts.values())
    assert not [outcome for outcome in counts if probs.get(outcome, 0.0) == 0.0]
    cells = [(0, 0.0)]
    for outcome in sorted(probs, key=lambda outcome: -probs[outcome]):
        seen, due = cells[-1]
        cells[-1] = seen + counts[outcome], due + probs[outcome] * draws
        if cells[-1][1] >= 5:
            cells.append((0, 0.0))
    seen, due = cells.pop()
    cells[-1] = cells[-1][0] + seen, cells[-1][1] + due
    assert len(cells) > 1
    return sum((seen - due) ** 2 / due for seen, due in cells), len(cells) - 1


def assert_drawn_from(counts, probs):
    """Chi-square, at the level of `chi_square_critical`."""
    statistic, freedom = chi_square(counts, probs)
    assert statistic < chi_square_critical(freedom)


def logits_of(probs, prompt):
    """Logits of a table's distribution."""
    return lambda text: np.log(probs((*prompt, *text))).tolist()


def text_distribution(logits, length, *, temperature, top_k=None, top_p=None):
    """Exact probability of every text of `length` tokens."""
    probs: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        grown = {}
        for text, share in probs.items():
            after = transformed(logits(text), temperature, top_k, top_p)
            grown |= {(*text, token): share * p for token, p in enumerate(after)}
        probs = grown
    return probs
