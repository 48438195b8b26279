"""A suffix automaton: every phrase of a growing text, in about one state a token.

Built online (Blumer et al. 1985). A state is a set of phrases that end at the same places; its link
leads to the longest of their suffixes that ends at more places. So the links from the state of the
whole text lead to its suffixes that occurred before, longest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter, itemgetter

from speclab.drafters.candidates import Candidates

BREAK = -1
"""Separates two texts; no phrase goes on after it."""


@dataclass(slots=True, eq=False)
class Phrases:
    """A state: phrases that end at the same places of the text.

    `length`: tokens of the longest. `link`: the state of its longest suffix that ends at more
    places; None for the empty phrase. `count`: occurrences. `first`, `last`, `before`: tokens of
    the text up to the end of the first occurrence, of the last, and of the last but one; 0 if
    there is none. `after`: by token, the state with this token after them.
    """

    length: int = 0
    link: Phrases | None = None
    first: int = 0
    count: int = 0
    last: int = 0
    before: int = 0
    after: dict[int, Phrases] = field(default_factory=dict)


class SuffixAutomaton:
    """The phrases of a text, how often each occurs and where; reading a token takes amortised O(1).

    It depends on the text alone: it is not part of a drafter's learned state, a fork builds its own,
    and a read that an interrupt stopped is begun again.

    Attributes:
        states: of all phrases, the first of the empty one.
        recent: the state of the last `longest` tokens.

    Args:
        longest: phrases of up to so many tokens are counted as the text grows.
    """

    def __init__(self, longest: int = 0) -> None:
        self._longest = longest
        self._reading = False
        self._clear()

    def _clear(self) -> None:
        self.tokens: list[int] = []
        self.recent = self._whole = Phrases()
        self.states = [self.recent]

    def read(self, text: Sequence[int]) -> None:
        """Reads the text of the last call, extended; a shorter text is read from its start."""
        again = self._reading or len(text) < len(self.tokens)
        self._reading = True
        if again:
            self._clear()
        for token in text[len(self.tokens) :]:
            self.tokens.append(token)
            new = Phrases(len(self.tokens), self.states[0], first=len(self.tokens))
            self.states.append(new)
            state: Phrases | None = self._whole
            while state and token not in state.after:  # suffixes that it never followed
                state.after[token] = new
                state = state.link
            if state:  # the longest suffix that it did follow
                new.link = state.after[token]
                # it also holds longer phrases, which do not end here
                if new.link.length > state.length + 1:
                    new.link = self._split(new.link, state, token)
            self._whole = new
            if self._longest:
                self._count(token)
        self._reading = False

    def _count(self, token: int) -> None:
        """Counts the phrases of at most `longest` tokens that the newest token ends: few, unless
        the text goes round.
        """
        state = self.recent.after[token]
        while state.link and state.link.length >= self._longest:
            state = state.link
        self.recent = state
        while state.link:
            state.count += 1
            state.before = state.last
            state.last = len(self.tokens)
            state = state.link

    def _split(self, whole: Phrases, shorter: Phrases, token: int) -> Phrases:
        """The state of the shorter phrases of `whole`, which end at one more place from now on."""
        # the longer phrases stay in `whole`; both go on as before, so the copy has its successors
        short = replace(whole, length=shorter.length + 1, after=whole.after.copy())
        self.states.append(short)
        whole.link = short
        state: Phrases | None = shorter
        while state and state.after.get(token) is whole:
            state.after[token] = short
            state = state.link
        return short

    @classmethod
    def of(cls, tokens: Sequence[int]) -> SuffixAutomaton:
        """The automaton of texts that do not grow, each with a `BREAK` after it."""
        automaton = cls()
        automaton.read(tokens)
        state = automaton.states[0]
        # the phrases from the start on, each of which ends at a place of its own
        for token in tokens:
            state = state.after[token]
            state.count = 1
        for state in sorted(automaton.states, key=attrgetter("length"), reverse=True):
            if state.link:
                state.link.count += state.count
        return automaton

    def match(self, phrase: Sequence[int]) -> tuple[Phrases, int]:
        """The state of the longest suffix of a phrase that the text contains, and its length."""
        state = self.states[0]
        length = 0
        for token in phrase:
            while state.link and token not in state.after:
                state = state.link
                length = state.length
            if token in state.after:
                state = state.after[token]
                length += 1
        return state, length

    def followed(self, state: Phrases) -> int:
        """How often a token follows a phrase: not where the phrase ends the text."""
        return state.count - 1 if state.last == len(self.tokens) else state.count

    def continuations(self, state: Phrases) -> Iterator[tuple[int, Phrases, float]]:
        """What follows a phrase, by token: the token, the state with it, and its share."""
        for token, longer in sorted(state.after.items(), key=itemgetter(0)):
            if token != BREAK:
                yield token, longer, longer.count / self.followed(state)


def add_frequent(
    tree: Candidates,
    texts: SuffixAutomaton,
    match: Phrases,
    budget: int,
    max_depth: int,
    source: str,
    least: float = 0.0,
) -> None:
    """Adds the most frequent continuation of a match to a tree, the oldest of equal ones, until it
    has `budget` nodes; `least`: path probability of a node.
    """
    waiting: list[tuple[int, int, int, int, float, Phrases]] = []
    age = count()

    def offer(node: int, state: Phrases) -> None:
        if tree.depth[node] < max_depth:
            for token, longer, share in texts.continuations(state):
                if tree.path_prob[node] * share >= least:
                    heappush(waiting, (-longer.count, next(age), node, token, share, longer))

    offer(0, match)
    while waiting and len(tree) < budget:
        _, _, parent, token, share, state = heappop(waiting)
        offer(tree.add(parent, token, share, source), state)
