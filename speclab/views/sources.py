"""Where proposed and accepted tokens came from: by source, by the kind of path, and against each source alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from speclab.analysis.attribution import attribution
from speclab.analysis.compare import Comparison
from speclab.trace.records import Step, Trace
from speclab.views import markup
from speclab.views.markup import Drawn, tag
from speclab.views.palette import LOOKS, SOURCE_COLORS
from speclab.views.summary import plural
from speclab.views.text import sources_of
from speclab.views.tokens import escape, quoted
from speclab.views.values import bar, said
from speclab.views.walk import verified_root

SPINE = "context"
"""The source of copied tokens; a chain of them is a spine."""


def path_words(step: Step, spine: str = SPINE) -> str:
    """The accepted path by its sources: `It followed the spine for 3 tokens, left it at '␣of' and went on …`."""
    if not step.counts.drafted:
        return "Nothing was drafted."
    sources = step.tree.source
    runs = [(name, len(list(nodes))) for name, nodes in groupby(sources[node] for node in step.accepted)]
    if not runs:
        return "No drafted token was accepted."
    taken = [f"{plural(count, 'token')} from {name}" for name, count in runs]
    if spine not in sources:
        return f"The accepted path took {', then '.join(taken)}."
    if runs[0][0] != spine:
        return f"The accepted path left the spine at the root and took {', then '.join(taken)}."
    on_spine = runs[0][1]
    if len(runs) == 1:
        return f"The accepted path stayed on the spine for {plural(on_spine, 'copied token')}."
    left = quoted(int(step.tree.token[step.accepted[on_spine]]), step.texts)
    return (
        f"Spine continuation: the accepted path followed the spine for {plural(on_spine, 'copied token')}, left it at "
        f"{left} and went on with {', then '.join(taken[1:])}."
    )


def source_counts(steps: Iterable[Step]) -> dict[str, tuple[int, int]]:
    """Source to (drafted tokens proposed, of them accepted)."""
    proposed: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for step in steps:
        proposed.update(step.tree.source[1 if verified_root(step) else 0 :])
        accepted.update(step.tree.source[node] for node in step.accepted)
    return {name: (count, accepted[name]) for name, count in proposed.items()}


def sources_table(trace: Trace, cursor: int | None = None) -> str:
    """One row a source: proposed and accepted, in the newest iteration and in the run."""
    steps = trace.steps[:cursor]
    run, now = source_counts(steps), source_counts(steps[-1:])
    colors = {name: SOURCE_COLORS[i % len(SOURCE_COLORS)] for i, name in enumerate(sources_of(trace))}
    rows = []
    for name, (proposed, accepted) in run.items():
        square = f"display:inline-block;width:10px;height:10px;margin-right:6px;background:{colors[name]}"
        label = Drawn(tag("span", style=square, aria_hidden="true") + escape(name))
        share = accepted / proposed
        rows.append((label, *now.get(name, (0, 0)), proposed, accepted, f"{share:.1%}", bar(share, colors[name])))
    head = ("source", "proposed", "accepted", "in the run: proposed", "accepted", "share", "")
    return markup.table("Drafted tokens by source", head, rows) if rows else ""


def paths_table(steps: Sequence[Step], spine: str = SPINE) -> str:
    """Accepted tokens by the kind of path they lie on; nothing where no token was ever copied."""
    if not any(spine in step.tree.source for step in steps):
        return ""
    parts = attribution(steps, spine)
    kinds = (
        ("spine only", parts.spine_only, "the path was copied to its end"),
        ("spine continuation", parts.spine_continuation, "the path left the spine and went on"),
        ("… after leaving it", parts.continued, "what the spine alone would have missed"),
        ("branch only", parts.branch_only, "the path holds no copied token"),
    )
    whole = parts.accepted or 1
    color = LOOKS["accepted"].color
    rows = ((name, n, f"{n / whole:.0%}", bar(n / whole, color), meaning) for name, n, meaning in kinds)
    caption = f"{plural(parts.accepted, 'accepted token')} in {plural(len(steps), 'iteration')}, by kind of path"
    return markup.table(caption, ("kind of path", "tokens", "share", "", "meaning"), rows)


def comparison_table(comparison: Comparison) -> str:
    """The run and each source alone on the same text, and their ratio."""
    own, best = comparison.runs[0], comparison.best_baseline
    sentence = (
        f"{comparison.synergy:.2f}: {own.tokens_per_iteration:.2f} tokens per iteration against {best.name} with "
        f"{best.tokens_per_iteration:.2f}, over the same first {plural(len(own.token_ids), 'token')}."
    )
    figures = {run.name: run.tokens_per_iteration for run in comparison.runs}
    most, color = max(figures.values()), LOOKS["accepted"].color
    rows = ((name, f"{figure:.2f}", bar(figure / most, color)) for name, figure in figures.items())
    table = markup.table("Against each source alone", ("run", "tokens per iteration", ""), rows)
    return table + said("Synergy", sentence)
