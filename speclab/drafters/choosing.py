"""Two drafts from one root: the better-scoring one is verified, or both as one; and the record of the choice.

Dual-Draft Routing (2026): routing rule section 5, both trees as one section 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speclab.drafters.base import Draft
from speclab.drafters.merging import Places, merged
from speclab.drafters.scores import confidence, weighed
from speclab.trace.records import Event, Proposal, Value

Pair = tuple[float, float]


def routed(names: Sequence[str], drafts: Sequence[Draft], recent: Pair | None) -> tuple[Draft, int]:
    """The draft of the larger mean confidence, of two equal ones the first (section 5); and its place.

    Args:
        names: what the two are called.
        recent: tokens that each part got right lately, to weigh the means by; None compares the means.
    """
    means = [confidence(draft.tree) for draft in drafts]
    scores = means if recent is None else [weighed(*pair) for pair in zip(means, recent, strict=True)]
    chosen = int(scores[1] > scores[0])
    event = _decision(names, drafts, means, scores, recent)
    proposals = _proposals(names, drafts, means, scores, [place == chosen for place in (0, 1)])
    draft = drafts[chosen]
    return replace(draft, events=(event, *draft.events), proposals=proposals), chosen


def united(names: Sequence[str], drafts: Sequence[Draft]) -> tuple[Draft, list[Places]]:
    """Both as one prefix trie (section 10), and where the nodes of each stand in it."""
    means = [confidence(draft.tree) for draft in drafts]
    draft, places = merged(drafts, names)
    nodes = [len(one.tree) - 1 for one in drafts]
    shared = sum(nodes) - (len(draft.tree) - 1)
    reason = f"both trees as one: {nodes[0]} and {nodes[1]} nodes, {shared} in common"
    values: dict[str, Value] = {"route": "merge", "mean_first": means[0], "mean_second": means[1]}
    event = Event("route", None, reason, values | {"nodes": len(draft.tree), "shared": shared})
    proposals = _proposals(names, drafts, means, means, [True, True])
    return replace(draft, events=(event, *draft.events), proposals=proposals), places


def _decision(
    names: Sequence[str], drafts: Sequence[Draft], means: Sequence[float], scores: Sequence[float], recent: Pair | None
) -> Event:
    chosen = int(scores[1] > scores[0])
    values: dict[str, Value] = {
        "route": names[chosen],
        "mean_first": means[0],
        "mean_second": means[1],
        "margin": scores[chosen] - scores[1 - chosen],
        "chosen": ("first", "second")[chosen],
        "nodes": len(drafts[chosen].tree),
        "nodes_first": len(drafts[0].tree),
        "nodes_second": len(drafts[1].tree),
    }
    sign, what = "=" if scores[0] == scores[1] else ">", "mean confidence"
    if recent is not None:
        what += ", weighed by what was right lately,"
        values |= {"recent_first": recent[0], "recent_second": recent[1]}
    reason = f"{names[chosen]}: {what} {scores[chosen]:.3g} {sign} {scores[1 - chosen]:.3g} of {names[1 - chosen]}"
    return Event("route", None, reason, values)


def _proposals(
    names: Sequence[str],
    drafts: Sequence[Draft],
    means: Sequence[float],
    scores: Sequence[float],
    chosen: Sequence[bool],
) -> tuple[Proposal, ...]:
    rows = zip(names, drafts, means, scores, chosen, strict=True)
    return tuple(Proposal(name, draft.tree, mean, score, took) for name, draft, mean, score, took in rows)
