"""The figures of a report, each with a sentence for who cannot see it and with its numbers as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speclab.bench import figures
from speclab.bench.figures import Line
from speclab.bench.report_numbers import Figure, Place, Row, costs
from speclab.bench.report_page import drawing, row, table, value
from speclab.bench.report_tables import Write, name_of, number, spread_cell, times
from speclab.bench.result import Result, RunInfo
from speclab.bench.summary import Spread, spread
from speclab.views.palette import PHASE_COLORS

PHASES = {
    name: (color, hatch) for (name, color), hatch in zip(PHASE_COLORS.items(), ("/", "", "x", "-", "."), strict=True)
}
MARKS = 12
"""Places of a text at which the growth of speed is drawn."""
LINES = 5


def speeds(found: Sequence[Row], run: RunInfo, name: str) -> str:
    """Throughput with quartiles; its numbers are the table of speeds, which stands below it."""
    known = {name_of(run)(each): each.summary.throughput for each in found}
    shown = {who: each for who, each in known.items() if each}
    if not shown:
        return ""
    peers = frozenset(name_of(run)(each) for each in found if each.peer)
    drawn = figures.spreads(shown, "tokens/s", peers=peers, base=run.baseline or "")
    top = max(shown, key=lambda who: shown[who].median)
    label = (
        f"Throughput of {len(shown)} contenders, median and quartiles over prompts. The fastest is {top} with "
        f"{number(shown[top].median)} tokens/s. The table below has the numbers."
    )
    return drawing(drawn, label, "", f"{name}-speed")


def trade(found: Sequence[Row], run: RunInfo, name: str) -> str:
    """Tokens an iteration against milliseconds an iteration."""
    points: dict[str, tuple[float, float]] = {}
    for each in found:
        tokens, ms = each.mean(lambda one: one.tokens_per_iteration), each.mean(iteration_ms)
        if tokens and ms:
            points[name_of(run)(each)] = (tokens, ms)
    plain = points.get(run.baseline or "")
    if plain is None or len(points) < 2:
        return ""
    lines = (
        row(who, (value(number(tokens)), value(number(ms)), value(times(tokens / ms * plain[1] / plain[0]))))
        for who, (tokens, ms) in points.items()
    )
    heads = ("", "tokens an iteration", "ms an iteration", "speed that this gives")
    label = (
        f"Tokens an iteration against milliseconds an iteration, {len(points)} contenders. On a dashed ray every point "
        f"has the same speed, as a multiple of {run.baseline}'s."
    )
    return drawing(figures.trade(points, plain), label, table(heads, lines, label), f"{name}-trade")


def iteration_ms(result: Result) -> float | None:
    """Milliseconds an iteration after the first token, everything included."""
    if result.ttft is None or not result.iterations:
        return None
    passes = result.iterations if result.group == "ours" else result.iterations - 1  # a peer's first is its prefill
    return 1000 * (result.seconds - result.ttft) / passes if passes > 0 else None


def growth(found: Sequence[Row], run: RunInfo, name: str) -> str:
    """Speed so far, against the baseline's at the same place of the same text: it grows as the prefill weighs less."""
    base = next((each for each in found if each.name == run.baseline), None)
    if base is None:
        return ""
    last = min((one.new_tokens for each in found for one in each.results if one.new_tokens > 1), default=0)
    marks = sorted({max(2, round(last * place / MARKS)) for place in range(1, MARKS + 1)})
    plain = {mark: base.by_prompt(_until(mark)) for mark in marks}
    others = [each for each in fastest(found) if each is not base and last > MARKS]
    series = [line for each in others if (line := Line(name_of(run)(each), _ratios(each, plain))).points]
    if not series:
        return ""
    label = f"Speed up to so many new tokens, over {run.baseline} up to the same place of the same prompt; medians."
    drawn = figures.lines(series, "new tokens", f"× {run.baseline}", level=1.0)
    return drawing(drawn, label, over_x(series, times), f"{name}-growth")


