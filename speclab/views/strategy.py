"""What the drafter knew and decided in an iteration, whatever strategy it is of: its records, shown by their names.

Its route and why, the matches it found, the values it went by before and after, and where its tokens came from.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from speclab.comparison import Comparison
from speclab.trace import Event, Step, Trace, Value
from speclab.views import markup
from speclab.views.palette import LOOKS, ThemeName, css
from speclab.views.sources import comparison_table, path_words, paths_table, sources_table
from speclab.views.summary import plural
from speclab.views.tokens import quoted
from speclab.views.values import MEANINGS, bar, cards, change, counts, line, said, spoken, written

_MATCH = re.compile(r"match_(\d+)")


def route_of(step: Step) -> Event | None:
    """The event that says which way the drafter went."""
    return next((event for event in step.events if event.kind == "route"), None)


def route_words(step: Step) -> str:
    """Which way the drafter went, and why."""
    event = route_of(step)
    if event is None:
        return "None recorded: this strategy always drafts the same way."
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
    return markup.tag("div", *words, cards(*tables), class_="speclab-strategy-view")


def matches_table(step: Step) -> str:
    """One row an n-gram length, longest first; nothing where none was looked for."""
    found = {int(event.values["ngram"] or 0): event for event in step.events if event.kind == "match"}
    event = route_of(step)
    asked = [int(at[1]) for name in (event.values if event else ()) if (at := _MATCH.fullmatch(name))]
    lengths = sorted({*found, *asked}, reverse=True)
    if not lengths:
        return ""
    most = max((int(match.values["copied"] or 0) for match in found.values()), default=0) or 1
    rows = [_match_row(step, length, found.get(length), most) for length in lengths]
    head = ("n-gram", "found at", "tokens to copy", "", "the first")
    return markup.table(f"Matches in the {plural(step.prefix_length + 1, 'token')} so far", head, rows)


def _match_row(step: Step, length: int, match: Event | None, most: int) -> tuple[object, ...]:
    if match is None:
        return length, "not found", 0, "", ""
    copied, token = int(match.values["copied"] or 0), match.values.get("token")
    first = quoted(token, step.texts) if isinstance(token, int) else ""
    return length, match.values["position"], copied, bar(copied / most, LOOKS["accepted"].color, 80), first


def values_of(step: Step) -> dict[str, Value]:
    """What the drafter went by, from its route and from what it then changed; matches stand elsewhere."""
    event = route_of(step)
    values = {**step.adaptation.before, **(event.values if event else {})}
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
    event = route_of(step)
    return str(event.values.get("route") or "unnamed") if event else "unnamed"
