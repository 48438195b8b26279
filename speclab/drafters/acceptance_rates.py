"""Running acceptance rates of copied tokens and of transitions (GOOSE, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from speclab.drafters.base import Outcome

Statistic = Literal["tried", "spine"]
"""What accepted copies are divided by: those that the walk came to, or all of the spine."""


class Tries(NamedTuple):
    """Tokens that the walk came to, and those of them that were accepted."""

    tried: float
    accepted: float


@dataclass(frozen=True, slots=True)
class RunningRate:
    """Accepted over tried tokens, both as exponential running means: a long try counts for more than a short one."""

    accepted: float
    tried: float = 1.0

    @property
    def mean(self) -> float:
        """The rate, 0…1."""
        return self.accepted / self.tried

    def after(self, tries: Tries, smoothing: float) -> RunningRate:
        """The rate after one more iteration; without a try it stays as it is."""
        if not tries.tried:
            return self
        keep = 1 - smoothing
        return RunningRate(
            keep * self.accepted + smoothing * tries.accepted, keep * self.tried + smoothing * tries.tried
        )


def spine_tries(spine: int, on_spine: int, statistic: Statistic = "tried") -> Tries:
    """Of a spine of so many nodes, `on_spine` were accepted.

    "tried": the next one, if there is one, was tried in vain. "spine": the spine is one try, and its accepted share is
    what it gave; the mean is then a plain running mean of that share, as in the authors' code.
    """
    if statistic == "spine" and spine:
        return Tries(1.0, on_spine / spine)
    return Tries(min(on_spine + 1, spine), on_spine)


def branch_tries(outcome: Outcome, spine: frozenset[int]) -> Tries:
    """The transitions that the walk came to: where the spine did not go on, all siblings; one of them may be right."""
    tried = accepted = 0
    for node, following in zip((0, *outcome.accepted), (*outcome.accepted, -1), strict=True):
        if following not in spine:
            tried += sum(child not in spine for child in outcome.tree.children[node])
            accepted += following >= 0
    return Tries(tried, accepted)
