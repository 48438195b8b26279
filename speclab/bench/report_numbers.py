"""Rows of a report: what `summary` says of each contender, and the results behind it for all else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from speclab.bench.result import Result, RunInfo
from speclab.bench.summary import ALL, Cell, Spread, Summary, over_kinds, spread, summaries, without_looping

Place = tuple[str, str]
"""Workload and prompt."""
Figure = Callable[[Result], float | None]


@dataclass(frozen=True, slots=True)
class Row:
    """One contender at one swept value: over all kinds of prompts, over each, and the results themselves."""

    summary: Summary
    kinds: dict[str, Summary]
    results: tuple[Result, ...]
    failures: tuple[Result, ...]
    kinds_speedup: float | None
    """Mean over kinds of the median speedup, so that a kind of many prompts weighs no more."""

    @property
    def cell(self) -> Cell:
        """Contender and swept values."""
        return self.summary.cell

    @property
    def name(self) -> str:
        """The contender."""
        return self.cell.contender

    @property
    def x(self) -> float | None:
        """The swept value."""
        return self.cell.x

    @property
    def x2(self) -> float | None:
        """The second one."""
        return self.cell.x2

    @property
    def speedup(self) -> Spread | None:
        """Over the baseline, of the whole call."""
        return self.summary.speedup

    @property
    def peer(self) -> bool:
        """Whether transformers decodes, not this project."""
        return self.summary.group != "ours"

    def by_prompt(self, figure: Figure) -> dict[Place, float]:
        """The median over rounds, for each prompt on which the figure is known."""
        found: dict[Place, list[float]] = {}
        for result in self.results:
            value = figure(result)
            if value is not None:
                found.setdefault((result.workload, result.prompt_id), []).append(value)
        return {place: median(values) for place, values in found.items()}

    def spread(self, figure: Figure) -> Spread | None:
        """Median and quartiles over prompts; None where the figure is known of none."""
        return spread(list(self.by_prompt(figure).values()))

    def mean(self, figure: Figure) -> float | None:
        """The mean over prompts; None where the figure is known of none."""
        values = self.by_prompt(figure).values()
        return mean(values) if values else None


def throughput(result: Result) -> float | None:
    """Tokens a second of the whole call."""
    return result.throughput or None


def rows(results: Sequence[Result], run: RunInfo, *, looping: bool = True) -> list[Row]:
    """A row for each contender at each swept value, in the order of the run; `looping` as in `summaries`."""
    kept = list(results) if looping else without_looping(results)
    found = summaries(kept, run.baseline)
    weighed = over_kinds(found, lambda one: one.speedup.median if one.speedup else None)
    order = {name: place for place, name in enumerate(run.contenders)}
    split: dict[Cell, dict[str, Summary]] = {}
    for one in found:
        split.setdefault(one.cell, {})[one.kind] = one
    cells = sorted(split, key=lambda cell: (order.get(cell.contender, len(order)), *map(_ordered, cell[1:])))
    return [_row(cell, split[cell], kept, weighed.get(cell)) for cell in cells]


def _row(cell: Cell, kinds: dict[str, Summary], results: Iterable[Result], weighed: float | None) -> Row:
    own = [result for result in results if Cell(result.contender, result.x, result.x2) == cell]
    whole = kinds.pop(ALL, None) or next(iter(kinds.values()))
    done, failed = (tuple(result for result in own if result.ok is ok) for ok in (True, False))
    return Row(whole, kinds, done, failed, weighed)


def kinds(results: Iterable[Result]) -> list[str]:
    """Kinds of prompts, in the order they came."""
    return list(dict.fromkeys(result.kind for result in results))


def costs(results: Iterable[Result]) -> list[tuple[int, float, int]]:
    """What a verification pass of so many rows took: (rows, seconds, passes).

    The median of the calls' medians, each weighing as many passes as it had.
    """
    found: dict[int, list[tuple[float, int]]] = {}
    for result in results:
        for cost in result.verify_cost:
            found.setdefault(cost.nodes, []).append((cost.seconds, cost.passes))
    return [(nodes, _weighted(found[nodes]), sum(passes for _, passes in found[nodes])) for nodes in sorted(found)]


def _weighted(values: Sequence[tuple[float, int]]) -> float:
    half, seen = sum(weight for _, weight in values) / 2, 0
    for value, weight in sorted(values):
        seen += weight
        if seen >= half:
            return value
    return 0.0


def prompts(results: Iterable[Result]) -> set[Place]:
    """Every prompt with a text."""
    return {(result.workload, result.prompt_id) for result in results if result.ok}


def _ordered(x: float | None) -> tuple[bool, float]:
    return (x is not None, x or 0.0)
