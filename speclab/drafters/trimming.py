"""A draft without the nodes that are not worth verifying, and the record of each that was left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from speclab.budgets import Choice
from speclab.drafters.base import Draft
from speclab.trace import Event
from speclab.tree import Floats

T = TypeVar("T")


def trimmed(draft: Draft, choice: Choice, reach: Floats) -> tuple[Draft, dict[int, int]]:
    """The draft of the nodes that are kept, and the new place of each of them.

    A "prune" event stands for all that is left out below one node, its likeliest first.
    """
    kept = np.flatnonzero(choice.keep).tolist()
    place = {node: index for index, node in enumerate(kept)}
    events = tuple(
        event if event.node is None or event.node == place[event.node] else replace(event, node=place[event.node])
        for event in draft.events
        if event.node is None or event.node in place
    )
    made = replace(
        draft,
        tree=draft.tree.select(choice.keep.tolist()),
        events=(*events, *_dropped(draft, choice, reach, place)),
        tops=Renumbered(draft.tops, place),
        laws=Renumbered(draft.laws, place),
    )
    return made, place


def told(choice: Choice, drafted: int) -> Event:
    """What was chosen, in one sentence with its numbers."""
    verified = int(choice.keep.sum())
    what = f"trimmed to {verified} of {drafted} nodes" if verified < drafted else f"all {drafted} nodes"
    reason = f"{what}: expected {choice.expected:.1f} tokens in {1000 * choice.seconds:.1f} ms"
    values = {
        "verified": verified,
        "drafted": drafted,
        "expected_tokens": choice.expected,
        "expected_seconds": choice.seconds,
        "tokens_per_second": choice.rate,
        "least_kept": choice.least,
    }
    return Event("budget", None, reason, values)


def untrimmed(drafted: int) -> Event:
    """Why a tree of draws is verified whole."""
    reason = f"all {drafted} nodes: to drop drawn candidates by their probability would bend their law"
    return Event("budget", None, reason, {"verified": drafted, "drafted": drafted})


def _dropped(draft: Draft, choice: Choice, reach: Floats, place: Mapping[int, int]) -> Iterator[Event]:
    """One event for each node that lost something: its likeliest lost child, and how many nodes were lost below it."""
    tree = draft.tree
    parents, likely = tree.parent.tolist(), reach.tolist()
    lost: dict[int, list[int]] = {}
    under: dict[int, int] = {}
    for node, above in enumerate(parents):
        if node not in place:
            under[node] = above if above in place else under[above]
            lost.setdefault(under[node], []).append(node)
    for above, nodes in lost.items():
        best = max(nodes, key=likely.__getitem__)
        reason = (
            f"expected to be accepted {likely[best]:.1%} of the time, and a further node pays from {choice.least:.1%}: "
            "not worth its time in the pass"
        )
        values = {
            "token": int(tree.token[best]), "expected": likely[best], "least": choice.least, "dropped": len(nodes)
        }  # fmt: skip
        yield Event("prune", place[above], reason, values)


class Renumbered(Mapping[int, T]):
    """What is known of nodes under their new places; looked up in the old mapping only when asked for."""

    def __init__(self, known: Mapping[int, T], place: Mapping[int, int]) -> None:
        self._known = known
        self._old = {place[node]: node for node in known if node in place}

    def __getitem__(self, place: int) -> T:
        return self._known[self._old[place]]

    def __iter__(self) -> Iterator[int]:
        return iter(self._old)

    def __len__(self) -> int:
        return len(self._old)
