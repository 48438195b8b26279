"""What a sweep found: its rows, the best of them beside the default, and in words how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speclab.bench.sweeping.decode import TIMED
from speclab.bench.sweeping.plan import Plan
from speclab.bench.sweeping.rows import Row, read_rows
from speclab.drafters.base import Strategy
from speclab.errors import MeasurementError


@dataclass(frozen=True, slots=True)
class Sweep:
    """The trials of a sweep, by number; 0 is the strategy with its defaults."""

    plan: Plan
    kind: type[Strategy]
    rows: tuple[Row, ...]
    folder: Path

    @property
    def default(self) -> Row:
        """Trial 0."""
        return self.rows[0]

    @property
    def measured(self) -> tuple[Row, ...]:
        """Trials that have a figure."""
        return tuple(row for row in self.rows if row.objective is not None)

    @property
    def best(self) -> Row:
        """The best trial; of equal ones the earliest, so a setting that only equals the default is not preferred.

        Raises:
            MeasurementError: no trial has a figure.
        """
        if not self.measured:
            raise MeasurementError(
                f"None of the {len(self.rows)} trials gave {self.plan.objective}; the first says: {self.rows[0].failed}"
            )
        sign = 1 if self.plan.direction == "maximize" else -1
        return max(self.measured, key=lambda row: sign * _number(row))

    @property
    def strategy(self) -> Strategy:
        """The best strategy, to decode with."""
        own = {name: value for name, value in self.best.settings.items() if self.best.trial}
        return self.kind(**own)

    def table(self) -> Any:
        """All trials as a `pyarrow.Table`, as they lie in `trials.parquet`."""
        return read_rows(self.folder)

    def notes(self) -> list[str]:
        """What to know before the best setting is believed, in sentences."""
        found = [_chosen_on(self.best), *self._of_the_objective()]
        texts = {row.text for row in self.measured}
        if len(texts) > 1:
            found.append(
                f"The trials decoded {len(texts)} different texts: with sampling, lossy acceptance or half precision "
                "that may be; in float32 and greedily it may not."
            )
        lost = [row for row in self.rows if row.failed is not None]
        if lost:
            found.append(
                f"{len(lost)} of {len(self.rows)} trials have no figure; trial {lost[0].trial}: {lost[0].failed}"
            )
        return found

    def _of_the_objective(self) -> list[str]:
        objective = self.plan.objective
        if objective not in TIMED:
            counted = (
                f"{objective} is counted, not timed: the same on any machine, and blind to what a pass costs, so "
                "larger trees tend to win; --objective throughput weighs that too."
            )
            return [counted] if "tokens_per_iteration" in self.best.figures else []
        spreads = [row.figures[name] for row in self.measured if (name := f"{objective}_spread") in row.figures]
        noise = (
            f"(largest − least) / median of its repeats was {max(spreads):.1%} at most: a smaller difference is noise"
            if spreads
            else "it was measured once a trial, so its noise is not known: --repeats 3 shows it"
        )
        at_once = len({row.worker for row in self.measured})
        shared = f"; {at_once} workers took part, and those on one machine slow each other" if at_once > 1 else ""
        drift = "trials ran one after another, not in turn: confirm the best with speclab bench"
        return [f"{objective} is timed: {noise}{shared}; {drift}."]


def _chosen_on(row: Row) -> str:
    return (
        f"Chosen on {row.prompts} prompt{'s' * (row.prompts > 1)}, the best looks better there than it is: try others."
        if row.prompts
        else "The best of many looks a little better than it is: measure it once more."
    )


def _number(row: Row) -> float:
    assert row.objective is not None
    return row.objective
