"""What results come to: medians, quartiles, and ratios of one run. Pure functions of stored results.

A ratio compares two calls on the same prompt in the same round; its median over the rounds stands for the prompt, and
the spread is that of the prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, quantiles
from typing import NamedTuple

from speclab.bench.result import Group, Result

ALL = "all"
"""The kind that stands for every prompt."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of `count` values."""

    median: float
    low: float
    high: float
    count: int


class Cell(NamedTuple):
    """What a summary is of: a contender at its swept values."""

    contender: str
    x: float | None
    x2: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """One contender at one swept value over the prompts of one kind.

    Times and rates are a `Spread` over prompts of the median over rounds. Counts are means over prompts: they are the
    same in every round. None where the contender has no such figure, or no prompt is left.
    """

    cell: Cell
    group: Group
    kind: str
    prompts: int
    """With a text."""
    throughput: Spread | None
    decode_throughput: Spread | None
    speedup: Spread | None
    """Throughput / the baseline's, of the whole call."""
    decode_speedup: Spread | None
    ttft: Spread | None
    tpot: Spread | None
    host_ms: Spread | None
    """Milliseconds an iteration spends outside forward passes."""
    target_share: Spread | None
    draft_share: Spread | None
    """Of the whole call, 0…1."""
    peak_memory_bytes: Spread | None
    new_tokens: float | None
    iterations: float | None
    target_calls: float | None
    draft_calls: float | None
    tokens_per_iteration: float | None
    acceptance_rate: float | None
    path_acceptance: float | None
    paper_acceptance: float | None
    path_length: float | None
    equal: int
    """Prompts whose text is the target's own in every round, ties counted in."""
    compared: int
    looping: int
    failed: tuple[str, ...]
    """Each reason once."""


def spread(values: Sequence[float]) -> Spread | None:
    """Median and quartiles (inclusive: of the values as the whole population); None of no values."""
    if not values:
        return None
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Spread(median(values), low, high, len(values))


def summaries(results: Iterable[Result], baseline: str | None, *, looping: bool = True) -> list[Summary]:
    """One for each contender, swept value and kind, in the order they came; then each over every kind (`ALL`).

    Args:
        results: of one run.
        baseline: the contender that speedups are ratios to, at the same swept values, or at none where it has only one.
        looping: also on prompts on which a text loops, as small models' do; else see `without_looping`.
    """
    kept = list(results) if looping else without_looping(results)
    kinds = list(dict.fromkeys(result.kind for result in kept))
    cells = list(dict.fromkeys(_cell(result) for result in kept))
    rounds = {_round(result): result for result in kept if result.contender == baseline and result.ok}
    groups = [(kind, [result for result in kept if result.kind == kind]) for kind in kinds]
    if len(kinds) > 1:
        groups.append((ALL, kept))
    return [
        _summary(cell, kind, own, rounds)
        for kind, some in groups
        for cell in cells
        if (own := [result for result in some if _cell(result) == cell])
    ]


def without_looping(results: Iterable[Result]) -> list[Result]:
    """Results on those prompts only on which no contender's text loops; the texts are the same but for faults."""
    every = list(results)
    loops = {_prompt(result) for result in every if result.looping}
    return [result for result in every if _prompt(result) not in loops]


def over_kinds(found: Iterable[Summary], figure: Callable[[Summary], float | None]) -> dict[Cell, float]:
    """A figure of each contender as the mean over kinds, so that a kind of many prompts weighs no more."""
    values: dict[Cell, list[float]] = {}
    for one in found:
        value = figure(one)
        if one.kind != ALL and value is not None:
            values.setdefault(one.cell, []).append(value)
    return {cell: mean(own) for cell, own in values.items()}


_Round = tuple[str, str, int, float | None, float | None]


def _cell(result: Result) -> Cell:
    return Cell(result.contender, result.x, result.x2)


def _prompt(result: Result) -> tuple[str, str]:
    return (result.workload, result.prompt_id)


def _round(result: Result) -> _Round:
    return (result.workload, result.prompt_id, result.repeat, result.x, result.x2)


def _base(result: Result, rounds: Mapping[_Round, Result]) -> Result | None:
    workload, prompt, repeat, x, x2 = _round(result)
    places = ((x, x2), (x, None), (None, None))
    return next((rounds[key] for place in places if (key := (workload, prompt, repeat, *place)) in rounds), None)


def _over_prompts(results: Sequence[Result], figure: Callable[[Result], float | None]) -> list[float]:
    """For each prompt the median over its rounds, of those that have the figure."""
    prompts: dict[tuple[str, str], list[float]] = {}
    for result in results:
        value = figure(result)
        if value is not None:
            prompts.setdefault(_prompt(result), []).append(value)
    return [median(values) for values in prompts.values()]


def _mean(results: Sequence[Result], figure: Callable[[Result], float | None]) -> float | None:
    values = _over_prompts(results, figure)
    return mean(values) if values else None


def _ratio(
    rounds: Mapping[_Round, Result], figure: Callable[[Result], float | None]
) -> Callable[[Result], float | None]:
    def ratio(result: Result) -> float | None:
        base = _base(result, rounds)
        own, other = figure(result), figure(base) if base else None
        return own / other if own is not None and other else None

    return ratio


def _summary(cell: Cell, kind: str, results: Sequence[Result], rounds: Mapping[_Round, Result]) -> Summary:
    done = [result for result in results if result.ok]

    def times(figure: Callable[[Result], float | None]) -> Spread | None:
        return spread(_over_prompts(done, figure))

    def count(name: str) -> float | None:
        return _mean(done, lambda result: getattr(result, name))

    compared = {_prompt(result) for result in done if result.equal is not None}
    differing = {_prompt(result) for result in done if result.equal is False and not result.tie}
    return Summary(
        cell=cell,
        group=results[0].group,
        kind=kind,
        prompts=len({_prompt(result) for result in done}),
        throughput=times(lambda result: result.throughput),
        decode_throughput=times(lambda result: result.decode_throughput),
        speedup=times(_ratio(rounds, lambda result: result.throughput)),
        decode_speedup=times(_ratio(rounds, lambda result: result.decode_throughput)),
        ttft=times(lambda result: result.ttft),
        tpot=times(lambda result: result.tpot),
        host_ms=times(lambda result: 1000 * result.host_seconds / result.iterations if result.iterations else None),
        target_share=times(lambda result: result.target_seconds / result.seconds),
        draft_share=times(lambda result: result.draft_seconds / result.seconds),
        peak_memory_bytes=times(lambda result: result.peak_memory_bytes),
        **{name: count(name) for name in _COUNTS},
        equal=len(compared - differing),
        compared=len(compared),
        looping=len({_prompt(result) for result in done if result.looping}),
        failed=tuple(dict.fromkeys(result.failed for result in results if result.failed)),
    )


_COUNTS = (
    "new_tokens", "iterations", "target_calls", "draft_calls", "tokens_per_iteration", "acceptance_rate",
    "path_acceptance", "paper_acceptance", "path_length",
)  # fmt: skip
