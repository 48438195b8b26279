"""What a run's report shows of speed, passes and time: a section per question, each with its small print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from speclab.bench import figures
from speclab.bench.figures import Series
from speclab.bench.page import (
    METRICS,
    SPEED,
    SPEEDUP,
    TOKENS,
    Cell,
    Item,
    Line,
    Metric,
    Page,
    block,
    drawing,
    fold,
    number,
    percent,
    table,
    text,
    times,
    words,
)  # fmt: skip
from speclab.bench.result import Result
from speclab.bench.summary import (
    ALL,
    Figure,
    Spread,
    Summary,
    kinds,
    over_all,
    spread,
    summaries,
    verify_costs,
    without_looping,
)

MARKS, LINES = 12, 5
"""Places of a text at which the growth of speed is drawn, and for how many methods."""
NOTES = {
    "cost": "Median of every verification of that many rows, all methods together: the pass of the target and what "
    "prepares it. A larger mark stands for more passes.",
    "loops": "A text loops when more than half of its last 64 tokens end a 4-gram that it held before. Small models "
    "loop in greedy decoding, and a loop is easy to guess: it flatters every kind of drafting.",
    "trade": "Each dashed ray joins equal speeds, as multiples of plain decoding's. More tokens per iteration help "
    "only as far as the iteration does not cost as much more. From the first token on; means.",
    "time": "Host: everything outside forward passes, such as building trees and masks, choosing, keeping caches in "
    "order. The prefill is in the first figure and not in the second.",
    "speed": "Tokens per second of the whole call, prefill included. The mark is the median over prompts of the "
    "median over rounds, the bar its quartiles, the dashed rule the baseline.",
    "passes": "The paper's acceptance is DynaTree's: committed tokens, the target's own included, over the longest "
    "drafted path, so it may exceed 100%. The path before the bonus is in tokens per iteration.",
    "memory": "On a CPU it is what the process has resident, freed memory included that the system has not taken "
    "back: small differences tell nothing.",
    "growth": "Speed from the call up to so many new tokens, over the baseline's up to the same place of the same "
    "prompt; the fastest of speclab's methods and of transformers'.",
}
_MEMORY = {"rss": "resident, of the whole process", "cuda allocator": "of the CUDA allocator"}
CALLS = (
    Metric("target passes", number, lambda one: _per_hundred(one.target_calls, one)),
    Metric("draft passes", number, lambda one: _per_hundred(one.draft_calls, one)),
    Metric("rows per target pass", number, lambda one: one.nodes / one.iterations if one.nodes else None),
    Metric("accepted / drafted", percent, "acceptance_rate"),
    Metric("accepted / longest path", percent, "path_acceptance"),
    Metric("the paper's acceptance", percent, "paper_acceptance"),
    Metric("path before the bonus", number, "path_length"),
)


def speed(page: Page) -> list[Item]:
    """Throughput and speedup with their quartiles, tokens per iteration, latency, and equality; or what was varied."""
    return _sweep(page) if page.swept else _throughput(page)


def passes(page: Page) -> list[Item]:
    """Tokens against milliseconds per iteration; passes, and what became of drafted tokens."""
    return [*_noted(_trade(page), "trade"), *_noted(_folded(page, _calls(page)), "passes")]


def _throughput(page: Page) -> list[Item]:
    shown = {page.name(one): rate for one in page.rows if (rate := one.spread("throughput"))}
    drawn: list[Item] = []
    if shown:
        others = frozenset(page.name(one) for one in page.rows if one.group == "transformers")
        figure = figures.spreads(shown, "tokens/s", transformers=others, baseline=page.run.baseline)
        top = max(shown, key=lambda name: shown[name].median)
        label = (
            f"Throughput of {len(shown)} methods, median and quartiles over prompts. The fastest is {top} with "
            f"{number(shown[top].median)} tokens/s. The table below has the numbers."
        )
        drawn = _noted(drawing(figure, label, [], f"{page.id}-speed"), "speed")
    growth = block("Speed over the length of the text", *_noted(_growth(page), "growth"))
    return [*drawn, *_speed_table(page), *growth]


def _speed_table(page: Page) -> list[Item]:
    several, lines = len(kinds(page.stored.results)) > 1, []
    head = ["", "tokens/s", f"over {page.run.baseline}", *(["mean over kinds"] if several else []),
            "tokens per iteration", "TTFT, ms", "TPOT, ms", "the target's own text", "prompts"]  # fmt: skip
    ttft, tpot = METRICS["ttft_ms"], METRICS["tpot_ms"]
    for one in page.rows:
        if not one.results:
            why = "; ".join(dict.fromkeys(failure.failed or "no reason given" for failure in one.failures))
            lines.append(page.line(one, [Cell(why, number=False, span=len(head) - 1)]))
            continue
        by_kind = [each.speedup.median for each in page.summaries if each.cell == one.cell
                   and (each.kind != ALL) == several and each.speedup]  # fmt: skip
        lines.append(page.line(one, [
            SPEED.cell(one), SPEEDUP.cell(one),
            *([Cell(times(mean(by_kind) if by_kind else None))] if several else []),
            TOKENS.cell(one), ttft.cell(one, quartiles=False), tpot.cell(one, quartiles=False),
            Cell(_equality(one)), Cell(str(one.prompts)),
        ]))  # fmt: skip
    caption = "Medians over prompts with their quartiles; tokens per iteration is a mean. ◇ transformers"
    return table(head, lines, caption)


def _sweep(page: Page) -> list[Item]:
    """What was varied: lines over one setting, a grid over two; settings of different kinds are drawn apart."""
    varied = [one for one in page.rows if one.x is not None]
    drawn: list[Item] = []
    if any(one.x2 is not None for one in varied):
        for place, name in enumerate(dict.fromkeys(one.method for one in varied)):
            drawn += _grid(page, [one for one in varied if one.method == name], f"{page.id}-grid-{place}")
    else:
        values = {one.method: tuple(o.x for o in varied if o.method == one.method) for one in varied}
        for place, xs in enumerate(dict.fromkeys(values.values())):
            own = [one for one in varied if values[one.method] == xs]
            for metric in (SPEED, SPEEDUP, Metric("tokens per iteration", number, "tokens_per_iteration", True)):
                drawn += _lines(page, own, metric, f"{page.id}-x{place}-{metric.heading.split('/')[0].split()[0]}")
    return [*drawn, *fold("every method and value", _speed_table(page))]


def _lines(page: Page, found: Sequence[Summary], metric: Metric, id_: str) -> list[Item]:
    series = [
        Series(name, {one.x or 0.0: own for one in found if one.method == name and (own := metric.spread(one))})
        for name in dict.fromkeys(one.method for one in found)
    ]
    series = [each for each in series if each.points]
    if not series:
        return []
    x, names = page.run.x_name or "x", ", ".join(each.name for each in series)
    label = f"{metric.heading} over {x}: {names}; medians and quartiles over prompts."
    figure = figures.lines(series, x, metric.heading, level=1.0 if metric is SPEEDUP else None)
    return drawing(figure, label, _over_x(series, metric), id_)


def _grid(page: Page, found: Sequence[Summary], id_: str) -> list[Item]:
    cells = {(one.x, one.x2): one.speedup.median for one in found
             if one.x is not None and one.x2 is not None and one.speedup}  # fmt: skip
    if not cells:
        return []
    x, x2 = page.run.x_name or "x", page.run.x2_name or "x2"
    best = max(cells, key=lambda at: cells[at])
    middle = spread(list(cells.values()))
    label = (
        f"{found[0].method}: median speedup over {page.run.baseline} by {x} and {x2}. The best is {x} {best[0]:g}, "
        f"{x2} {best[1]:g}: {times(cells[best])}; the median of all is {times(middle.median if middle else None)}."
    )
    columns = sorted({at[0] for at in cells})
    lines = (
        Line(f"{x2} {down:g}", [Cell(times(cells.get((column, down)))) for column in columns])
        for down in sorted({at[1] for at in cells})
    )
    numbers = table(("", *(f"{x} {column:g}" for column in columns)), lines)
    return drawing(figures.grid(cells, x, x2, "×"), label, numbers, id_)


def _trade(page: Page) -> list[Item]:
    """Tokens per iteration against milliseconds per iteration."""
    points: dict[str, tuple[float, float]] = {}
    for one in [] if page.swept else page.rows:
        tokens, ms = one.mean("tokens_per_iteration"), one.mean("iteration_ms")
        if tokens and ms:
            points[page.name(one)] = (tokens, ms)
    plain = points.get(page.run.baseline)
    if plain is None or len(points) < 2:
        return []
    lines = (
        Line(name, [Cell(number(tokens)), Cell(number(ms)), Cell(times(tokens / ms * plain[1] / plain[0]))])
        for name, (tokens, ms) in points.items()
    )
    label = (
        f"Tokens per iteration against milliseconds per iteration, {len(points)} methods. On a dashed ray every "
        f"point has the same speed, as a multiple of {page.run.baseline}'s."
    )
    head = ("", "tokens per iteration", "ms per iteration", "speed that this gives")
    return drawing(figures.trade(points, plain), label, table(head, lines, label), f"{page.id}-trade")


def _calls(page: Page) -> list[Item]:
    lines = (page.line(one, [metric.cell(one) for metric in CALLS]) for one in page.rows)
    caption = "Passes for 100 new tokens, the prefill included; means over prompts"
    return table(("", *(metric.heading for metric in CALLS)), lines, caption)


def _growth(page: Page) -> list[Item]:
    """Speed so far, against the baseline's at the same place of the same text: it grows as prefill weighs less."""
    base = next((one for one in page.rows if one.method == page.run.baseline), None)
    last = min((one.new_tokens for one in page.stored.results if one.new_tokens > 1), default=0)
    if base is None or last <= MARKS:
        return []
    marks = sorted({max(2, round(last * place / MARKS)) for place in range(1, MARKS + 1)})
    plain = {mark: base.by_prompt(_until(mark)) for mark in marks}
    ranked = sorted((o for o in page.rows if o.speedup), key=lambda o: -(o.speedup.median if o.speedup else 0))
    kept = [one for one in ranked if one.group == "speclab"][:LINES]
    kept += [one for one in ranked if one.group == "transformers"][:2]
    series = []
    for one in page.rows:
        if one in kept and one is not base:
            own = {mark: one.by_prompt(_until(mark)) for mark in marks}
            ratios = {m: spread([plain[m][at] / s for at, s in own[m].items() if at in plain[m]]) for m in marks}
            series.append(Series(page.name(one), {float(m): each for m, each in ratios.items() if each}))
    series = [each for each in series if each.points]
    if not series:
        return []
    name = page.run.baseline
    label = f"Speed up to so many new tokens, over {name} up to the same place of the same prompt; medians."
    figure = figures.lines(series, "new tokens", f"× {name}", level=1.0)
    return drawing(figure, label, _over_x(series, SPEEDUP), f"{page.id}-growth")


