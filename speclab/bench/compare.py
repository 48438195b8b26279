"""Every way on every prompt, in alternating order, and what it comes to: medians and ratios of one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean, median

from pydantic import BaseModel, ConfigDict

from speclab.bench.ways import Run, Way


class Row(BaseModel):
    """One way on one kind of prompt. Rates are tokens per second of the whole call, prefill included."""

    model_config = ConfigDict(frozen=True)

    way: str
    kind: str
    prompts: int
    tokens_per_second: float
    """Median over prompts of the median over repeats."""
    speedup: float
    """Median over prompts of this way's rate / the first way's, measured in turn in the same run."""
    tokens_per_iteration: float | None
    acceptance_rate: float | None
    host_ms: float | None
    """Milliseconds an iteration spends outside the models, median."""
    equal: int
    """Prompts whose tokens equal the first way's."""


Runs = dict[str, list[Run]]


def measure(
    ways: Sequence[Way],
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    repeats: int,
    done: Callable[[], None] = lambda: None,
) -> Runs:
    """Runs of every way on one prompt; a warm-up round first, then `repeats` rounds, the order turned each round."""
    runs: Runs = {way.name: [] for way in ways}
    for round_ in range(repeats + 1):
        turn = round_ % len(ways)
        for way in (*ways[turn:], *ways[:turn]):
            run = way.run(prompt_ids, max_new_tokens)
            if round_:
                runs[way.name].append(run)
            done()
    return runs


def rows(kind: str, measured: Sequence[Runs]) -> list[Row]:
    """One row a way, over all prompts of a kind; the first way is the baseline."""
    first = next(iter(measured[0]))
    return [_row(kind, way, first, measured) for way in measured[0]]


def _row(kind: str, way: str, first: str, measured: Sequence[Runs]) -> Row:
    mine, base = [runs[way] for runs in measured], [runs[first] for runs in measured]
    metrics = [run[0].metrics for run in mine]
    ours = [figures for figures in metrics if figures is not None]
    host = [
        1000 * (run.seconds - run.model_seconds) / run.metrics.iterations
        for runs in mine
        for run in runs
        if run.metrics is not None and run.metrics.iterations
    ]
    return Row(
        way=way,
        kind=kind,
        prompts=len(measured),
        tokens_per_second=median(map(_rate, mine)),
        speedup=median(_rate(own) / _rate(plain) for own, plain in zip(mine, base, strict=True)),
        tokens_per_iteration=mean(figures.tokens_per_iteration for figures in ours) if ours else None,
        acceptance_rate=mean(figures.acceptance_rate for figures in ours) if ours else None,
        host_ms=median(host) if host else None,
        equal=sum(own[0].token_ids == plain[0].token_ids for own, plain in zip(mine, base, strict=True)),
    )


def _rate(runs: Sequence[Run]) -> float:
    return median(len(run.token_ids) / run.seconds for run in runs)
