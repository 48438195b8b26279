"""The transition table as a dict of dicts, and the trees that are read off it, in the plainest Python."""

from __future__ import annotations

import math


class Table:
    """Successors of a token and of a pair of tokens: of at most so many pairs, the first in being the first out."""

    def __init__(self, width, pairs=0):
        self.width = width
        self.most = {1: 10**9, 2: pairs}
        self.after: dict[tuple[int, ...], dict[int, float]] = {}
        self.arrived: list[tuple[int, ...]] = []

    def harvest(self, previous, tokens, logits):
        for before, token, row in zip(previous, tokens, logits, strict=True):
            for key in ((token,), (before, token)):
                if self.most[len(key)]:
                    self._put(key, likeliest(row, self.width))

    def _put(self, key, row):
        if key not in self.arrived:
            alike = [other for other in self.arrived if len(other) == len(key)]
            if len(alike) == self.most[len(key)]:
                self.arrived.remove(alike[0])
                del self.after[alike[0]]
            self.arrived.append(key)
        self.after[key] = row

    def successors(self, previous, token):
        return self.after.get((previous, token)) or self.after.get((token,)) or {}


def likeliest(logits, width):
    """The `width` likeliest tokens and their probabilities under the softmax of all logits, best first."""
    high = max(logits)
    total = sum(math.exp(value - high) for value in logits)
    best = sorted(range(len(logits)), key=lambda token: -logits[token])[:width]
    return {token: math.exp(logits[token] - high) / total for token in best}


def static_tree(table, text, template, depth):
    """Token Recycling: the paths below the root of a template's nodes, a node being the r-th
    successor of its parent.

    In the template's order; nodes without a successor, and those below them, are left out, as are
    nodes too deep.
    """
    whole = (text[-2] if len(text) > 1 else -1, text[-1])
    paths: list[tuple[int, ...] | None] = [()]
    for parent, rank in template:
        above = paths[parent]
        after = (
            []
            if above is None or len(above) >= depth
            else list(table.successors(*(*whole, *above)[-2:]))
        )
        paths.append((*above, after[rank]) if above is not None and rank < len(after) else None)
    return [path for path in paths[1:] if path is not None]


def logs(probs):
    """A distribution as logits."""
    return [math.log(share) if share else -math.inf for share in probs]