def _over_x(series: Sequence[Series], metric: Metric) -> list[Item]:
    """A row for each line, a column for each x."""
    xs = sorted({x for each in series for x in each.points})
    lines = (Line(each.name, [_spread_cell(each.points.get(x), metric) for x in xs]) for each in series)
    return table(("", *(f"{x:g}" for x in xs)), lines)


def _spread_cell(found: Spread | None, metric: Metric) -> Cell:
    if found is None:
        return Cell(metric.write(None))
    return Cell(
        metric.write(found.median), f"{metric.write(found.low)} to {metric.write(found.high)}" * (found.count > 1)
    )


def _until(mark: int) -> Figure:
    """Seconds until `mark` new tokens were there, on the line between the kept places around it."""

    def seconds(result: Result) -> float | None:
        before = (0, 0.0)
        for tokens, at in result.progress:
            if tokens >= mark:
                share = (mark - before[0]) / (tokens - before[0]) if tokens > before[0] else 1.0
                return before[1] + share * (at - before[1]) or None
            before = (tokens, at)
        return None

    return seconds


def cost(page: Page) -> list[Item]:
    """What a verification pass of so many rows costs, over all methods together."""
    points = verify_costs(page.stored.results)
    if len(points) < 2:
        return []
    least = points[0][1]
    lines = (
        Line(f"{rows}", [Cell(number(1000 * seconds)), Cell(times(seconds / least)), Cell(f"{passes:,}")])
        for rows, seconds, passes in points
    )
    label = (
        f"Milliseconds of a verification pass by its rows, from {points[0][0]} rows ({number(1000 * least)} ms) to "
        f"{points[-1][0]} ({number(1000 * points[-1][1])} ms)."
    )
    numbers = table(("rows", "ms, median", f"over {points[0][0]}", "passes"), lines, label)
    return _noted(drawing(figures.curve(points), label, numbers, f"{page.id}-cost"), "cost")


