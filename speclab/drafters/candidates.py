"""From merged candidates to a draft: the tree, and the records of how it came about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import log
from typing import overload

from speclab.drafters.base import Draft, TopK
from speclab.sources.context import Match
from speclab.sources.trie import Trie
from speclab.trace.records import Event


def finished(trie: Trie, events: Sequence[Event]) -> Draft:
    """The draft of a finished trie: `events`, then one "expand" for each node that has children."""
    tree, order = trie.grown()
    expanded = {place: node for place, node in enumerate(order) if trie.children[node]}
    return Draft(tree, Told(events, trie, expanded), Tops(trie, expanded))


def match_event(match: Match) -> Event:
    """An n-gram that was found in the context, and how much was copied from there."""
    copied = len(match.tokens)
    values = {"ngram": match.length, "position": match.position, "copied": copied, "token": match.tokens[0]}
    return Event("match", None, f"{match.length}-gram at {match.position}, {copied} tokens to copy", values)


class Told(Sequence[Event]):
    """`first`, then an "expand" for each of `nodes` (place in the tree, number in the trie); made when it is read."""

    def __init__(self, first: Sequence[Event], trie: Trie, nodes: Mapping[int, int]) -> None:
        self._first, self._trie, self._nodes = first, trie, nodes

    @cached_property
    def _events(self) -> tuple[Event, ...]:
        return *self._first, *(_expanded(self._trie, place, node) for place, node in self._nodes.items())

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, place: int | slice) -> Event | tuple[Event, ...]:
        return self._events[place]

    def __len__(self) -> int:
        return len(self._first) + len(self._nodes)


class Tops(Mapping[int, TopK]):
    """For each expanded node its likeliest next tokens, worked out only when a record is made."""

    def __init__(self, trie: Trie, nodes: Mapping[int, int]) -> None:
        self._trie, self._nodes = trie, nodes

    def __getitem__(self, place: int) -> TopK:
        node = self._nodes[place]
        tokens, scores, weight = self._trie.looked_up.get(node, ((), (), 1.0))
        probs = {token: score * weight for token, score in zip(tokens, scores, strict=True)}
        probs |= {token: self._trie.prob[child] for token, child in self._trie.children[node].items()}
        best = sorted(probs.items(), key=lambda pair: -pair[1])
        return tuple((token, log(prob)) for token, prob in best if prob > 0)

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _expanded(trie: Trie, place: int, node: int) -> Event:
    sources = tuple([trie.source[child] for child in trie.children[node].values()])
    return Event("expand", place, _counted(sources), {"added": len(sources), "level": trie.depth[node] + 1})


@lru_cache(maxsize=256)
def _counted(sources: tuple[str, ...]) -> str:
    return ", ".join(f"{sources.count(name)} from {name}" for name in dict.fromkeys(sources))
