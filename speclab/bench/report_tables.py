"""The tables of a report: speed, passes, kinds of prompts, loops, memory, and what failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from speclab.bench.report_numbers import Row, kinds, prompts, rows
from speclab.bench.report_page import row, table, value
from speclab.bench.result import Result, RunInfo
from speclab.bench.summary import Spread, without_looping
from speclab.views.markup import Drawn, escape, tag

NONE = "–"
Write = Callable[[float | None], str]


def number(amount: float | None, digits: int = 3) -> str:
    """`412`, `3.42`, `0.0712`: so many digits that count, never an exponent; a dash for nothing."""
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


def _middle(seconds: Spread | None) -> str:
    """`7.48`: milliseconds, the unit stands in the heading."""
    return number(1000 * seconds.median if seconds else None)


def spread_cell(found: Spread | None, write: Write, *, edge: bool = False) -> Drawn:
    """The median, its quartiles small behind it."""
    if found is None:
        return value(NONE, edge=edge)
    behind = f"{write(found.low)} to {write(found.high)}" if found.count > 1 else ""
    return value(write(found.median), behind, edge=edge)


def name_of(run: RunInfo) -> Callable[[Row], str]:
    """The contender, and at which swept values, by the run's names of what was swept."""

    def name(each: Row) -> str:
        swept = ((run.x_name, each.x), (run.x2_name, each.x2))
        at = [f"{what or 'x'} {amount:g}" for what, amount in swept if amount is not None]
        return ", ".join((each.name, *at))

    return name


def best(found: Sequence[Row]) -> Row | None:
    """The contender of ours with the largest median speedup."""
    known = [(each.speedup.median, -place) for place, each in enumerate(found) if each.speedup and not each.peer]
    return found[-max(known)[1]] if known else None


def speed(found: Sequence[Row], run: RunInfo) -> str:
    """Throughput and speedup with their quartiles, tokens an iteration, latency, and equality."""
    name, top, several = name_of(run), best(found), any(len(each.kinds) > 1 for each in found)
    base = run.baseline or "plain"
    heads = ("", "tokens/s", f"over {base}", *(["mean over kinds"] if several else []), "tokens an iteration",
             "TTFT, ms", "TPOT, ms", "the target's own text", "prompts")  # fmt: skip
    lines = (
        unmeasured(name(each), each, len(heads) - 1) if not each.results else row(
            name(each),
            (
                spread_cell(each.summary.throughput, number), spread_cell(each.speedup, times),
                *([value(times(each.kinds_speedup))] if several else []),
                value(number(each.summary.tokens_per_iteration)), value(_middle(each.summary.ttft)),
                value(_middle(each.summary.tpot)), value(equality(each)), value(str(each.summary.prompts)),
            ),
            _kind(each, top),
        )
        for each in found
    )  # fmt: skip
    return table(
        heads, lines, "Medians over prompts with their quartiles; tokens an iteration is a mean. ◇ transformers"
    )


def unmeasured(name: str, each: Row, columns: int) -> str:
    """The row of a contender without a figure: why there is none."""
    why = "; ".join(each.summary.failed) or "no result"
    return row(name, (Drawn(tag("td", escape(why), colspan=columns)),), _kind(each))


def equality(each: Row) -> str:
    """`12 of 12`: prompts whose text is the target's own; how many only up to a tie of rounding."""
    if not each.summary.compared:
        return "not compared"
    ties = len(prompts(one for one in each.results if one.tie and not one.equal))
    said = f"{each.summary.equal} of {each.summary.compared}"
    return f"{said}, {ties} by a tie" if ties else said


