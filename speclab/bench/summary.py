"""What results come to: medians, quartiles, and ratios of one run. Pure functions of stored results.

A ratio compares two calls on the same prompt in the same round; its median over the rounds stands for the prompt, and
the spread is that of the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, quantiles

from speclab.bench.result import Group, Result, RunInfo

ALL = "all"
"""The kind that stands for every prompt."""
Figure = Callable[[Result], float | None] | str
"""A figure of a result, or the name of one."""
_Place = tuple[str, str, int, float | None, float | None]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of `count` values."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread | None:
    """Median and quartiles (inclusive: of the values as the whole population); None of no values."""
    if not values:
        return None
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Spread(median(values), low, high, len(values))


@dataclass(frozen=True)
class Summary:
    """One method at one swept value over the prompts of one kind: its results, and their figures when asked for.

    Args:
        method, x, x2: what was measured.
        kind: of the prompts, or `ALL`.
        every: its results, failures included.
        baseline: the baseline's results by prompt, round and swept values.
    """

    method: str
    x: float | None
    x2: float | None
    kind: str
    every: tuple[Result, ...]
    baseline: Mapping[_Place, Result]

    @property
    def cell(self) -> tuple[str, float | None, float | None]:
        """Method and swept values."""
        return (self.method, self.x, self.x2)

    @property
    def group(self) -> Group:
        """Whose code decodes."""
        return self.every[0].group

    @property
    def results(self) -> tuple[Result, ...]:
        """Those with a text."""
        return tuple(result for result in self.every if result.ok)

    @property
    def failures(self) -> tuple[Result, ...]:
        """Those without."""
        return tuple(result for result in self.every if not result.ok)

    @property
    def prompts(self) -> int:
        """With a text."""
        return len({result.prompt for result in self.results})

    def by_prompt(self, figure: Figure) -> dict[tuple[str, str], float]:
        """The median over rounds, for each prompt on which the figure is known."""
        found: dict[tuple[str, str], list[float]] = {}
        for result in self.results:
            value = getattr(result, figure) if isinstance(figure, str) else figure(result)
            if value is not None:
                found.setdefault(result.prompt, []).append(value)
        return {place: median(values) for place, values in found.items()}

    def spread(self, figure: Figure) -> Spread | None:
        """Median and quartiles over prompts; None where the figure is known of none."""
        return spread(list(self.by_prompt(figure).values()))

    def mean(self, figure: Figure) -> float | None:
        """The mean over prompts, for counts: they are the same in every round. None where it is known of none."""
        values = self.by_prompt(figure).values()
        return mean(values) if values else None

    @property
    def speedup(self) -> Spread | None:
        """Throughput / the baseline's, of the whole call; the baseline at the same swept values, or its only one."""

        def ratio(result: Result) -> float | None:
            where = (*result.prompt, result.repeat)
            places = ((result.x, result.x2), (result.x, None), (None, None))
            base = next((self.baseline[key] for at in places if (key := (*where, *at)) in self.baseline), None)
            return result.throughput / base.throughput if base and base.throughput and result.throughput else None

        return self.spread(ratio)

    @property
    def compared(self) -> int:
        """Prompts whose text was compared with the target's own."""
        return len({result.prompt for result in self.results if result.equal is not None})

    @property
    def equal(self) -> int:
        """Prompts whose text is the target's own in every round, ties counted in."""
        return self.compared - len({r.prompt for r in self.results if r.equal is False and not r.tie})

    @property
    def ties(self) -> int:
        """Prompts whose text is the target's own only up to a tie of rounding."""
        return len({result.prompt for result in self.results if result.tie and not result.equal})


def summaries(results: Iterable[Result], run: RunInfo, *, looping: bool = True) -> list[Summary]:
    """One for each kind, method and swept value, in the order of the run; then each over every kind (`ALL`).

    Args:
        results: of one run.
        run: names the baseline and the order of methods.
        looping: also on prompts on which a text loops, as small models' do; else see `without_looping`.
    """
    kept = list(results) if looping else without_looping(results)
    order = {name: place for place, name in enumerate(run.methods)}
    groups: dict[tuple[str, str, float | None, float | None], list[Result]] = {}
    names = kinds(kept)
    for result in kept:
        for kind in dict.fromkeys((result.kind, ALL)) if len(names) > 1 else (result.kind,):
            groups.setdefault((kind, result.method, result.x, result.x2), []).append(result)
    baseline = {
        (*result.prompt, result.repeat, result.x, result.x2): result
        for result in kept
        if result.method == run.baseline and result.ok
    }
    found = [Summary(method, x, x2, kind, tuple(own), baseline) for (kind, method, x, x2), own in groups.items()]
    places = [*names, ALL]

    def place(one: Summary) -> tuple[object, ...]:
        swept = [(x is not None, x or 0.0) for x in (one.x, one.x2)]
        return (places.index(one.kind), order.get(one.method, len(order)), *swept)

    return sorted(found, key=place)


def over_all(found: Sequence[Summary]) -> list[Summary]:
    """Those over every kind of prompt."""
    several = any(one.kind == ALL for one in found)
    return [one for one in found if one.kind == ALL or not several]


def kinds(results: Iterable[Result]) -> list[str]:
    """Kinds of prompts, in the order they came."""
    return list(dict.fromkeys(result.kind for result in results))


def without_looping(results: Iterable[Result]) -> list[Result]:
    """Results on those prompts only on which no method's text loops."""
    every = list(results)
    loops = {result.prompt for result in every if result.looping}
    return [result for result in every if result.prompt not in loops]


def verify_costs(results: Iterable[Result]) -> list[tuple[int, float, int]]:
    """What a verification pass of so many rows took: (rows, seconds, passes).

    The median of the calls' medians, each weighing as many passes as it had.
    """
    found: dict[int, list[tuple[float, int]]] = {}
    for result in results:
        for cost in result.verify_cost:
            found.setdefault(cost.nodes, []).append((cost.seconds, cost.passes))
    return [(rows, _weighted_median(own), sum(passes for _, passes in own)) for rows, own in sorted(found.items())]


def _weighted_median(values: Sequence[tuple[float, int]]) -> float:
    half, seen = sum(weight for _, weight in values) / 2, 0
    for value, weight in sorted(values):
        seen += weight
        if seen >= half:
            return value
    return 0.0
