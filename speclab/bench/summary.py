"""What results come to: medians, quartiles and ratios of one run, and how they are written. Pure functions of results.

A ratio compares two calls on the same prompt in the same round; its median over the rounds stands for the prompt, and
the spread is that of the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import mean, median, median_low, quantiles
from typing import NamedTuple

from speclab.analysis.attribution import SourceRate
from speclab.bench.result import Result, RunInfo

ALL, NONE = "all", "–"
"""The kind that stands for every prompt; a cell without a value."""
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
            value = figure(result) if callable(figure) else getattr(result, figure)
            if value is not None:
                found.setdefault(result.prompt, []).append(value)
        return {place: median(values) for place, values in found.items()}

    @property
    def foreign(self) -> bool:
        """Whether transformers' own code decodes."""
        return self.every[0].group == "transformers"

    @property
    def at(self) -> tuple[str, float | None, float | None]:
        """Method and swept values."""
        return (self.method, self.x, self.x2)

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


def summaries(results: Iterable[Result], run: RunInfo) -> list[Summary]:
    """One for each kind, method and swept value, in the order of the run; of several kinds, then each over `ALL`.

    Args:
        run: names the baseline and the order of methods.
    """
    kept, order = list(results), {name: place for place, name in enumerate(run.methods)}
    names = kinds(kept)
    groups: dict[tuple[str, str, float | None, float | None], list[Result]] = {}
    for result in kept:
        for kind in (result.kind, ALL) if len(names) > 1 else (result.kind,):
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
    return [one for one in found if one.kind == found[-1].kind]


def kinds(results: Iterable[Result]) -> list[str]:
    """Kinds of prompts, in the order they came."""
    return list(dict.fromkeys(result.kind for result in results))


def without_looping(results: Sequence[Result]) -> list[Result]:
    """Results on those prompts only on which no method's text loops."""
    loops = {result.prompt for result in results if result.looping}
    return [result for result in results if result.prompt not in loops]


def verify_costs(results: Iterable[Result]) -> list[tuple[int, float, int]]:
    """What a verification pass of so many rows took: (rows, seconds, passes).

    The median of the calls' medians, each weighing as many passes as it had.
    """
    found: dict[int, list[tuple[float, int]]] = {}
    for result in results:
        for cost in result.verify_cost:
            found.setdefault(cost.nodes, []).append((cost.seconds, cost.passes))
    return [
        (rows, median_low([seconds for seconds, passes in own for _ in range(passes)]), sum(n for _, n in own))
        for rows, own in sorted(found.items())
    ]


def number(amount: float | None, digits: int = 3) -> str:
    """`412`, `3.42`, `0.0712`: so many digits that count; a dash for nothing."""
    if amount is None:
        return NONE
    if amount == 0 or abs(amount) >= 10 ** (digits - 1):
        return f"{amount:,.0f}"
    return f"{amount:#.{digits}g}".rstrip(".") if abs(amount) >= 1e-4 else f"{amount:.1e}"


def times(ratio: float | None) -> str:
    """`1.64×`."""
    return NONE if ratio is None else f"{ratio:.2f}×"


def percent(share: float | None) -> str:
    """`88.2%`."""
    return NONE if share is None else f"{100 * share:.1f}%"


Cell = str | tuple[str, str]
"""What stands in a cell of a table; or a median, and the quartiles behind it."""


class Table(NamedTuple):
    """Rows under a heading, the first cell of each being its name.

    `groups`: headings over so many columns each. `text`: how many columns, from the left, hold words. `more`: rows that
    are folded away. `best`: the row to be marked.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    groups: Sequence[tuple[str, int]] = ()
    text: int = 1
    more: Sequence[Sequence[Cell]] = ()
    best: str = ""


class Metric(NamedTuple):
    """A figure of a method: its heading, how it is written, and whether it is a time (then a median with quartiles)."""

    heading: str
    write: Callable[[float | None], str]
    figure: Figure
    timed: bool = False

    def cell(self, one: Summary | None, *, quartiles: bool = True) -> Cell:
        """What stands in a method's row."""
        if one is None:
            return NONE
        return self.spread(self.over_prompts(one), quartiles) if self.timed else self.write(one.mean(self.figure))

    def over_prompts(self, one: Summary) -> Spread | None:
        """Median and quartiles."""
        return one.speedup if self.figure == "speedup" else one.spread(self.figure)

    def spread(self, found: Spread | None, quartiles: bool = True) -> Cell:
        """A median, and the quartiles of more than one value behind it."""
        if found is None:
            return NONE
        median, low, high = map(self.write, (found.median, found.low, found.high))
        return (median, f"{low} to {high}") if quartiles and found.count > 1 else median


