"""Noise that is tied to the place in the text, so that going back, forks and other strategies meet the same.

The target's own draw for a place depends on the seed and that place alone: every strategy that chooses its candidates
beforehand gives the very text that plain sampling gives. Where candidates are drawn, drawing and acceptance have
streams of their own.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from speclab.acceptance import Probabilities


def uniform(seed: int, position: int) -> float:
    """The noise in [0, 1) for the token at `position` of the text (prompt included)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())


class Use(IntEnum):
    """What a stream is for; streams of two uses have nothing in common, nor have they with `uniform`."""

    ACCEPTANCE = 1
    DRAFTING = 2


class Stream:
    """An `acceptance.Chance`: as many numbers as wanted for one seed, one place in the text and one use.

    An acceptance stream belongs to the place it decides. A drafting stream belongs to the place of the tree's root:
    every place is a root at most once, so no iteration sees the noise of another, whatever the shapes of their trees.
    """

    def __init__(self, seed: int, place: int, use: Use) -> None:
        # Philox counts up its first word as it goes: the place lies in the second, so no stream runs into the next.
        self._random = np.random.Generator(np.random.Philox(key=seed + (use << 64), counter=place << 64))

    def accepts(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def draws(self, law: Probabilities) -> int:
        """A token of `law`, `[V]` float64."""
        cumulative = law.cumsum()
        token = int(np.searchsorted(cumulative, cumulative[-1] * self._random.random(), side="right"))
        return min(token, int(law.nonzero()[0][-1]))