def time(page: Page) -> list[Item]:
    """Where time goes. Of a sweep the largest value alone: a bar for each would fill pages."""
    last = max((one.x for one in page.rows if one.x is not None), default=None)
    found = [one for one in page.rows if one.x in {None, last}] if page.swept else page.rows
    where = {page.name(one): _split(one, ("target", "draft", "host"), _per_token) for one in found}
    where = {name: split for name, split in where.items() if split["target"]}
    label = (
        "Milliseconds of the whole call for each new token: inside target passes, inside draft passes, outside both."
    )
    drawn = _stack(where, "ms per token", figures.PARTS, label, f"{page.id}-where")
    phases = {page.name(one): _split(one, tuple(figures.PHASES), _per_iteration) for one in found}
    phases = {name: split for name, split in phases.items() if any(split.values())}
    label = "Milliseconds per iteration by phase: draft, verify, accept, commit, adapt; prefill excluded."
    return _noted(drawn + _stack(phases, "ms per iteration", figures.PHASES, label, f"{page.id}-phases"), "time")


def _split(one: Summary, parts: Sequence[str], figure: Callable[[str], Figure]) -> dict[str, float]:
    return {part: one.mean(figure(part)) or 0.0 for part in parts}


def _per_token(part: str) -> Figure:
    return lambda one: 1000 * getattr(one, f"{part}_seconds") / one.new_tokens if one.new_tokens else None


