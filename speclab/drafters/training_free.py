"""What strategies without a model share: settings, drafts from merged candidates, and a table of transitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from speclab.drafters.base import Context, Draft, Drafter, Outcome, TopK
from speclab.sources.context import Match, Pick
from speclab.sources.transitions import TransitionTable
from speclab.sources.trie import LookedUp, Trie
from speclab.trace.records import Adaptation, Event, Lookup, Value
from speclab.trace.records import Row as LookupRow

if TYPE_CHECKING:
    from speclab.models.answer import Answer
    from speclab.models.pair import ModelPair
    from speclab.models.runner import Runner

LongestNgram = Annotated[int, Field(ge=1, le=16, description="tokens of the longest match, which is tried first")]
ShortestNgram = Annotated[int, Field(ge=1, le=16, description="tokens of the shortest match")]
Which = Annotated[Pick, Field(description="which match: the last, the first, or the one that agrees longest before it")]
Carry = Annotated[
    Literal["cold", "carried"],
    Field(description="the transition table at the start of a prompt: empty, or as the prompt before left it"),
]
Successors = Annotated[int, Field(ge=1, le=64, description="successors kept of each token, and of each pair of tokens")]
BigramEntries = Annotated[
    int, Field(ge=0, le=1 << 22, description="pairs of tokens with successors of their own; 0 for single tokens only")
]
Megabytes = Annotated[
    int, Field(ge=1, le=4096, description="bound on the transition table's memory, in MiB; rows beyond it are hashed")
]

PREFILL_ROWS, PREFILL_LOGITS = 512, 1 << 24
"""A prompt is run in chunks of at most so many rows, and so many logits."""


def match_event(match: Match) -> Event:
    """An n-gram that was found in the context, and how much was copied from there."""
    copied = len(match.tokens)
    values = {"ngram": match.length, "position": match.position, "copied": copied, "token": match.tokens[0]}
    return Event("match", None, f"{match.length}-gram at {match.position}, {copied} tokens to copy", values)


def draft_of(trie: Trie, events: Sequence[Event]) -> Draft:
    """The draft of a finished trie: `events`, then one "expand" for each node that has children.

    Next tokens are worked out when they are read: `generate` keeps no records.
    """
    tree, order = trie.grown()
    expanded = {place: node for place, node in enumerate(order) if trie.children[node]}

    decisions = [*events, *(_expanded(trie, place, node) for place, node in expanded.items())]
    return Draft(tree, decisions, _Tops(trie, expanded))


def _expanded(trie: Trie, place: int, node: int) -> Event:
    sources = tuple([trie.source[child] for child in trie.children[node].values()])
    return Event("expand", place, _counted(sources), {"added": len(sources), "level": trie.depth[node] + 1})


@lru_cache(maxsize=256)
def _counted(sources: tuple[str, ...]) -> str:
    return ", ".join(f"{sources.count(name)} from {name}" for name in dict.fromkeys(sources))


class _Tops(Mapping[int, TopK]):
    """For each expanded node its most probable next tokens: of its source, and its children."""

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


class TableDrafter(Drafter):
    """Keeps a `table` of transitions, harvested from the prefill and every verified row, cold or carried over.

    A subclass drafts from it and may add to what is learned.

    Args:
        settings: of a strategy with `successors`, `carry` and `table_megabytes`.
    """

    state: ClassVar[tuple[str, ...]] = ("table",)

    def __init__(self, settings: Any, pair: ModelPair, bigram_entries: int = 0) -> None:
        super().__init__(settings)
        most_bytes = settings.table_megabytes << 20
        self.table = TransitionTable(pair.target.vocab_size, settings.successors, bigram_entries, most_bytes)
        self._carry = settings.carry
        self._shared = pair.shared_state if settings.carry == "carried" else None
        self._key = f"{type(settings).__name__}: {self.table.vocabulary} tokens, rows {self.table.ids.shape}"
        self._before_root = -1
        if self._shared is not None and self._key in self._shared:
            self.table.restore(self._shared[self._key])

    def prefill(self, target: Runner, prompt_ids: Sequence[int]) -> Answer:
        """Runs the prompt and harvests all its rows (GOOSE, appendix C.1), in one pass unless it is long."""
        rows = max(1, min(PREFILL_ROWS, PREFILL_LOGITS // target.vocab_size))
        before = -1
        for start in range(0, len(prompt_ids), rows):
            chunk = prompt_ids[start : start + rows]
            visible = np.tri(len(chunk), dtype=np.bool_)
            answer = target.logits(chunk, range(start, start + len(chunk)), visible)
            self.table.harvest([before, *chunk[:-1]], chunk, answer.topk(self.table.width))
            before = chunk[-1]
        self._publish()
        return answer[-1:]

    def rooted(self, context: Context) -> Trie:
        """A tree of the root alone."""
        self._before_root = context.tokens[-2] if len(context.tokens) > 1 else -1
        return Trie(context.tokens[-1])

    def successors(self, trie: Trie, node: int, weight: float = 1.0) -> LookedUp:
        """What the table has after a node, looked up once; `weight`: what its scores are multiplied by."""
        known = trie.looked_up.get(node)
        if known is None:
            previous = trie.token[trie.parent[node]] if node else self._before_root
            known = trie.looked_up[node] = (*self.table.successors(previous, trie.token[node]), weight)
        return known

    def route(self, name: str, reason: str = "", **values: Value) -> Event:
        """Which way the draft went, with the state of the table."""
        return Event("route", None, reason or name, {"route": name, **values, **self._known(), **self._kind()})

    def lookup(self, token: int, previous: int | None = None) -> Lookup:
        """The table's rows for a token, and its state."""
        rows = (
            LookupRow(key, tuple((after, score) for after, score in zip(*row, strict=True) if score > 0))
            for key, row in self.table.rows(token, previous).items()
        )
        return Lookup(tuple(rows), {**self._known(), **self._kind()})

    def learn(self, outcome: Outcome) -> Adaptation:
        """Harvests all rows of the tree, rejected ones too; the accepted path last, so that it counts."""
        tokens, parents = outcome.tree.token.tolist(), outcome.tree.parent.tolist()
        before = [self._before_root, *(tokens[parent] for parent in parents[1:])]
        order = sorted(range(len(tokens)), key=(0, *outcome.accepted).__contains__)
        known = self._known()
        self.table.harvest(before, tokens, outcome.answer.topk(self.table.width), order)
        self._publish()
        now = self._known()
        filled, refreshed = (now[name] - known[name] for name in ("table_rows", "rows_refreshed"))
        return Adaptation(f"{filled} table rows filled, {refreshed} refreshed", known, now)

    def restore(self, state: object) -> None:
        super().restore(state)
        self._publish()

    def _publish(self) -> None:
        """Leaves the table to the prompts that follow, where it is carried over."""
        if self._shared is not None:
            self._shared[self._key] = self.table.snapshot()

    def _kind(self) -> dict[str, Value]:
        kind = "dense" if self.table.dense else "hashed"
        return {"carry": self._carry, "table": kind, "table_bytes": self.table.bytes}

    def _known(self) -> dict[str, int]:
        table = self.table
        return {"table_rows": table.filled, "rows_refreshed": table.refreshed, "bigrams": table.bigrams}
