"""What an iteration did, in plain sentences."""

from __future__ import annotations

from collections.abc import Callable

from speclab.trace.records import Step, Trace
from speclab.views import markup
from speclab.views.explain import sentence
from speclab.views.tokens import quoted
from speclab.views.walk import WHOLE, Moment, Phase, own_kind, verified_root, walk


def plural(count: int, noun: str) -> str:
    """`1 level`, `3 levels`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def summary(step: Step) -> str:
    """One sentence, such as: Iteration 3: 12 drafted in 4 levels, 5 accepted, bonus '␣the'."""
    counts, depth = step.counts, int(step.tree.depth.max())
    levels = depth if verified_root(step) else depth + 1
    drafted = f"{counts.drafted} drafted in {plural(levels, 'level')}" if counts.drafted else "nothing drafted"
    parts = [drafted, f"{len(step.accepted)} accepted", _own(step)] if counts.drafted else [drafted, _own(step)]
    note = f" {step.note}" if step.note else ""
    return f"Iteration {step.index + 1}: {', '.join(parts)}.{note}"


def _own(step: Step) -> str:
    if step.bonus is None:
        return "the text ended inside the path"
    return f"{own_kind(step)} {quoted(step.bonus, step.texts)}"


def moment_summary(step: Step, moment: Moment = WHOLE) -> str:
    """One sentence on what the moment shows."""
    return _TOLD[moment.phase](step, moment)


def _flatten(step: Step, _: Moment) -> str:
    nodes = plural(len(step.tree), "node")
    return f"Flatten: {nodes} in breadth-first order, each sees the prefix of {step.prefix_length} and its ancestors."


def _verify(step: Step, _: Moment) -> str:
    return f"Verify: one target pass over {plural(len(step.tree), 'row')} gives the target's choice after every node."


def _commit(step: Step, _: Moment) -> str:
    return f"Commit: {plural(len(step.committed), 'token')} added; the caches keep the path and drop the rest."


def _adapt(step: Step, _: Moment) -> str:
    change = step.adaptation
    moved = [f"{name} {change.before.get(name)} → {value}" for name, value in change.after.items()
             if change.before.get(name) != value]  # fmt: skip
    told = change.reason or "nothing to change"
    return f"Adapt: {told}{': ' if moved else ''}{', '.join(moved)}."


def _draft(step: Step, moment: Moment) -> str:
    if moment.event is not None:
        if not moment.event:
            return "Draft: the root alone."
        event = step.events[min(moment.event, len(step.events)) - 1]
        where = "" if event.node is None else f" node {event.node}"
        return f"Draft, decision {moment.event} of {len(step.events)}:{where} {sentence(event)}."
    depth = step.tree.depth
    level = int(depth.max()) if moment.level is None else moment.level
    added = int((depth == level).sum())
    return (
        f"Draft, level {level} of {depth.max()}: {plural(added, 'node')} added." if level else "Draft: the root alone."
    )


def _accept(step: Step, moment: Moment) -> str:
    decisions = walk(step)
    if not decisions:
        return "Accept: nothing to decide."
    taken = len(decisions) if moment.level is None else min(moment.level, len(decisions))
    decision = decisions[max(taken - 1, 0)]
    where = f"after node {decision.at}" if decision.at >= 0 else "before the root"
    choice = quoted(decision.choice, step.texts)
    if decision.winner is not None:
        outcome = f"node {decision.winner} carries it, go down"
    elif decision.candidates:
        outcome = "no child carries it, so it is the correction and the walk ends"
    else:
        outcome = "there is no child, so it is the bonus token"
    return f"Accept, decision {taken} of {len(decisions)}: {where} the target chose {choice}; {outcome}."


_TOLD: dict[Phase, Callable[[Step, Moment], str]] = {
    "draft": _draft,
    "flatten": _flatten,
    "verify": _verify,
    "accept": _accept,
    "commit": _commit,
    "adapt": _adapt,
}


def table(trace: Trace, cursor: int | None = None) -> str:
    """One row an iteration, as an HTML table."""
    rows = (
        (step.index + 1, step.prefix_length, step.counts.drafted, len(step.accepted), len(step.committed),
         "" if step.bonus is None else quoted(step.bonus, step.texts), 1000 * step.counts.seconds)
        for step in trace.steps[:cursor]
    )  # fmt: skip
    head = ("iteration", "prefix", "drafted", "accepted", "committed", "bonus", "ms")
    return markup.table("Iterations", head, rows)