SPEED = Metric("tokens/s", number, "throughput", timed=True)
SPEEDUP = Metric("speedup", times, "speedup", timed=True)
TTFT = Metric("TTFT, ms", number, lambda one: one.ttft and 1000 * one.ttft, timed=True)
TPOT = Metric("TPOT, ms", number, lambda one: one.tpot and 1000 * one.tpot, timed=True)
TOKENS = Metric("tokens per iteration", number, "tokens_per_iteration")
PEAK = Metric("peak, MB", lambda mb: number(mb, 5), lambda one: (one.peak_memory_bytes or 0) / 1e6 or None)
CALLS = (
    Metric("target passes", number, lambda one: 100 * one.target_calls / one.new_tokens if one.new_tokens else None),
    Metric("draft passes", number, lambda one: 100 * one.draft_calls / one.new_tokens if one.new_tokens else None),
    Metric("rows per target pass", number, lambda one: one.nodes / one.iterations if one.nodes else None),
    Metric("ms per iteration", number, "iteration_ms"),
    Metric("accepted / drafted", percent, "acceptance_rate"),
    Metric("accepted / longest path", percent, "path_acceptance"),
    Metric("the paper's acceptance", percent, "paper_acceptance"),
    Metric("path before the bonus", number, "path_length"),
)
"""What passes bring and cost."""


def path_row(results: Sequence[Result]) -> Iterator[list[Cell]]:
    """Accepted tokens by the kind of path they lie on; nothing where nothing was copied."""
    every = [(own.spine_only, own.spine_continuation, own.branch_only) for one in results if (own := one.paths)]
    total = tuple(map(sum, zip(*every, strict=True)))
    if any(total[:2]):
        yield [f"{sum(total):,}", *(percent(tokens / sum(total)) for tokens in total)]


def source_rates(results: Iterable[Result]) -> dict[str, SourceRate]:
    """By source, over all results."""
    total: dict[str, SourceRate] = {}
    for one in results:
        for source, rate in (one.sources or {}).items():
            total[source] = total.get(source, SourceRate()) + rate
    return dict(sorted(total.items()))


def source_rows(results: Sequence[Result]) -> Iterator[list[Cell]]:
    """How often each source is right."""
    for source, rate in source_rates(results).items():
        shares = (rate.drafted and rate.share, rate.tried and rate.rate, rate.places and rate.first_rate)
        yield [source, f"{rate.drafted:,}", *(percent(share or None) for share in shares)]


def bound_rows(results: Sequence[Result]) -> Iterator[list[Cell]]:
    """What Proposition 1 expects and what was measured: means over iterations."""
    parts = [one.bound for one in results if one.bound and one.bound.iterations]
    if parts:
        every = sum(part.iterations for part in parts)
        isotropic, expected, by_rate, measured = (
            sum(part.iterations * float(getattr(part, field)) for part in parts) / every
            for field in ("isotropic", "expected", "by_rate", "measured")
        )
        held = (f"{number(bound)} {'holds' if bound <= measured else 'fails'}" for bound in (expected, by_rate))
        yield [number(isotropic), *held, number(measured)]


def head_rows(results: Sequence[Result]) -> Iterator[list[Cell]]:
    """What each of two routed parts promised and gave."""
    every = [one.heads for one in results if one.heads]
    chosen = sum(part.chosen for heads in every for part in heads)
    for parts in zip_longest(*every):
        own = [part for part in parts if part is not None]
        confidence, share, expected, followed = (
            mean(float(getattr(part, field)) for part in own)
            for field in ("confidence", "share", "expected", "followed")
        )
        taken = percent(sum(part.chosen for part in own) / chosen if chosen else None)
        yield [own[0].name, taken, percent(confidence), percent(share), number(expected), number(followed)]
