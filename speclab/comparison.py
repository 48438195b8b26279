"""A run beside its baselines on the same text. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speclab.decomposition import synergy


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tokens per iteration over the same first `tokens` of a text: of a run, and by name of each baseline."""

    tokens: int
    own: float
    baselines: Mapping[str, float]

    @property
    def best(self) -> str:
        """The baseline with the most tokens per iteration."""
        return max(self.baselines, key=self.baselines.__getitem__)

    @property
    def synergy(self) -> float:
        """The run's tokens per iteration over those of the best baseline (GOOSE, section 5.4)."""
        return synergy(self.own, list(self.baselines.values()))
