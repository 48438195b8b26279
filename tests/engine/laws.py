"""Exact laws of whole texts, and the chi-square test of samples against them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from reference.decoding import transformed

Logits = Callable[[tuple[int, ...]], Sequence[float]]
"""Of the next token after a text, prompt excluded."""


def chi_square_critical(freedom: int, z: float = 4.26) -> float:
    """The value that chance exceeds once in 100,000 (Wilson and Hilferty's approximation)."""
    return freedom * (1 - 2 / (9 * freedom) + z * math.sqrt(2 / (9 * freedom))) ** 3


def chi_square(counts: Counter, law: dict) -> tuple[float, int]:
    """The statistic and its degrees of freedom; impossible outcomes must not happen.

    Cells are due 5 draws or more: outcomes join one in the order of their probability until it has that many.
    """
    draws = sum(counts.values())
    assert not [outcome for outcome in counts if law.get(outcome, 0.0) == 0.0]
    cells = [(0, 0.0)]
    for outcome in sorted(law, key=lambda outcome: -law[outcome]):
        seen, due = cells[-1]
        cells[-1] = seen + counts[outcome], due + law[outcome] * draws
        if cells[-1][1] >= 5:
            cells.append((0, 0.0))
    seen, due = cells.pop()
    cells[-1] = cells[-1][0] + seen, cells[-1][1] + due
    assert len(cells) > 1
    return sum((seen - due) ** 2 / due for seen, due in cells), len(cells) - 1


def assert_drawn_from(counts: Counter, law: dict) -> None:
    """Chi-square, at the level of `chi_square_critical`."""
    statistic, freedom = chi_square(counts, law)
    assert statistic < chi_square_critical(freedom)


def logits_of(law: Callable[[tuple[int, ...]], Sequence[float]], prompt: Sequence[int]) -> Logits:
    """Logits of a table's law."""
    return lambda text: np.log(law((*prompt, *text))).tolist()


def texts_law(
    logits: Logits, length: int, *, temperature: float, top_k: int | None = None, top_p: float | None = None
) -> dict[tuple[int, ...], float]:
    """Exact probability of every text of `length` tokens."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        grown = {}
        for text, share in law.items():
            after = transformed(logits(text), temperature, top_k, top_p)
            grown |= {(*text, token): share * p for token, p in enumerate(after)}
        law = grown
    return law
