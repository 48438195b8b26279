"""Filling Sequoia's tree by rank: the child of rank r is the r-th candidate of its parent, from a draft or a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, prod
from typing import TYPE_CHECKING, Protocol

from speclab.drafters.base import Context, Draft, ReplayContext, TopK
from speclab.drafters.candidates import finished
from speclab.drafters.draft_forward import Row
from speclab.drafters.policies import Candidate, Gate, blank_gate, depth_gate
from speclab.drafters.ranks import RankRates
from speclab.errors import NotRecordedError
from speclab.sources.trie import Trie
from speclab.trace.records import Event, Value

if TYPE_CHECKING:
    from speclab.drafters.draft_forward import DraftForward
    from speclab.drafters.sequoia import SequoiaTree

Ask = Callable[[Sequence[Row], Sequence[int]], Sequence[TopK]]
_OF_THE_TABLE = ("successors", "carry", "table_megabytes")


class Passes(Protocol):
    """What a tree is filled from: `DraftForward`, or a record in their place."""

    def after_root(self, tokens: Sequence[int]) -> TopK: ...

    def after(self, rows: Sequence[Row]) -> list[TopK]: ...


def fill(trie: Trie, shape: Sequence[int], max_depth: int, source: str, ask: Ask) -> list[Event]:
    """Gives every node of the shape its token; returns why nodes have no children that should have some.

    Args:
        shape: parents, breadth-first. Nodes whose parent has too few candidates, or lies too deep, are left out.
        ask: (token, probability) of the best candidates of nodes of one level, so many of each as said.
    """
    node, level, stops = {0: 0}, [0], list[Event]()
    children: dict[int, list[int]] = {}
    for place, parent in enumerate(shape[1:], start=1):
        children.setdefault(parent, []).append(place)
    while asked := [place for place in level if place in children]:
        rows = [Row(node[place], trie.parent[node[place]], trie.token[node[place]]) for place in asked]
        if trie.depth[rows[0].node] >= max_depth:
            return [*stops, *(_stopped(trie, row.node, depth_gate("the context", max_depth)) for row in rows)]
        level = []
        found = ask(rows, [len(children[place]) for place in asked])
        for parent, top in zip(asked, found, strict=True):
            for place, (token, prob) in zip(children[parent], top, strict=False):
                if prob > 0:
                    node[place] = trie.add(node[parent], token, prob, source)
                    level.append(place)
            if not top:
                stops.append(_stopped(trie, node[parent], blank_gate()))
    return stops


def filled(
    settings: SequoiaTree, measured: RankRates, passes: Passes, context: Context, source: str = "draft"
) -> tuple[Trie, list[Event]]:
    """The tree from what a draft says, a level a pass; and why nodes have no children that should have some."""
    trie = Trie(context.tokens[-1])

    def ask(rows: Sequence[Row], counts: Sequence[int]) -> list[TopK]:
        context.check()
        tops = passes.after(rows) if rows[0].node else [passes.after_root(context.tokens)]
        for row, top in zip(rows, tops, strict=True):
            trie.looked_up[row.node] = [token for token, _ in top], [_prob(log_prob) for _, log_prob in top], 1.0
        # A top that is cut says so where the record that it comes from holds no more.
        cut = [top[:count] for top, count in zip(tops, counts, strict=True)]
        return [tuple((token, _prob(log_prob)) for token, log_prob in top) for top in cut]

    return trie, fill(trie, settings.shape(measured), context.max_depth, source, ask)


def route(trie: Trie, name: str) -> str:
    """What the way of a draft is called."""
    return name if len(trie) > 1 else "plain"


def replay(settings: SequoiaTree, record: ReplayContext) -> Draft:
    """The tree of a recorded step under other settings, with what was measured and known by then.

    Raises:
        NotRecordedError: these settings would have measured, or known, what the record does not hold.
    """
    known, was = record.step.adaptation.before, record.was.describe()
    measured = RankRates.recorded(known, settings.successors)
    if settings.source == "draft":
        trie, stops = filled(settings, measured, record.passes, record.context)
        return finished(trie, [Event("route", None, "draft", {"route": route(trie, "draft")}), *stops])
    changed = [name for name in _OF_THE_TABLE if was.get(name) != getattr(settings, name)]
    if changed:
        raise NotRecordedError(f"with another {changed[0]} the table of transitions would have held other rows")
    trie, stops = filled(settings, measured, _Rows(record.passes), record.context, "transition")
    values: Mapping[str, Value] = next((e.values for e in record.step.events if e.kind == "route"), {})
    name = route(trie, "transitions")
    return finished(trie, [Event("route", None, name, {**values, "route": name}), *stops])


class _Rows:
    """A table's rows as they are recorded: each is whole, so one that is shorter than asked for lacks nothing."""

    def __init__(self, passes: DraftForward) -> None:
        self._passes = passes

    def after_root(self, tokens: Sequence[int]) -> TopK:
        return tuple(self._passes.after_root(tokens))

    def after(self, rows: Sequence[Row]) -> list[TopK]:
        return [tuple(top) for top in self._passes.after(rows)]


def _stopped(trie: Trie, node: int, gate: Gate) -> Event:
    path = [node]
    while trie.parent[path[-1]] >= 0:
        path.append(trie.parent[path[-1]])
    candidate = Candidate(trie.depth[node], trie.prob[node], prod(trie.prob[each] for each in path))
    values = {"gate": gate.name, "path_prob": candidate.path_prob, "level": candidate.depth, **gate.values}
    return Event("stop", node, gate.reason(candidate), values)


def _prob(log_prob: float) -> float:
    return min(exp(log_prob), 1.0)