def calls(found: Sequence[Row], run: RunInfo) -> str:
    """Passes for every 100 new tokens, and what became of drafted tokens."""
    name = name_of(run)
    heads = ("", "target passes", "draft passes", "rows a target pass", "accepted / drafted", "accepted / longest path",
             "the paper's acceptance", "path before the bonus")  # fmt: skip
    lines = (
        row(
            name(each),
            (
                value(number(each.mean(lambda one: _per_hundred(one.target_calls, one)))),
                value(number(each.mean(lambda one: _per_hundred(one.draft_calls, one)))),
                value(number(each.mean(_rows_a_pass))), value(percent(each.summary.acceptance_rate)),
                value(percent(each.summary.path_acceptance)), value(percent(each.summary.paper_acceptance)),
                value(number(each.summary.path_length)),
            ),
            _kind(each),
        )
        for each in found
    )  # fmt: skip
    return table(heads, lines, "Passes for 100 new tokens, the prefill included; means over prompts")


def by_kind(results: Sequence[Result], run: RunInfo) -> str:
    """Median speedup on each kind of prompt; nothing where there is one kind."""
    names = kinds(results)
    if len(names) < 2:
        return ""
    lines = []
    for each in rows(results, run):
        own = [each.kinds.get(kind) for kind in names]
        cells = [spread_cell(one.speedup if one else None, times) for one in own]
        lines.append(row(name_of(run)(each), cells, _kind(each)))
    return table(("", *names), lines, f"Speedup over {run.baseline or 'plain'} by kind of prompt")


def loops(results: Sequence[Result], run: RunInfo) -> str:
    """Speedup and tokens an iteration on all prompts, and on those whose text does not loop."""
    count, left = len(prompts(results)), len(prompts(without_looping(results)))
    if left == count:
        return ""
    rest = {each.cell: each for each in rows(results, run, looping=False)}
    lines = []
    for each in rows(results, run):
        other = rest.get(each.cell)
        cells = [
            spread_cell(each.speedup, times),
            value(number(each.summary.tokens_per_iteration)),
            spread_cell(other.speedup if other else None, times, edge=True),
            value(number(other.summary.tokens_per_iteration if other else None)),
        ]
        lines.append(row(name_of(run)(each), cells, _kind(each)))
    groups = (("", 1), (f"all {count} prompts", 2), (f"the {left} whose text does not loop", 2))
    return table(("", *("speedup", "tokens an iteration") * 2), lines, "With and without looping outputs", groups)


def memory(found: Sequence[Row], run: RunInfo) -> str:
    """Peak memory and what it has over the baseline's; nothing where it was not measured."""
    peaks = [each.summary.peak_memory_bytes for each in found]
    if not any(peaks):
        return ""
    base = next((peak for each, peak in zip(found, peaks, strict=True) if each.name == run.baseline), None)
    how = next((one.memory_kind for each in found for one in each.results if one.memory_kind), "")
    lines = []
    for each, peak in zip(found, peaks, strict=True):
        change = f"{100 * (peak.median / base.median - 1):+.2f}%" if peak and base else NONE
        cells = (spread_cell(peak, _megabytes), value(change))
        lines.append(row(name_of(run)(each), cells, _kind(each)))
    return table(("", "peak, MB", f"over {run.baseline or 'plain'}"), lines, f"Peak memory, {_WHOSE.get(how, how)}")


def failures(found: Sequence[Row], run: RunInfo) -> str:
    """A row for each contender and reason; nothing where nothing failed."""
    reasons: dict[tuple[str, str], int] = {}
    for each in found:
        for one in each.failures:
            at = (name_of(run)(each), one.failed or "no reason given")
            reasons[at] = reasons.get(at, 0) + 1
    lines = [row(name, (reason, value(str(count)))) for (name, reason), count in reasons.items()]
    return table(("", "why", "calls"), lines, words=2) if lines else ""


_WHOSE = {"rss": "resident, of the whole process", "cuda allocator": "of the CUDA allocator"}


def _megabytes(size: float | None) -> str:
    return NONE if size is None else f"{size / 1e6:,.1f}"


def _kind(each: Row, top: Row | None = None) -> str:
    return " ".join(["best"] * (each is top) + ["peer"] * each.peer)


def _per_hundred(passes: int, result: Result) -> float | None:
    return 100 * passes / result.new_tokens if result.new_tokens else None


def _rows_a_pass(result: Result) -> float | None:
    return result.nodes / result.iterations if result.nodes and result.iterations else None
