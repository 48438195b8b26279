"""What drafting without a model costs the host: looking up, building and updating, timed without any target.

A made text is replayed: each iteration drafts from the text so far, its tree is followed along the text that comes
next, and rows of a fixed distribution stand in for the target's logits. Contexts of every length end in the same text,
and all are timed in turn, so a ratio of two of them compares like with like.

    python benchmarks/host.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, cast

import numpy as np
import torch
import typer
from common import Out, Row, Threads, show, write
from rich.progress import Progress
from torch import Tensor

from speclab.drafters import Strategy
from speclab.drafters.base import Context, Drafter, Outcome
from speclab.drafters.goose import Goose
from speclab.drafters.isotropic import IsotropicTree
from speclab.drafters.prompt_lookup import PromptLookup
from speclab.drafters.token_recycling import TokenRecycling
from speclab.models.transfers import Logits
from speclab.sources.transitions import TransitionTable
from speclab.tree import DraftTree

TRAINING_FREE: dict[str, Strategy] = {
    "Goose": Goose(node_budget=60),
    "IsotropicTree": IsotropicTree(node_budget=60),
    "TokenRecycling": TokenRecycling(node_budget=60),
    "PromptLookup": PromptLookup(budget="fixed"),
}
CONTEXTS = (256, 4096)
LARGE_VOCABULARY = 150_000
"""Tokens of the vocabulary for which the tables' memory is shown."""
DISTINCT_ROWS, SHARPNESS, RARENESS = 512, 2.0, 1.5
"""The made distribution has so many different rows: normal logits of this deviation, less this times the logarithm of
the token's rank, so that a few tokens make up most of the text, as in any language."""
PHRASE, RECENT, COPIED = 12, 192, 0.05
"""At this share of its tokens the made text copies so many from so recent a part of itself; then n-grams match."""
WARM_UP = 8
"""Rounds before the clock counts."""
MAX_PER_ROUND = 32
"""Tokens that the made text has for each round; no chain is as long."""
app = typer.Typer(add_completion=False)


class Iteration(NamedTuple):
    """Seconds of one iteration's host work, and the rows of its tree."""

    draft: float
    update: float
    nodes: int


class MadeTarget:
    """A target without a model: the next token's distribution depends on the last token alone, and is random."""

    def __init__(self, vocabulary: int, seed: int = 0) -> None:
        self.vocab_size = vocabulary
        rng = torch.Generator().manual_seed(seed)
        rows = torch.randn(min(DISTINCT_ROWS, vocabulary), vocabulary, generator=rng) * SHARPNESS
        self._logits = rows - RARENESS * torch.arange(1, vocabulary + 1).log()
        self._rng = np.random.default_rng(seed)

    def forward(self, tokens: Sequence[int], *_: object) -> Tensor:
        """`[n, V]` logits after each token, in memory of their own as after a pass; no mask changes them."""
        return self._logits[torch.tensor(tokens) % len(self._logits)]

    def logits(self, tokens: Sequence[int], *_: object) -> Logits:
        """As `forward`, as a runner gives them."""
        return Logits(self.forward(tokens))

    def text(self, length: int) -> list[int]:
        """Sampled tokens, with phrases copied from the recent part among them."""
        cumulative = self._logits.double().softmax(-1).cumsum(-1).numpy()
        tokens = [0]
        while len(tokens) < length:
            if len(tokens) > RECENT and self._rng.random() < COPIED:
                start = int(self._rng.integers(len(tokens) - RECENT, len(tokens) - PHRASE))
                tokens += tokens[start : start + PHRASE]
            else:
                token = np.searchsorted(cumulative[tokens[-1] % len(cumulative)], self._rng.random())
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
        self._target, self.tokens, self._rest = target, list(context), list(reversed(rest))
        self._drafter: Drafter = strategy.drafter(cast("Any", SimpleNamespace(target=target, shared_state={})))
        self._drafter.prefill(cast("Any", target), self.tokens)

    def iterate(self) -> Iteration:
        """Drafts, follows the text, updates; the following and the logits are not timed."""
        context = Context(self.tokens, MAX_PER_ROUND - 1, lambda: None)
        began = perf_counter()
        draft = self._drafter.draft(context)
        drafted = perf_counter() - began
        accepted = self._accepted(draft.tree)
        committed = tuple(self._rest.pop() for _ in range(len(accepted) + 1))
        logits = Logits(self._target.forward(draft.tree.token.tolist()))
        outcome = Outcome(draft.tree, accepted, committed, logits, logits.part(slice(0)))
        began = perf_counter()
        self._drafter.update(outcome)
        updated = perf_counter() - began
        self.tokens += committed
        return Iteration(drafted, updated, len(draft.tree))

    def _accepted(self, tree: DraftTree) -> tuple[int, ...]:
        accepted: list[int] = []
        children = tree.children[0]
        while found := [child for child in children if tree.token[child] == self._rest[-1 - len(accepted)]]:
            accepted.append(found[0])
            children = tree.children[found[0]]
        return tuple(accepted)


