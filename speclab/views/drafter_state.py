"""What the drafter knew and decided in an iteration, whatever strategy it is of: its records, shown by their names.

Its route and why, the matches it found, the values it went by before and after, where its tokens came from, and what it
had learned of one token.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from speclab.analysis.attribution import attribution
from speclab.trace.records import Event, Lookup, Row, Step, Trace, Value
from speclab.views import markup
from speclab.views.explain import plural
from speclab.views.figures import INK, Drawing, Spec, lines, spec, stacked
from speclab.views.markup import (
    MEANINGS,
    Drawn,
    bar,
    cards,
    change,
    counts,
    escape,
    labelled,
    quoted,
    spoken,
    tag,
    written,
)
from speclab.views.palette import LOOKS, SOURCE_COLORS
from speclab.views.playback import verified_root
from speclab.views.token_text import sources_of

_MATCH = re.compile(r"match_(\d+)")
_NOTHING = {"", "nothing to adapt", "history is off"}
NEWEST, COURSES = 120, 7
"""Iterations of a course at most, so that a step of a long run costs what one of a short run does; courses at most."""
SPINE = "context"
"""The source of copied tokens; a chain of them is a spine."""


def routes_of(step: Step) -> tuple[Event, ...]:
    """The events that say which way the drafter went; the first is its own, others are of drafters within it."""
    return tuple([event for event in step.events if event.kind == "route"])


def route_words(step: Step) -> str:
    """Which way the drafter went, and why; "" where it always goes the same way."""
    found = []
    for event in routes_of(step):
        name = str(event.values.get("route", ""))
        why = event.reason.removeprefix(name).lstrip(": ")
        found.append(f"{name or 'unnamed'}{': ' if name and why else ''}{why}.")
    return " Within it, ".join(found)


def speaks(step: Step) -> bool:
    """Whether the drafter recorded a decision of its own, beyond the nodes of its tree."""
    decided = any(event.kind in {"route", "match"} for event in step.events)
    return decided or step.adaptation.reason not in _NOTHING


def strategy_drawing(trace: Trace, cursor: int | None = None) -> Drawing:
    """What the drafter knew and decided in an iteration; "" where it has no say."""
    steps = trace.steps[:cursor][-NEWEST:]
    if not any(speaks(step) for step in steps):
        return ""
    step = steps[-1]
    learned = f"{step.adaptation.reason or 'Nothing to adapt'}."
    said = {"Route": route_words(step), "Accepted path": path_words(step), "Learned": learned}
    words = [labelled(name, sentence) for name, sentence in said.items() if sentence]
    tables = cards(matches_table(step), values_table(steps))
    return [tag("div", *words, tables, class_="speclab-strategy-view")]


def course_drawing(trace: Trace, cursor: int | None = None) -> Drawing:
    """How the drafter fared in the newest iterations: a course for every value that moved, and its tokens by source."""
    steps = trace.steps[:cursor][-NEWEST:]
    if not any(speaks(step) for step in steps):
        return ""
    sources = sources_of(trace)
    return [courses_spec(steps, sources), cards(sources_table(steps, sources), paths_table(steps), routes_table(steps))]


def matches_table(step: Step) -> str:
    """One row per match, longest n-gram first, and one per length without any; nothing where none was looked for."""
    found = [event.values for event in step.events if event.kind == "match"]
    lengths = {int(at[1]) for event in routes_of(step) for name in event.values if (at := _MATCH.fullmatch(name))}
    lengths -= {values.get("ngram") for values in found}
    missing: list[Mapping[str, Any]] = [{"ngram": n, "position": "not found", "copied": 0} for n in lengths]
    every = sorted([*found, *missing], key=lambda values: -n if counts(n := values.get("ngram")) else 0)
    rows = [
        (values.get("ngram", ""), values.get("position", ""), values.get("copied", ""),
         quoted(token, step.texts) if isinstance(token := values.get("token"), int) else "")
        for values in every
    ]  # fmt: skip
    return markup.table("Matches", ("n-gram", "found at", "tokens to copy", "the first"), rows) if rows else ""


def values_of(steps: Sequence[Step]) -> list[dict[str, Value]]:
    """What the drafter went by in each iteration: settings that history moved in any of these, then its routes'."""
    moved = {name for step in steps for name in (*step.adaptation.before, *step.adaptation.after)}
    found = []
    for step in steps:
        values = {name: value for name, value in step.settings.items() if name in moved} | {**step.adaptation.before}
        for event in reversed(routes_of(step)):
            values |= event.values
        found.append({n: v for n, v in values.items() if n != "route" and not _MATCH.fullmatch(n)})
    return found


def values_table(steps: Sequence[Step]) -> str:
    """One row per value: in force in the newest iteration, and what it became."""
    step, now, rows = steps[-1], values_of(steps)[-1], []
    for name in dict.fromkeys([*now, *(after := step.adaptation.after)]):
        became = (written(name, after[name]), change(now.get(name), after[name])) if name in after else ("", "")
        rows.append((spoken(name), written(name, now.get(name)), *became, MEANINGS.get(name, "")))
    head = ("value", "before", "after", "", "")
    return markup.table(f"Values that decided iteration {step.index + 1}", head, rows) if rows else ""