def fastest(found: Sequence[Row]) -> list[Row]:
    """The fastest few of ours and of the peers, in the order of the run: more lines could not be told apart."""
    rates = {each.cell: each.speedup.median for each in found if each.speedup}
    known = sorted((each for each in found if each.cell in rates), key=lambda each: -rates[each.cell])
    kept = [each for each in known if not each.peer][:LINES] + [each for each in known if each.peer][:2]
    return [each for each in found if each in kept]


def _ratios(each: Row, plain: Mapping[int, Mapping[Place, float]]) -> dict[float, Spread]:
    found: dict[float, Spread] = {}
    for mark, base in plain.items():
        own = each.by_prompt(_until(mark))
        ratios = spread([base[at] / own[at] for at in own if at in base])
        if ratios:
            found[mark] = ratios
    return found


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


def over_x(series: Sequence[Line], write: Write) -> str:
    """A row a line, a column an x."""
    xs = sorted({x for line in series for x in line.points})
    lines = (row(line.name, (spread_cell(line.points.get(x), write) for x in xs)) for line in series)
    return table(("", *(f"{x:g}" for x in xs)), lines)


def cost(found: Sequence[Row], name: str) -> str:
    """The cost curve of verification, over all contenders together."""
    points = costs(one for each in found for one in each.results)
    if len(points) < 2:
        return ""
    least = points[0][1]
    lines = (
        row(f"{nodes}", (value(number(1000 * seconds)), value(times(seconds / least)), value(f"{passes:,}")))
        for nodes, seconds, passes in points
    )
    heads = ("rows", "ms, median", f"over {points[0][0]}", "passes")
    label = (
        f"Milliseconds of a verification pass by its rows, from {points[0][0]} rows ({number(1000 * least)} ms) to "
        f"{points[-1][0]} ({number(1000 * points[-1][1])} ms)."
    )
    return drawing(figures.curve(points), label, table(heads, lines, label), f"{name}-cost")


def where(found: Sequence[Row], run: RunInfo, name: str) -> str:
    """Milliseconds a token inside the target, inside the draft, and outside both."""
    parts: dict[str, dict[str, float]] = {}
    for each in found:
        split = {part: each.mean(_a_token(of)) for part, of in _PARTS.items()}
        if split["target"]:
            parts[name_of(run)(each)] = {part: ms or 0.0 for part, ms in split.items()}
    label = (
        "Milliseconds of the whole call for each new token: inside target passes, inside draft passes, outside both."
    )
    return _stack(parts, "ms a token", figures.PARTS, label, f"{name}-where")


def phases(found: Sequence[Row], run: RunInfo, name: str) -> str:
    """Milliseconds an iteration by phase, of what is ours."""
    parts: dict[str, dict[str, float]] = {}
    for each in found:
        split = {phase: each.mean(_an_iteration(phase)) for phase in PHASES}
        if any(split.values()):
            parts[name_of(run)(each)] = {phase: ms or 0.0 for phase, ms in split.items()}
    label = "Milliseconds an iteration by phase: draft, verify, accept, commit, adapt; prefill excluded."
    return _stack(parts, "ms an iteration", PHASES, label, f"{name}-phases")


def _stack(
    parts: Mapping[str, Mapping[str, float]], unit: str, looks: Mapping[str, tuple[str, str]], label: str, name: str
) -> str:
    if not parts:
        return ""
    used = [part for part in looks if any(split.get(part) for split in parts.values())]
    lines = (
        row(who, (*(value(number(split.get(part) or None)) for part in used), value(number(sum(split.values())))))
        for who, split in parts.items()
    )
    return drawing(figures.shares(parts, unit, looks), label, table(("", *used, "together"), lines, label), name)


_PARTS: dict[str, Figure] = {
    "target": lambda one: one.target_seconds,
    "draft": lambda one: one.draft_seconds,
    "host": lambda one: one.host_seconds,
}


def _a_token(part: Figure) -> Figure:
    return lambda one: 1000 * (part(one) or 0.0) / one.new_tokens if one.new_tokens else None


def _an_iteration(phase: str) -> Figure:
    return lambda one: 1000 * one.phases.get(phase, 0.0) / one.iterations if one.phases and one.iterations else None