def _per_iteration(phase: str) -> Figure:
    return lambda one: 1000 * one.phases.get(phase, 0.0) / one.iterations if one.phases and one.iterations else None


def _stack(
    parts: Mapping[str, Mapping[str, float]], unit: str, looks: Mapping[str, tuple[str, str]], label: str, id_: str
) -> list[Item]:
    if not parts:
        return []
    used = [part for part in looks if any(split.get(part) for split in parts.values())]
    lines = (
        Line(name, [*(Cell(number(split.get(part) or None)) for part in used), Cell(number(sum(split.values())))])
        for name, split in parts.items()
    )
    return drawing(figures.stacked(parts, unit, looks), label, table(("", *used, "together"), lines, label), id_)


def by_kind(page: Page) -> list[Item]:
    """Median speedup on each kind of prompt; nothing where there is one kind."""
    names = kinds(page.stored.results)
    if len(names) < 2:
        return []
    found = {(one.cell, one.kind): one for one in page.summaries}
    lines = (page.line(one, [SPEEDUP.cell(found.get((one.cell, kind))) for kind in names]) for one in page.rows)
    return _folded(page, table(("", *names), lines, f"Speedup over {page.run.baseline} by kind of prompt"))


def loops(page: Page) -> list[Item]:
    """Speedup and tokens per iteration on all prompts, and on those whose text does not loop."""
    left = len({result.prompt for result in without_looping(page.stored.results) if result.ok})
    if left == page.prompts:
        none = f"No text of the {page.prompts} prompts loops, so there is nothing to leave out."
        return _noted(_folded(page, [text(none)]), "loops")
    rest = {one.cell: one for one in over_all(summaries(page.stored.results, page.run, looping=False))}
    lines = [
        page.line(one, [
            SPEEDUP.cell(one), TOKENS.cell(one), SPEEDUP.cell(rest.get(one.cell), edge=True),
            TOKENS.cell(rest.get(one.cell)),
        ])
        for one in page.rows
    ]  # fmt: skip
    groups = (("", 1), (f"all {page.prompts} prompts", 2), (f"the {left} whose text does not loop", 2))
    head = ("", *("speedup", "tokens per iteration") * 2)
    return _noted(_folded(page, table(head, lines, "With and without looping outputs", groups)), "loops")


def memory(page: Page) -> list[Item]:
    """Peak memory and what it has over the baseline's; nothing where it was not measured."""
    peaks = {one.cell: one.spread("peak_memory_bytes") for one in page.rows}
    if not any(peaks.values()):
        return []
    base = next((peaks[one.cell] for one in page.rows if one.method == page.run.baseline), None)
    how = next((one.memory_kind for one in page.stored.results if one.memory_kind), "")
    metric = Metric("peak, MB", lambda size: number(None) if size is None else f"{size / 1e6:,.1f}", "", timed=True)
    lines = []
    for one in page.rows:
        peak = peaks[one.cell]
        change = f"{100 * (peak.median / base.median - 1):+.2f}%" if peak and base else number(None)
        lines.append(page.line(one, [_spread_cell(peak, metric), Cell(change)]))
    head = ("", metric.heading, f"over {page.run.baseline}")
    return _noted(_folded(page, table(head, lines, f"Peak memory, {_MEMORY.get(how, how)}")), "memory")


def failures(page: Page) -> list[Item]:
    """A row for each method and reason; nothing where nothing failed."""
    reasons = Counter((page.name(one), each.failed or "no reason given") for one in page.rows for each in one.failures)
    lines = (Line(name, [words(why), Cell(str(count))]) for (name, why), count in reasons.items())
    return table(("", "why", "calls"), lines, text_columns=2)


def _folded(page: Page, items: Sequence[Item]) -> list[Item]:
    """A table of a sweep has a row for every value, so it is folded away."""
    return fold("the table", items) if page.swept else list(items)


def _noted(items: Sequence[Item], note: str) -> list[Item]:
    """With small print; nothing where there is nothing to explain."""
    return [*items, text(NOTES[note], "under")] if items else []


def _equality(one: Summary) -> str:
    """`12 of 12`: prompts whose text is the target's own; how many only up to a tie of rounding."""
    if not one.compared:
        return "not compared"
    return f"{one.equal} of {one.compared}" + (f", {one.ties} by a tie" if one.ties else "")


def _per_hundred(passes: int, result: Result) -> float | None:
    return 100 * passes / result.new_tokens if result.new_tokens else None