def courses_spec(steps: Sequence[Step], sources: Sequence[str]) -> Spec:
    """Accepted tokens by source, and every value that moved, over these iterations; a click goes to one.

    `sources`: every source, in the order of their colours.
    """
    at, values = [step.index + 1 for step in steps], values_of(steps)
    every = dict.fromkeys(name for each in values for name in each)
    courses = {name: [value if counts(value := each.get(name)) else None for each in values] for name in every}
    moving = [name for name, course in courses.items() if len({*course} - {None}) > 1][:COURSES]
    hover = [lines(f"Iteration {s.index + 1}", path_words(s), s.adaptation.reason) for s in steps]
    taken = [Counter(step.tree.source[node] for node in step.accepted) for step in steps]
    point = {"x": at, "customdata": at, "meta": {"click": "iteration"}}
    bars = [
        {**point, "type": "bar", "y": [each[name] for each in taken], "hoverinfo": "text",
         "hovertext": [text if each[name] else "" for text, each in zip(hover, taken, strict=True)],
         "marker": {"color": SOURCE_COLORS[i % len(SOURCE_COLORS)]}}
        for i, name in enumerate(sources) if any(each[name] for each in taken)
    ]  # fmt: skip
    curves = [
        {**point, "mode": "lines+markers", "yaxis": f"y{row}", "line": {"shape": "hv", "color": INK, "width": 1.3},
         "y": [value if value is None else round(value, 4) for value in courses[name]],
         "marker": {"size": [3] * (len(at) - 1) + [8]}, "hovertemplate": f"iteration %{{x}}: {spoken(name)} %{{y}}"}
        for row, name in enumerate(moving, start=2)
    ]  # fmt: skip
    names = ["accepted, by source", *(spoken(name) for name in moving)]
    ends = ["", *(written(name, courses[name][-1]) for name in moving)]
    said = f"Iterations {at[0]} to {at[-1]}: accepted tokens by source{', ' if moving else ''}{', '.join(names[1:])}."
    xaxis = {"title": {"text": "iteration"}, "range": [at[0] - 0.6, max(at[-1], at[0] + 11) + 0.6], "tickformat": "d"}
    layout = stacked([70, *[30] * len(moving)], names, ends, xaxis)
    return spec([*bars, *curves], label=said, barmode="stack", bargap=0.2, meta={"name": "strategy"}, **layout)


def routes_table(steps: Sequence[Step]) -> str:
    """One row per route: how often it was taken, and the tokens it gave; nothing where there is but one."""
    taken, committed = Counter[str](), Counter[str]()
    for step in steps:
        name = str(next((event.values.get("route") for event in routes_of(step)), "unnamed"))
        taken[name] += 1
        committed[name] += len(step.committed)
    rows = [
        (name, count, bar(count / len(steps), room=80), f"{committed[name] / count:.2f}")
        for name, count in taken.most_common()
    ]
    head = ("route", "iterations", "", "tokens per iteration")
    return markup.table(f"Routes of {plural(len(steps), 'iteration')}", head, rows) if rows[1:] else ""


def path_words(step: Step) -> str:
    """The accepted path by its sources: `It followed the spine for 3 tokens, left it at '␣of' and went on …`."""
    if not step.counts.drafted:
        return "Nothing was drafted."
    sources = step.tree.source
    runs = [(name, len(list(nodes))) for name, nodes in groupby(sources[node] for node in step.accepted)]
    if not runs:
        return "No drafted token was accepted."
    taken, on_spine = [f"{plural(count, 'token')} from {name}" for name, count in runs], runs[0][1]
    if SPINE not in sources or runs[0][0] != SPINE:
        left = "left the spine at the root and " if SPINE in sources else ""
        return f"The accepted path {left}took {', then '.join(taken)}."
    if len(runs) == 1:
        return f"The accepted path stayed on the spine for {plural(on_spine, 'copied token')}."
    left = quoted(int(step.tree.token[step.accepted[on_spine]]), step.texts)
    return (
        f"Spine continuation: the accepted path followed the spine for {plural(on_spine, 'copied token')}, left it at "
        f"{left} and went on with {', then '.join(taken[1:])}."
    )


def source_counts(steps: Iterable[Step]) -> dict[str, tuple[int, int]]:
    """Source to (drafted tokens proposed, of them accepted)."""
    proposed = Counter(source for step in steps for source in step.tree.source[1 if verified_root(step) else 0 :])
    accepted = Counter(step.tree.source[node] for step in steps for node in step.accepted)
    return {name: (count, accepted[name]) for name, count in proposed.items()}


