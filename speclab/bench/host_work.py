"""What drafting without a model costs the host: looking up, building and learning, timed without any target.

A made text is replayed: each iteration drafts from the text so far, its tree is walked along the text that follows,
and rows of a fixed law stand in for the target's logits. Contexts of every length end in the same text, and all are
timed in turn, so a ratio of two of them compares like with like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from speclab.drafters import Strategy
from speclab.drafters.base import Context, Drafter, Outcome
from speclab.drafters.goose import Goose
from speclab.drafters.isotropic import IsotropicTree
from speclab.drafters.prompt_lookup import PromptLookup
from speclab.drafters.token_recycling import TokenRecycling
from speclab.sources.transitions import TransitionTable
from speclab.tree import DraftTree

CONTEXTS = (256, 4096)
BUDGET = 60
STRATEGIES: dict[str, Strategy] = {
    "Goose": Goose(node_budget=BUDGET),
    "IsotropicTree": IsotropicTree(node_budget=BUDGET),
    "TokenRecycling": TokenRecycling(node_budget=BUDGET),
    "PromptLookup": PromptLookup(),
}
WIDE = 150_000
"""Tokens of a large vocabulary, for which the tables' memory is shown."""

LAW_ROWS, SHARPNESS, RARENESS = 512, 2.0, 1.5
"""The made law has so many different rows: normal logits of this deviation, less this times the logarithm of the
token's rank, so that a few tokens make up most of the text, as in any language."""
PHRASE, RECENT, COPIED = 12, 192, 0.05
"""At this share of its tokens the made text copies so many from so recent a part of itself; then n-grams match."""
WARM_UP = 8
"""Rounds before the clock counts."""
MOST_A_ROUND = 32
"""Tokens that the made text has for each round; no chain is as long."""


class HostRow(BaseModel):
    """One strategy at one length of context: medians over iterations, in milliseconds of the host."""

    model_config = ConfigDict(frozen=True)

    way: str
    context: int
    nodes: float
    """Rows of the tree, root included."""
    draft_ms: float
    """Look up and build."""
    learn_ms: float
    """Harvest the tree's logits, and adapt."""
    total_ms: float
    """Median of the sums, not the sum of the medians."""
    growth: float
    """`total_ms` / that of the shortest context, in the same run."""


class MemoryRow(BaseModel):
    """The table of one strategy for one vocabulary."""

    model_config = ConfigDict(frozen=True)

    way: str
    vocabulary: int
    kind: str
    megabytes: float
    """MiB of rows and keys when full."""
    bound: int
    """MiB that the setting `table_megabytes` allows."""


class Iteration(NamedTuple):
    """Seconds of one iteration's host work, and the rows of its tree."""

    draft: float
    learn: float
    nodes: int


class MadeTarget:
    """A target without a model: the law of the next token depends on the last token alone, and is random."""

    def __init__(self, vocabulary: int, seed: int = 0) -> None:
        self.vocab_size = vocabulary
        noise = torch.Generator().manual_seed(seed)
        rows = torch.randn(min(LAW_ROWS, vocabulary), vocabulary, generator=noise) * SHARPNESS
        self._law = rows - RARENESS * torch.arange(1, vocabulary + 1).log()
        self._random = np.random.default_rng(seed)

    def forward(self, tokens: Sequence[int], *_: object) -> Tensor:
        """`[n, V]` logits after each token, in memory of their own as after a pass; no mask changes them."""
        return self._law[torch.tensor(tokens) % len(self._law)]

    def extend(self, tokens: Sequence[int]) -> Tensor:
        """`[V]` logits after the last token."""
        return self.forward(tokens[-1:])[0]

    def text(self, length: int) -> list[int]:
        """Tokens drawn from the law, with phrases copied from the recent part among them."""
        shares = self._law.double().softmax(-1).cumsum(-1).numpy()
        tokens = [0]
        while len(tokens) < length:
            if len(tokens) > RECENT and self._random.random() < COPIED:
                start = int(self._random.integers(len(tokens) - RECENT, len(tokens) - PHRASE))
                tokens += tokens[start : start + PHRASE]
            else:
                token = np.searchsorted(shares[tokens[-1] % len(shares)], self._random.random())
                tokens.append(min(int(token), self.vocab_size - 1))
        return tokens[:length]


