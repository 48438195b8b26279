"""Every outcome of a random procedure with its exact probability: the procedure is run again for each way it can go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from fractions import Fraction

import numpy as np

Distribution = np.ndarray
"""Of `Fraction`s, dtype object."""


class Script:
    """A chance that goes one given way, and notes where else it could have gone."""

    def __init__(self, way: tuple[int, ...]) -> None:
        self._way = way
        self._taken: tuple[int, ...] = ()
        self.weight = Fraction(1)
        self.others: list[tuple[int, ...]] = []

    def accepts(self, probability: Fraction) -> bool:
        assert 0 <= probability <= 1
        return self._go([Fraction(probability), 1 - Fraction(probability)]) == 0

    def draws(self, probs: Distribution) -> int:
        assert sum(probs) == 1
        return self._go([Fraction(p) for p in probs])

    def _go(self, shares: list[Fraction]) -> int:
        possible = [option for option, share in enumerate(shares) if share > 0]
        step = len(self._taken)
        option = self._way[step] if step < len(self._way) else possible[0]
        if step >= len(self._way):
            self.others += [(*self._taken, other) for other in possible[1:]]
        self._taken += (option,)
        self.weight *= shares[option]
        return option


def distribution_of(procedure: Callable[[Script], Hashable]) -> dict[Hashable, Fraction]:
    """The distribution of what `procedure` returns, over everything its chance can do."""
    probs: dict[Hashable, Fraction] = defaultdict(Fraction)
    ways: list[tuple[int, ...]] = [()]
    while ways:
        script = Script(ways.pop())
        probs[procedure(script)] += script.weight
        ways += script.others
    assert sum(probs.values()) == 1
    return dict(probs)