def sources_table(steps: Sequence[Step], sources: Sequence[str]) -> str:
    """One row per source: proposed and accepted, in the newest of these iterations and in all."""
    now, rows = source_counts(steps[-1:]), []
    for name, (proposed, accepted) in source_counts(steps).items():
        color = SOURCE_COLORS[sources.index(name) % len(SOURCE_COLORS)]
        square = f"display:inline-block;width:10px;height:10px;margin-right:6px;background:{color}"
        label = Drawn(tag("span", style=square, aria_hidden="true") + escape(name))
        share = accepted / proposed
        rows.append((label, *now.get(name, (0, 0)), proposed, accepted, f"{share:.1%}", bar(share, color)))
    whole = f"in {plural(len(steps), 'iteration')}: proposed"
    head = ("source", "proposed", "accepted", whole, "accepted", "share", "")
    return markup.table("Drafted tokens by source", head, rows) if rows else ""


def paths_table(steps: Sequence[Step]) -> str:
    """Accepted tokens by the kind of path they lie on; nothing where no token was ever copied."""
    if not any(SPINE in step.tree.source for step in steps):
        return ""
    parts = attribution(steps, SPINE)
    kinds = (
        ("spine only", parts.spine_only, "the path was copied to its end"),
        ("spine continuation", parts.spine_continuation, "the path left the spine and went on"),
        ("… after leaving it", parts.continued, "what the spine alone would have missed"),
        ("branch only", parts.branch_only, "the path holds no copied token"),
    )
    shares = [count / (parts.accepted or 1) for _, count, _ in kinds]
    rows = ((name, n, f"{s:.0%}", bar(s), meaning) for (name, n, meaning), s in zip(kinds, shares, strict=True))
    caption = f"{plural(parts.accepted, 'accepted token')} in {plural(len(steps), 'iteration')}, by kind of path"
    return markup.table(caption, ("kind of path", "tokens", "share", "", "meaning"), rows)


def lookup_sentence(found: Lookup) -> str:
    """Such as: After '␣the', as iteration 5 left the table, the most probable are '␣king' 41% (unigram)."""
    row, when = found.used, f"as {f'iteration {found.after}' if found.after else 'the prompt'} left the table"
    if row is None:
        return f"Nothing was learned of what follows {_key(found, found.rows[-1])} {when}."
    best = ", ".join([f"{quoted(token, found.texts)} {score:.0%}" for token, score in row.successors[:3]])
    return f"After {_key(found, row)}, {when}, the most probable are {best} ({_name(row)})."


def _key(found: Lookup, row: Row) -> str:
    return " ".join([quoted(token, found.texts) for token in row.key])


def _name(row: Row) -> str:
    return {1: "unigram", 2: "bigram"}.get(len(row.key), f"{len(row.key)}-gram")


def key_at(trace: Trace, cursor: int, node: int | None = None) -> tuple[int, ...]:
    """The one before and the token of a node (by default the root) of iteration `cursor`; at 0 the newest tokens."""
    newest = (*trace.prompt_ids, *trace.token_ids(max(cursor - 1, 0)))[-2:]
    if not cursor:
        return newest
    step = trace.steps[cursor - 1]
    parent, token = int(step.tree.parent[node or 0]), int(step.tree.token[node or 0])
    if parent >= 0:
        return int(step.tree.token[parent]), token
    return newest if verified_root(step) else (newest[-1], token)


def children_of(step: Step, node: int) -> dict[int, str]:
    """Tokens drafted below a node, with their verdicts."""
    return {int(step.tree.token[child]): step.nodes[child].verdict for child in step.tree.children[node]}


def lookup_html(found: Lookup, drafted: Mapping[int, str] | None = None) -> str:
    """The rows side by side, each successor with its score as a number and a bar.

    `drafted`: verdicts of the tokens that the iteration shown drafted here, to be set beside them.
    """
    values = " · ".join([f"{spoken(name)} {written(name, value)}" for name, value in found.values.items()])
    most = max([score for row in found.rows for _, score in row.successors], default=1.0)
    tables = (_table(found, row, most, drafted or {}) for row in found.rows)
    words = labelled("Successors", lookup_sentence(found)), labelled("State of the table", f"{values}.")
    return markup.tag("div", *words, cards(*tables))


def _table(found: Lookup, row: Row, most: float, drafted: Mapping[int, str]) -> str:
    name = f"{_name(row).capitalize()}: after {_key(found, row)}"
    if not row.successors:
        return labelled(name, "Not seen yet.")
    color = LOOKS["accepted" if row is found.used else "not reached"].color
    known = [drafted.get(token) for token, _ in row.successors]
    rows = (
        (rank, quoted(token, found.texts), token, f"{score:.3f}", bar(score / most, color, 60), verdict or "")
        for rank, ((token, score), verdict) in enumerate(zip(row.successors, known, strict=True), start=1)
    )
    use = "drafts are made from this row" if row is found.used else "not used: the longer key is known"
    head = ("rank", "successor", "id", "score", "", "drafted here" if any(known) else "")
    return markup.table(f"{name} ({use})", head, rows)