def host_work(
    strategies: Mapping[str, Strategy],
    contexts: Sequence[int] = CONTEXTS,
    *,
    rounds: int = 200,
    vocabulary: int = 4096,
    done: Callable[[], None] = lambda: None,
) -> Iterator[Row]:
    """A row for each strategy and length of context: medians over iterations, in milliseconds of the host.

    Args:
        strategies: by the name of their row.
        contexts: tokens before the first iteration, the shortest first; those of a strategy are timed in turn.
        rounds: iterations of each that are timed.
        vocabulary: tokens of the made target.
        done: called after each round.
    """
    target, most = MadeTarget(vocabulary), max(contexts)
    text = target.text(most + (rounds + WARM_UP) * MAX_PER_ROUND)
    for name, strategy in strategies.items():
        replays = [Replay(strategy, target, text[most - length : most], text[most:]) for length in contexts]
        timed: list[list[Iteration]] = [[] for _ in contexts]
        for round_ in range(rounds + WARM_UP):
            for replay, kept in zip(replays, timed, strict=True):
                iteration = replay.iterate()
                if round_ >= WARM_UP:
                    kept.append(iteration)
            done()
        totals = [median(one.draft + one.update for one in kept) for kept in timed]
        for length, kept, total in zip(contexts, timed, totals, strict=True):
            yield {
                "strategy": name, "context": length, "nodes": median(one.nodes for one in kept),
                "draft ms": 1000 * median(one.draft for one in kept),
                "update ms": 1000 * median(one.update for one in kept), "both ms": 1000 * total,
                "× shortest": total / totals[0],
            }  # fmt: skip


def table_memory(strategies: Mapping[str, Strategy], vocabulary: int = LARGE_VOCABULARY) -> list[Row]:
    """What the full transition table of each strategy that keeps one takes for a vocabulary, and may take at most."""
    pair, rows = SimpleNamespace(target=SimpleNamespace(vocab_size=vocabulary), shared_state={}), []
    for name, strategy in strategies.items():
        table = getattr(strategy.drafter(cast("Any", pair)), "table", None)
        if isinstance(table, TransitionTable):
            rows.append({
                "table": name, "vocabulary": vocabulary, "unigram rows": "dense" if table.dense else "hashed",
                "MiB": table.bytes / (1 << 20), "bound, MiB": strategy.model_dump()["table_megabytes"],
            })  # fmt: skip
    return rows


@app.command()
def main(
    vocabulary: Annotated[int, typer.Option(min=16, help="Tokens that the made target knows.")] = 4096,
    rounds: Annotated[int, typer.Option(min=1, help="Iterations timed of each.")] = 200,
    threads: Threads = 0,
    out: Out = None,
) -> None:
    """Time looking up, building and updating without a model, and say what the tables take."""
    if threads:
        torch.set_num_threads(threads)
    with Progress(transient=True) as progress:
        bar = progress.add_task("timing", total=len(TRAINING_FREE) * (rounds + WARM_UP))
        rows = list(host_work(TRAINING_FREE, rounds=rounds, vocabulary=vocabulary, done=lambda: progress.advance(bar)))
    show(f"Host work without a model, vocabulary {vocabulary:,}, {torch.get_num_threads()} threads", rows)
    memory = table_memory(TRAINING_FREE)
    show("Transition tables", memory)
    write(out, [*rows, *memory])


if __name__ == "__main__":
    app()
