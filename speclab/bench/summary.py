"""What results come to: medians, quartiles and ratios of one run, and how they are written. Pure functions of results.

A ratio compares two calls on the same prompt in the same round; its median over the rounds stands for the prompt, and
the spread is that of the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, quantiles
from typing import NamedTuple

from speclab.bench.result import Result, RunInfo

ALL, NONE = "all", "–"
"""The kind that stands for every prompt; a cell without a value."""
Figure = Callable[[Result], float | None] | str
"""A figure of a result, or the name of one."""
_Round = tuple[str, str, int]


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
    """One method over the prompts of one kind: its results, and their figures when asked for.

    Args:
        kind: of the prompts, or `ALL`.
        every: its results, failures included.
        baseline: the baseline's results by prompt and round.
    """

    method: str
    kind: str
    every: tuple[Result, ...]
    baseline: Mapping[_Round, Result]

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

    def spread(self, figure: Figure) -> Spread | None:
        """Median and quartiles over prompts; None where the figure is known of none."""
        return spread(list(self.by_prompt(figure).values()))

    def mean(self, figure: Figure) -> float | None:
        """The mean over prompts, for counts: they are the same in every round. None where it is known of none."""
        values = self.by_prompt(figure).values()
        return mean(values) if values else None

    @property
    def speedup(self) -> Spread | None:
        """Throughput / the baseline's of the same round, of the whole call."""

        def ratio(result: Result) -> float | None:
            base = self.baseline.get((*result.prompt, result.repeat))
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
    """One for each kind and method, in the order of the run; of several kinds, then each over `ALL`.

    Args:
        run: names the baseline and the order of methods.
    """
    kept, order = list(results), {name: place for place, name in enumerate(run.methods)}
    names = kinds(kept)
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in kept:
        for kind in (result.kind, ALL) if len(names) > 1 else (result.kind,):
            groups.setdefault((kind, result.method), []).append(result)
    baseline = {
        (*result.prompt, result.repeat): result for result in kept if result.method == run.baseline and result.ok
    }
    found = [Summary(method, kind, tuple(own), baseline) for (kind, method), own in groups.items()]
    places = [*names, ALL]
    return sorted(found, key=lambda one: (places.index(one.kind), order.get(one.method, len(order))))


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

    `groups`: headings over so many columns each. `text`: how many columns, from the left, hold words. `best`: the row
    to be marked.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    groups: Sequence[tuple[str, int]] = ()
    text: int = 1
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
