"""SuffixDecoding: what followed the last tokens in this request and in earlier outputs (Oliaro et al., 2024).

arXiv 2411.04975, the section on its method: two suffix trees, of this request (prompt and output so far) and of earlier
outputs. The last p tokens lead to a node in each; below it a speculation tree of at most MAX_SPEC(p) = α p tokens is
grown, always the token with the largest D(N), the product of the shares C(N) on its path. SCORE, the sum of D(N) over
a tree, is the number of its tokens that one may expect to be accepted: the pattern length and the suffix tree with the
largest are taken.

C(N) is a token's share of all that followed its parent somewhere, as later accounts of the paper give it. Its authors'
ArcticInference (suffix_tree.cc at 0a11e6a) divides by the occurrences of the parent, of which the one that the
text ends in has no follower: there a pattern seen once before promises its next token 1/2, and 1 here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from speclab.drafters.base import Budget, Context, Draft, Drafter, LazyEvents, Outcome, Outline, Strategy
from speclab.drafters.measures import PathProbability
from speclab.drafters.training_free import draft_of
from speclab.errors import SettingsError
from speclab.sources.suffix_tree import BREAK, Places, SuffixTree, corpus, encoded
from speclab.sources.trie import Trie
from speclab.trace.records import Adaptation, Event

if TYPE_CHECKING:
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner
    from speclab.models.transfers import Logits

LOCAL, GLOBAL = "per-request", "global"
"""The two suffix trees; what they propose has their name as its source."""
MOST_REQUESTS = 10_000
_KEY = "SuffixDecoding: earlier outputs"
Outputs = dict[object, NDArray[np.int32]]
"""Outputs by request, the oldest first."""


class SuffixDecoding(Strategy):
    """A tree of what followed the longest useful match of the last tokens, in this request and in earlier outputs."""

    max_spec_factor: float = Field(
        default=1.0,
        gt=0,
        le=16,
        title="α",
        description="tokens drafted at most for each token of the pattern that matched",
    )
    min_token_prob: PathProbability = Field(
        default=0.1, ge=0, le=1, description="least estimated probability of a drafted token, its path included"
    )
    max_tree_depth: int = Field(
        default=64,
        ge=2,
        le=256,
        description="depth of the suffix trees: pattern and drafted path together, and the most tokens",
    )
    max_cached_requests: int = Field(
        default=0,
        ge=0,
        le=MOST_REQUESTS,
        description="outputs of earlier prompts on this pair in the global tree, the newest; 0: none are kept or read",
    )
    corpus: str = Field(
        default="", description="a text file or a folder of them that is in the global tree besides; empty: none"
    )
    use_tree_spec: bool = Field(
        default=True, description="draft a tree; or one path, the most frequent token each time"
    )
    budget: Budget = "fixed"

    @classmethod
    def presets(cls) -> dict[str, Strategy]:
        return {
            "this request alone (α = 1)": cls(budget="fixed"),
            "paper: with earlier outputs": cls(max_cached_requests=MOST_REQUESTS),
            "paper: one path": cls(max_cached_requests=MOST_REQUESTS, use_tree_spec=False),
            "paper: α = 4": cls(max_cached_requests=MOST_REQUESTS, max_spec_factor=4),
            "as vLLM's defaults": cls(
                max_cached_requests=MOST_REQUESTS, max_tree_depth=24, use_tree_spec=False
            ),
            "cost-aware number of nodes (not in the paper)": cls(budget="auto"),
        }  # fmt: skip

    def outline(self) -> Outline:
        tokens = min(self.max_tree_depth, 32)  # the most; what is drafted follows from the match
        return Outline("suffix", {**self.model_dump(), "tokens": tokens, "tree": self.use_tree_spec})

    def drafter(self, pair: ModelPair) -> Drafter:
        return _SuffixDrafter(self, pair)

    def learn(self, pair: ModelPair, outputs: Iterable[str | Sequence[int]]) -> None:
        """Adds outputs, texts or token ids, as if they had been decoded on this pair now; of the oldest some may leave.

        A session or text that has begun does not see them. `learned` gives what to save, and this takes it back.

        Raises:
            SpeclabError: `max_cached_requests` is 0, it is one text in place of several, there is no tokenizer to read
                text, or an id is no token.
        """
        store = self._store(pair)
        every = None if isinstance(outputs, str) or not isinstance(outputs, Iterable) else list(outputs)
        if every is None or not all(isinstance(one, Iterable) for one in every):
            raise SettingsError("learn() takes several outputs: give a list, such as [text] or [token_ids]")
        read = [encoded(pair, one) if isinstance(one, str) else [*one] for one in every]
        for ids in [pair.encode(ids) for ids in read if ids]:
            _keep(store, object(), ids)

    def learned(self, pair: ModelPair) -> list[list[int]]:
        """Token ids of the outputs that a text begun now would find in the global tree, the oldest first."""
        return [ids.tolist() for ids in list(self._store(pair).values())[-self.max_cached_requests :]]

    def forget(self, pair: ModelPair) -> None:
        """Empties the store of outputs of this pair, for every `SuffixDecoding` on it; `corpus` stays."""
        self._store(pair).clear()

    def _store(self, pair: ModelPair) -> Outputs:
        if not self.max_cached_requests:
            raise SettingsError(
                "no outputs are kept: max_cached_requests is 0; set how many, such as "
                "SuffixDecoding(max_cached_requests=1000)"
            )
        return _outputs(pair)


def _outputs(pair: ModelPair) -> Outputs:
    found: Outputs = pair.shared_state.setdefault(_KEY, {})
    return found


def _keep(outputs: Outputs, request: object, ids: Sequence[int]) -> None:
    """Takes in what a request has written so far; first in, first out."""
    outputs[request] = np.asarray(ids, np.int32)
    if len(outputs) > MOST_REQUESTS:
        del outputs[next(iter(outputs))]


class Grown(NamedTuple):
    """A token of a speculation tree, as it was added.

    `parent`: its place among those added, from 1 on; 0 is N_p. `places` of `among` followed occurrences of its parent's
    phrase go on with it: their ratio is C(N). `prob`: D(N), with its path.
    """

    parent: int
    token: int
    places: int
    among: int
    prob: float


@dataclass(frozen=True, slots=True)
class Pattern:
    """The last `length` tokens, p, found in one of the suffix trees: at `node`, N_p.

    `most`: tokens that may be drafted below it. `deepest`: how long a path may be.
    """

    source: str
    tree: SuffixTree
    length: int
    node: Places
    most: int
    deepest: int

    @property
    def bound(self) -> tuple[int, bool, int]:
        """No less than `rank` of what is grown here: the D(N) of a level sum to 1 at most, and so does each alone."""
        return min(self.most, self.deepest), self.source == LOCAL, self.length

    def rank(self, score: float) -> tuple[float, bool, int]:
        """By which the best is taken: its score; of equals this request's, then the longest pattern's."""
        return score, self.source == LOCAL, self.length

    def grow(self, settings: SuffixDecoding) -> Speculation:
        """The speculation tree: of all tokens that could be added, always the one with the largest D(N).

        Of tokens with the same D(N) the first that was found is added; of siblings with the same count the one seen
        last comes first.
        """
        grown: list[Grown] = []
        followers: dict[int, tuple[tuple[int, float], ...]] = {}
        waiting: list[tuple[float, int, int, Grown, Places]] = []
        ages = count()

        def offer(parent: int, depth: int, prob: float, node: Places) -> None:
            children = sorted(self.tree.children(node), key=lambda child: (-len(child[1]), -child[1][-1]))
            among = sum(len(places) for _, places in children)
            followers[parent] = tuple([(token, len(places) / among) for token, places in children])
            for token, places in children if settings.use_tree_spec else children[:1]:
                share = prob * len(places) / among  # D(N) = D(parent) C(N)
                if share < settings.min_token_prob:
                    break
                one = Grown(parent, token, len(places), among, share)
                heappush(waiting, (-share, next(ages), depth + 1, one, places))

        if min(self.most, self.deepest) > 0:
            offer(0, 0, 1.0, self.node)
        while waiting and len(grown) < self.most:
            _, _, depth, one, places = heappop(waiting)
            grown.append(one)
            if depth < self.deepest and len(grown) < self.most:
                offer(len(grown), depth, one.prob, places)
        return Speculation(self, tuple(grown), followers)


@dataclass(frozen=True, slots=True)
class Speculation:
    """A speculation tree. `followers`: every token that follows an expanded one somewhere, with its share C(N)."""

    pattern: Pattern
    grown: tuple[Grown, ...]
    followers: dict[int, tuple[tuple[int, float], ...]]

    @property
    def score(self) -> float:
        """SCORE: the sum of D(N), how many of its tokens may be expected to be accepted."""
        return sum(one.prob for one in self.grown)

    @property
    def rank(self) -> tuple[float, bool, int]:
        """See `Pattern.rank`."""
        return self.pattern.rank(self.score)

    def trie(self, root: int) -> Trie:
        """As a draft tree below the newest token."""
        trie = Trie(root)
        for one in self.grown:
            trie.add(one.parent, one.token, one.places / one.among, self.pattern.source)
        for node, following in self.followers.items():
            trie.looked_up[node] = [token for token, _ in following], [share for _, share in following], 1.0
        return trie


class _SuffixDrafter(Drafter):
    """Keeps no more than the outputs that were there when its request began; the request's own tree is of its text."""

    settings: SuffixDecoding
    state = ("_earlier", "_prompt_length")
    host_seconds = 3e-4

    def __init__(self, settings: SuffixDecoding, pair: ModelPair) -> None:
        super().__init__(settings)
        self._outputs = _outputs(pair) if settings.max_cached_requests else None
        earlier = corpus(pair, settings.corpus) if settings.corpus else SuffixTree()
        if self._outputs:
            newest = list(self._outputs.values())[-settings.max_cached_requests :]
            parts = [part for ids in newest for part in (ids, [BREAK])]
            earlier = SuffixTree(np.concatenate([earlier.tokens[:-1], *parts]))
        self._earlier, self._own = earlier, SuffixTree()
        self._request, self._prompt_length, self._written = object(), -1, list[int]()

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Logits:
        self._prompt_length = len(prompt_ids)
        return super().prefill(target, prompt_ids)

    def skip(self, context: Context) -> None:
        if self._prompt_length < 0:  # begun by a fork from another strategy, which says of no token whose it is
            self._prompt_length = len(context.tokens) - 1
        if self._outputs is not None:
            self._written = list(context.tokens[self._prompt_length :])

    def draft(self, context: Context) -> Draft:
        """The best speculation tree of all pattern lengths and of both suffix trees."""
        self.skip(context)
        if len(self._own) > len(context.tokens):  # an iteration was undone
            self._own = SuffixTree()
        self._own = self._own.extended(context.tokens[len(self._own) :])
        context.check()
        patterns = sorted(self._patterns(context), key=lambda pattern: pattern.bound, reverse=True)
        best: Speculation | None = None
        for pattern in patterns:
            if best is not None and best.rank >= pattern.bound:
                break  # neither this one nor any after it can be better
            found = pattern.grow(self.settings)
            if found.grown and (best is None or found.rank > best.rank):
                best = found
        trie = Trie(context.tokens[-1]) if best is None else best.trie(context.tokens[-1])
        settings, earlier = self.settings, len(self._earlier)
        return draft_of(trie, LazyEvents(lambda: _events(best, trie, patterns, settings, earlier)))

    def _patterns(self, context: Context) -> Iterator[Pattern]:
        """The last 1, 2, … tokens, as long as they occur and the suffix trees are deep."""
        s = self.settings
        recent = context.tokens[1 - s.max_tree_depth :]
        own = self._own.suffixes(recent)
        earlier_here = [places[:-1] for places in own if len(places) > 1]  # the text ends in them once more
        for source, tree, nodes in (
            (LOCAL, self._own, earlier_here),
            (GLOBAL, self._earlier, self._earlier.suffixes(recent)),
        ):
            for length, node in enumerate(nodes, start=1):
                most = min(int(s.max_spec_factor * length + 1e-6), s.max_tree_depth)  # MAX_SPEC(p) = α p
                yield Pattern(source, tree, length, node, most, min(s.max_tree_depth - length, context.max_depth))

    def update(self, outcome: Outcome) -> Adaptation:
        """Keeps what was written so far for the prompts that follow, where outputs are kept."""
        if self._outputs is None:
            return super().update(outcome)
        _keep(self._outputs, self._request, [*self._written, *outcome.committed])
        return Adaptation(f"{len(outcome.committed)} tokens added to this output, for the prompts that follow")