class Replay:
    """A drafter that meets a text whose rest is known.

    Args:
        strategy: what drafts; it may ask its pair for the size of the target's vocabulary, and carry nothing.
        target: stands in for a model.
        context: the text before the first iteration.
        rest: the text after it.
    """

    def __init__(self, strategy: Strategy, target: MadeTarget, context: Sequence[int], rest: Sequence[int]) -> None:
        self._target, self._tokens, self._rest = target, list(context), list(reversed(rest))
        self._drafter: Drafter = strategy.drafter(cast("Any", SimpleNamespace(target=target, carried={})))
        self._drafter.prefill(cast("Any", target), self._tokens)

    def iterate(self) -> Iteration:
        """Drafts, walks along the text, learns; the walk and the logits are not timed."""
        context = Context(self._tokens, MOST_A_ROUND - 1, lambda: None)
        began = perf_counter()
        draft = self._drafter.draft(context)
        drafted = perf_counter() - began
        accepted = self._walk(draft.tree)
        committed = tuple(self._rest.pop() for _ in range(len(accepted) + 1))
        logits = self._target.forward(draft.tree.token.tolist())
        outcome = Outcome(draft.tree, accepted, committed, logits, logits[:0])
        began = perf_counter()
        self._drafter.update(outcome)
        learned = perf_counter() - began
        self._tokens += committed
        return Iteration(drafted, learned, len(draft.tree))

    def _walk(self, tree: DraftTree) -> tuple[int, ...]:
        accepted: list[int] = []
        children = tree.children[0]
        while found := [child for child in children if tree.token[child] == self._rest[-1 - len(accepted)]]:
            accepted.append(found[0])
            children = tree.children[found[0]]
        return tuple(accepted)


def host_work(
    strategies: Mapping[str, Strategy] = STRATEGIES,
    contexts: Sequence[int] = CONTEXTS,
    *,
    rounds: int = 200,
    vocabulary: int = 4096,
    done: Callable[[], None] = lambda: None,
) -> Iterator[HostRow]:
    """A row for each strategy and length of context, as they are measured; the lengths of a strategy in turn.

    Args:
        strategies: by the name of their row.
        contexts: tokens before the first iteration, the shortest first.
        rounds: iterations of each that are timed.
        vocabulary: tokens of the made target.
        done: called after each round.
    """
    target = MadeTarget(vocabulary)
    most = max(contexts)
    text = target.text(most + (rounds + WARM_UP) * MOST_A_ROUND)
    for way, strategy in strategies.items():
        replays = [Replay(strategy, target, text[most - length : most], text[most:]) for length in contexts]
        timed: list[list[Iteration]] = [[] for _ in contexts]
        for round_ in range(rounds + WARM_UP):
            for replay, kept in zip(replays, timed, strict=True):
                iteration = replay.iterate()
                if round_ >= WARM_UP:
                    kept.append(iteration)
            done()
        base = _total(timed[0])
        for length, kept in zip(contexts, timed, strict=True):
            yield _row(way, length, kept, _total(kept) / base)


def table_memory(strategies: Mapping[str, Strategy] = STRATEGIES, vocabulary: int = WIDE) -> list[MemoryRow]:
    """What the table of each strategy that keeps one takes for a vocabulary, and may take at most."""
    target = SimpleNamespace(vocab_size=vocabulary)
    rows = []
    for way, strategy in strategies.items():
        table = getattr(strategy.drafter(cast("Any", SimpleNamespace(target=target, carried={}))), "table", None)
        if isinstance(table, TransitionTable):
            kind = "dense" if table.dense else "hashed"
            bound = strategy.model_dump()["table_megabytes"]
            rows.append(
                MemoryRow(way=way, vocabulary=vocabulary, kind=kind, megabytes=table.bytes / (1 << 20), bound=bound)
            )
    return rows


def _row(way: str, context: int, kept: Sequence[Iteration], growth: float) -> HostRow:
    return HostRow(
        way=way,
        context=context,
        nodes=median(iteration.nodes for iteration in kept),
        draft_ms=1000 * median(iteration.draft for iteration in kept),
        learn_ms=1000 * median(iteration.learn for iteration in kept),
        total_ms=1000 * _total(kept),
        growth=growth,
    )


def _total(kept: Sequence[Iteration]) -> float:
    return median(iteration.draft + iteration.learn for iteration in kept)
