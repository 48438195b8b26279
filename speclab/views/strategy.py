"""What the drafter knew and decided in an iteration, whatever strategy it is of: its records, shown by their names.

Its route and why, the matches it found, the values it went by before and after, and where its tokens came from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from speclab.analysis.compare import Comparison
from speclab.trace.records import Event, Step, Trace, Value
from speclab.views import markup
from speclab.views.cost import cost_html
from speclab.views.palette import LOOKS, ThemeName, css
from speclab.views.sources import comparison_table, path_words, paths_table, sources_table
from speclab.views.tokens import quoted
from speclab.views.values import MEANINGS, bar, cards, change, counts, line, said, spoken, written

_MATCH = re.compile(r"match_(\d+)")
_MATCH_HEAD = ("n-gram", "found at", "tokens to copy", "", "the first")


def routes_of(step: Step) -> tuple[Event, ...]:
    """The events that say which way the drafter went; the first is its own, others are of drafters within it."""
    return tuple(event for event in step.events if event.kind == "route")


def route_words(step: Step) -> str:
    """Which way the drafter went, and why."""
    told = [_route_words(event) for event in routes_of(step)]
    return " Within it, ".join(told) or "None recorded: this strategy always drafts the same way."


def _route_words(event: Event) -> str:
    name = str(event.values.get("route", ""))
    reason = event.reason.removeprefix(name).lstrip(": ")
    return f"{name or 'unnamed'}{': ' if name and reason else ''}{reason}."


def learned_words(step: Step) -> str:
    """What it took from the outcome."""
    return f"{step.adaptation.reason or 'Nothing to adapt'}."


def summary(step: Step) -> str:
    """Route, accepted path and what was learned, in sentences."""
    return f"Route: {route_words(step)} {path_words(step)} Learned: {learned_words(step)}"


def strategy_html(
    trace: Trace, cursor: int | None = None, comparison: Comparison | None = None, theme: ThemeName = "light"
) -> str:
    """The panel, as HTML: sentences, then tables with bars; every bar has its number."""
    steps = trace.steps[:cursor]
    if not steps:
        return said("Route", "Nothing is drafted yet.")
    step = steps[-1]
    words = [
        said("Route", route_words(step)), said("Accepted path", path_words(step)), said("Learned", learned_words(step))
    ]  # fmt: skip
    tables = (
        matches_table(step), routes_table(steps), values_table(steps, css(theme).ink), sources_table(trace, cursor),
        paths_table(steps), comparison_table(comparison) if comparison else "",
    )  # fmt: skip
    costs = cost_html(step, theme) if step.budget is not None else ""
    return markup.tag("div", *words, costs, cards(*tables), class_="speclab-strategy-view")


def matches_table(step: Step) -> str:
    """One row a match, longest n-gram first, and one a length without any; nothing where none was looked for."""
    found = [event.values for event in step.events if event.kind == "match"]
    lengths = {int(at[1]) for event in routes_of(step) for name in event.values if (at := _MATCH.fullmatch(name))}
    lengths -= {int(_number(values, "ngram")) for values in found}
    missing: list[Mapping[str, Value]] = [{"ngram": n, "position": "not found", "copied": 0} for n in lengths]
    rows = sorted([*found, *missing], key=lambda values: -_number(values, "ngram"))
    most = max((_number(values, "copied") for values in rows), default=0) or 1
    cells = [_match_cells(step, values, most) for values in rows]
    kept = [i for i in range(len(_MATCH_HEAD)) if any(row[i] != "" for row in cells)]
    table = ([row[i] for i in kept] for row in cells)
    return markup.table("Matches", [_MATCH_HEAD[i] for i in kept], table) if rows else ""


def _match_cells(step: Step, values: Mapping[str, Value], most: float) -> tuple[object, ...]:
    token, copied = values.get("token"), _number(values, "copied")
    length = bar(copied / most, LOOKS["accepted"].color, 80) if copied else ""
    first = quoted(token, step.texts) if isinstance(token, int) else ""
    return values.get("ngram", ""), values.get("position", ""), values.get("copied", ""), length, first


def _number(values: Mapping[str, Value], name: str) -> float:
    value = values.get(name)
    return value if counts(value) else 0


def values_of(step: Step) -> dict[str, Value]:
    """What the drafter went by, from its routes and from what it then changed; matches stand elsewhere."""
    routes = (event.values for event in reversed(routes_of(step)))
    values: dict[str, Value] = dict(step.adaptation.before)
    for each in routes:
        values |= each
    return {name: value for name, value in values.items() if name != "route" and not _MATCH.fullmatch(name)}


def values_table(steps: Sequence[Step], ink: str) -> str:
    """One row a value: in the newest iteration, after it, and its course over the run."""
    step = steps[-1]
    courses = [values_of(each) for each in steps]
    after = step.adaptation.after
    names = dict.fromkeys([*courses[-1], *after])
    rows = []
    for name in names:
        value = courses[-1].get(name)
        learned = (written(name, after[name]), change(value, after[name])) if name in after else ("", "")
        course = [*(each.get(name) for each in courses), *([after[name]] if name in after else [])]
        numbers = [float(value) for value in course if counts(value)]
        cells = (spoken(name), written(name, value), *learned, line(numbers, ink), MEANINGS.get(name, ""))
        rows.append(cells)
    head = ("value", "before", "after", "", "over the run", "")
    return markup.table(f"What iteration {step.index + 1} went by", head, rows) if rows else ""


def routes_table(steps: Sequence[Step]) -> str:
    """One row a route: how often it was taken, and the tokens it gave; nothing where there is but one."""
    routes = Counter(_route_name(step) for step in steps)
    if len(routes) < 2:
        return ""
    committed: Mapping[str, int] = Counter(
        {name: sum(len(step.committed) for step in steps if _route_name(step) == name) for name in routes}
    )
    color = LOOKS["accepted"].color
    rows = (
        (name, count, bar(count / len(steps), color, 80), f"{committed[name] / count:.2f}")
        for name, count in routes.most_common()
    )
    return markup.table("Routes so far", ("route", "iterations", "", "tokens per iteration"), rows)


def _route_name(step: Step) -> str:
    return next((str(event.values.get("route") or "unnamed") for event in routes_of(step)), "unnamed")