def _events(
    best: Speculation | None, trie: Trie, patterns: Sequence[Pattern], settings: SuffixDecoding, earlier: int
) -> Iterator[Event]:
    """The choice, the score of every pattern length, and the tokens in the order they were added."""
    values = {"match": 0, "occurrences": 0, "score": 0.0, "earlier_tokens": earlier}
    if best is None:
        reason = "nothing likely enough follows" if patterns else "the newest token did not occur before"
        yield Event("route", None, f"plain: {reason}", {"route": "plain", **values})
    else:
        at = best.pattern
        values |= {"match": at.length, "occurrences": len(at.node), "score": best.score}
        reason = f"{_found(at)}; drafted below it: {len(best.grown)}, score {best.score:.2f}"
        yield Event("route", None, f"{at.source}: {reason}", {"route": at.source, **values})
    for pattern in sorted(patterns, key=lambda one: (one.source != LOCAL, one.length)):
        found = best if best is not None and pattern is best.pattern else pattern.grow(settings)
        values = {"pattern": pattern.length, "occurrences": len(pattern.node), "tokens": len(found.grown),
                  "score": found.score, "most": pattern.most}  # fmt: skip
        yield Event("score", None, f"{pattern.source}: {_found(pattern)}",
                    {"tree": pattern.source, **values, "chosen": found is best})  # fmt: skip
    _, order = trie.grown()
    for place, node in enumerate(order[1:], start=1):
        one = best.grown[node - 1] if best is not None else None
        assert one is not None
        counts = {"order": node, "places": one.places, "among": one.among}
        yield Event("added", place, f"as number {node}: {one.places} of {one.among} places go on so", counts)


def _found(pattern: Pattern) -> str:
    where = "earlier in this request" if pattern.source == LOCAL else "in earlier outputs"
    what = "the newest token occurs" if pattern.length == 1 else f"the last {pattern.length} tokens occur"
    return f"{what} {'once' if len(pattern.node) == 1 else f'{len(pattern.node)} times'} {where}"
