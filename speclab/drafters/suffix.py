"""A suffix automaton: every phrase of a growing text, in about one state a token.

Built online (Blumer et al. 1985). A state is a set of phrases that end at the same places; its link
leads to the longest of their suffixes that ends at more places. So the links from the state of the
whole text lead to its suffixes that occurred before, longest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count

from speclab.drafters.candidates import Candidates

BREAK = -1
"""Separates two texts; no phrase goes on after it."""


class SuffixAutomaton:
    """The phrases of a text, how often each occurs and where; reading a token takes amortised O(1).

    It depends on the text alone: it is not part of a drafter's learned state, and a fork builds its
    own.

    Attributes: lists with an entry per state; state 0 is the empty phrase.
        after: by token, the state of these phrases with this token after them.
        link: the state of their longest suffix that ends at more places.
        length: tokens of the longest phrase.
        count: occurrences.
        last, before: tokens of the text up to the end of the last occurrence, and of the last but
            one; 0 if there is none.

    Args:
        longest: phrases of up to so many tokens are counted as the text grows.
    """

    def __init__(self, longest: int = 0) -> None:
        self._longest = longest
        self._clear()

    def _clear(self) -> None:
        self.tokens: list[int] = []
        self.after: list[dict[int, int]] = [{}]
        self.link = [-1]
        self.length = [0]
        self.count = [0]
        self.last = [0]
        self.before = [0]
        self.recent = 0  # the state of the last `longest` tokens
        self._whole = 0  # and of all tokens

    def read(self, text: Sequence[int]) -> None:
        """Reads the text of the last call, extended; a shorter text is read from its start."""
        if len(text) < len(self.tokens):
            self._clear()
        start = len(self.tokens)
        self.tokens += text[start:]
        after, link, length = self.after, self.link, self.length
        count, last, before = self.count, self.last, self.before
        longest = self._longest
        recent = self.recent
        for end, token in enumerate(self.tokens[start:], start=start + 1):
            new = len(link)
            after.append({})
            link.append(0)
            length.append(end)
            count.append(0)
            last.append(0)
            before.append(0)
            state = self._whole
            while state >= 0 and token not in after[state]:  # suffixes that it never followed
                after[state][token] = new
                state = link[state]
            if state >= 0:  # the longest suffix that it did follow
                found = after[state][token]
                if length[found] > length[state] + 1:
                    found = self._split(found, state, token)
                link[new] = found
            self._whole = new
            # the phrases of at most `longest` tokens that it ends: few, unless the text goes round
            recent = after[recent][token] if longest else 0
            while length[link[recent]] >= longest > 0:
                recent = link[recent]
            state = recent
            while state:
                count[state] += 1
                before[state] = last[state]
                last[state] = end
                state = link[state]
        self.recent = recent

    def _split(self, whole: int, state: int, token: int) -> int:
        """The state of the shorter phrases of `whole`, which end at one more place from now on."""
        short = len(self.link)
        self.after.append(self.after[whole].copy())
        self.length.append(self.length[state] + 1)
        for column in (self.link, self.count, self.last, self.before):
            column.append(column[whole])
        self.link[whole] = short
        while state >= 0 and self.after[state].get(token) == whole:
            self.after[state][token] = short
            state = self.link[state]
        return short

    @classmethod
    def of(cls, tokens: Sequence[int]) -> SuffixAutomaton:
        """The automaton of texts that do not grow, each with a `BREAK` after it."""
        made = cls()
        made.read(tokens)
        state = 0
        for (
            token
        ) in tokens:  # the phrases from the start on, each of which ends at a place of its own
            state = made.after[state][token]
            made.count[state] = 1
        for state in sorted(range(1, len(made.link)), key=made.length.__getitem__, reverse=True):
            made.count[made.link[state]] += made.count[state]
        return made

    def match(self, phrase: Sequence[int]) -> tuple[int, int]:
        """The state of the longest suffix of a phrase that the text contains, and its length."""
        state = length = 0
        for token in phrase:
            while state and token not in self.after[state]:
                state = self.link[state]
                length = self.length[state]
            if token in self.after[state]:
                state = self.after[state][token]
                length += 1
        return state, length

    def followed(self, state: int) -> int:
        """How often a token follows a phrase: not where the phrase ends the text."""
        return self.count[state] - (self.last[state] == len(self.tokens))

    def continuations(self, state: int) -> Iterator[tuple[int, int, float]]:
        """What follows a phrase, by token: the token, the state with it, and its share."""
        for token, longer in sorted(self.after[state].items()):
            if token != BREAK:
                yield token, longer, self.count[longer] / self.followed(state)


def add_frequent(
    tree: Candidates,
    texts: SuffixAutomaton,
    match: int,
    budget: int,
    max_depth: int,
    source: str,
    least: float = 0.0,
) -> None:
    """Adds the most frequent continuation of a match to a tree, the oldest of equal ones, until it
    has `budget` nodes; `least`: path probability of a node.
    """
    waiting: list[tuple[int, int, int, int, float, int]] = []
    age = count()

    def offer(node: int, state: int) -> None:
        if tree.depth[node] < max_depth:
            for token, longer, share in texts.continuations(state):
                if tree.path_prob[node] * share >= least:
                    occurs = texts.count[longer]
                    heappush(waiting, (-occurs, next(age), node, token, share, longer))

    offer(0, match)
    while waiting and len(tree) < budget:
        _, _, parent, token, share, state = heappop(waiting)
        offer(tree.add(parent, token, share, source), state)
