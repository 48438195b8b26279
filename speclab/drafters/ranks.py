"""How often the child of each rank is accepted, once its parent is: Sequoia's positional acceptance, measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from speclab.drafters.base import Outcome
from speclab.errors import SettingsError
from speclab.trace.records import Value

PRIOR, PRIOR_TRIES = 0.4, 8.0
"""Before anything was tried: the first child at this rate, the others in inverse proportion to the square of their
rank, as if after so many tries; ours."""
STEP = 0.05
"""Measured rates are rounded to this, so that the shape of the tree changes only when they do."""


class RankRates(NamedTuple):
    """`accepted` and `tried` children by rank."""

    accepted: tuple[float, ...]
    tried: tuple[float, ...]

    @classmethod
    def prior(cls, ranks: int) -> Self:
        """Rates before anything was tried."""
        return cls(tuple(PRIOR_TRIES * PRIOR / (rank + 1) ** 2 for rank in range(ranks)), (PRIOR_TRIES,) * ranks)

    @classmethod
    def recorded(cls, values: Mapping[str, Value], ranks: int) -> Self:
        """The rates of a record, by the names of `describe`; ranks that it did not try stand at their prior."""
        rates = {**cls.prior(ranks).describe(), **values}
        return cls(tuple(float(rates[f"rank_{rank}"] or 0) for rank in range(1, ranks + 1)), (1.0,) * ranks)

    def describe(self) -> dict[str, Value]:
        """The rates by name, for records."""
        rates = zip(self.accepted, self.tried, strict=True)
        return {f"rank_{rank}": accepted / tried for rank, (accepted, tried) in enumerate(rates, start=1)}

    def after(self, outcome: Outcome) -> RankRates:
        """With the children of every node on the accepted path counted; at most one of siblings is right."""
        accepted, tried = list(self.accepted), list(self.tried)
        path = (0, *outcome.accepted)
        for node, following in zip(path, (*outcome.accepted, -1), strict=True):
            for rank, child in enumerate(outcome.tree.children[node]):
                tried[rank] += 1
                accepted[rank] += child == following
        return RankRates(tuple(accepted), tuple(tried))

    @property
    def rounded(self) -> tuple[float, ...]:
        """The rates, in steps, the smallest at half a step."""
        rates = (a / t for a, t in zip(self.accepted, self.tried, strict=True))
        return tuple(max(round(rate / STEP) * STEP, STEP / 2) for rate in rates)


def parsed(text: str) -> tuple[float, ...]:
    """`0.6, 0.2, 0.1` as rates.

    Raises:
        SettingsError: it is no list of rates between 0 and 1.
    """
    try:
        rates = tuple(float(part) for part in text.replace(",", " ").split())
    except ValueError:
        rates = (-1.0,)
    if not all(0 <= rate <= 1 for rate in rates):
        raise SettingsError(f"rank_acceptance is {text!r}: give rates between 0 and 1, such as 0.6, 0.2, 0.1.")
    return rates
