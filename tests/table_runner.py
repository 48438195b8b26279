"""A runner without a model: next-token laws come from a function of the visible tokens.

It keeps slots of (token, position) and sees only what the mask shows it, so a wrong mask, position or kept
slot raises or changes the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import torch

Law = Callable[[tuple[int, ...]], Sequence[float]]


def random_law(vocab_size: int, seed: int, low: float = 0.3, high: float = 5.0) -> Law:
    """A law without ties, the same for the same path, from nearly flat to nearly certain."""
    seen: dict[tuple[int, ...], np.ndarray] = {}

    def law(path: tuple[int, ...]) -> np.ndarray:
        if path not in seen:
            noise = random.Random(repr((seed, path)))
            scale = noise.uniform(low, high)
            weights = np.exp([scale * noise.gauss(0, 1) for _ in range(vocab_size)])
            seen[path] = weights / weights.sum()
        return seen[path]

    return law


def mixed_law(one: Law, other: Law, share: float) -> Law:
    """`share` of the second law in the first: a draft that agrees with its target most of the time."""
    return lambda path: (1 - share) * np.asarray(one(path)) + share * np.asarray(other(path))


class TableRunner:
    """The contract of `speclab.models.runner.Runner`, over a law instead of a model."""

    family = "table"
    device = torch.device("cpu")
    dtype = torch.float32
    slot_bytes = 16

    def __init__(self, law: Law, vocab_size: int, context: int | None = None, name: str = "table"):
        self.law, self.vocab_size, self.context, self.name = law, vocab_size, context, name
        self.model = None
        self.slots: list[tuple[int, int]] = []
        self.calls = 0
        self.rows = 0
        self.fails_at: int | None = None
        """Raise KeyboardInterrupt in this call, counted from 1."""
        self._given: tuple[np.ndarray, list[int]] = (np.ones((0, 0), bool), [])

    @property
    def length(self) -> int:
        return len(self.slots)

    @property
    def capacity(self) -> int:
        return -(-len(self.slots) // 64) * 64

    @property
    def tokens(self) -> list[int]:
        """The text in the cache; every slot must hold its own position."""
        assert [position for _, position in self.slots] == list(range(len(self.slots)))
        return [token for token, _ in self.slots]

    def extend(self, tokens: Sequence[int]) -> torch.Tensor:
        start, count = len(self.slots), len(tokens)
        visible = np.tril(np.ones((count, count), bool))
        return self.forward(tokens, range(start, start + count), visible)[-1]

    def forward(self, tokens: Sequence[int], positions: Sequence[int], visible: np.ndarray) -> torch.Tensor:
        tokens, positions = [int(t) for t in tokens], [int(p) for p in positions]
        self._interrupt()
        visible = np.asarray(visible)
        length, count, columns = len(self.slots), len(tokens), visible.shape[1]
        assert visible.dtype == np.bool_
        assert count == len(positions) == visible.shape[0] > 0
        assert count <= columns <= length + count, "the mask's columns end at the last new row"
        assert all(0 <= token < self.vocab_size for token in tokens)
        slots = self.slots + list(zip(tokens, positions, strict=True))
        whole = np.ones((count, length + count), bool)
        whole[:, length + count - columns :] = visible
        rows = [self._row(slots, whole[row], length + row) for row in range(count)]
        self.slots = slots
        self._given = (whole[:, length:].copy(), whole[:, :length].sum(axis=1).tolist())
        self.calls += 1
        self.rows += count
        return torch.tensor(np.log(np.array(rows)), dtype=torch.float32)

    def _interrupt(self) -> None:
        if self.fails_at is not None and self.calls + 1 >= self.fails_at:
            self.fails_at = None
            raise KeyboardInterrupt

    def _row(self, slots: list[tuple[int, int]], visible: np.ndarray, own: int) -> Sequence[float]:
        assert visible[own], "a row sees itself"
        assert not visible[own + 1 :].any(), "no row sees a later one"
        seen = sorted((slots[slot][1], slots[slot][0]) for slot in np.flatnonzero(visible).tolist())
        assert [position for position, _ in seen] == list(range(len(seen))), "a path has one token a position"
        assert seen[-1] == (slots[own][1], slots[own][0]), "a row is the last of its path"
        return self.law(tuple(token for _, token in seen))

    def keep(self, prefix: int, slots: Sequence[int]) -> None:
        slots = [int(slot) for slot in slots]
        assert 0 <= prefix <= len(self.slots)
        assert all(prefix <= slot < len(self.slots) for slot in slots)
        assert slots == sorted(set(slots)), "slots to keep are increasing"
        self.slots = self.slots[:prefix] + [self.slots[slot] for slot in slots]
        assert self.tokens is not None

    def crop(self, length: int) -> None:
        assert 0 <= length <= len(self.slots)
        self.slots = self.slots[:length]

    def fork(self, length: int = 0) -> TableRunner:
        other = TableRunner(self.law, self.vocab_size, self.context, self.name)
        other.slots = self.slots[:length]
        return other

    def mask_given(self) -> tuple[np.ndarray, list[int]]:
        return self._given
