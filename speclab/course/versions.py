"""The course's versions of answers that later cells need, for those who skip an exercise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch

from speclab.course.answers import version


@version
def accepted_chain(drafted: Sequence[int], choice: Sequence[int]) -> Sequence[int]:
    """Notebook 1, B: the committed tokens of a chain."""
    wrong = (i for i, token in enumerate(drafted) if token != choice[i])
    return choice[: 1 + next(wrong, len(drafted))]


@version
def chain_iteration(read: Callable[..., Any], target: Any, draft: Any) -> Callable[..., Any]:
    """Notebook 1, C: an iteration of a chain, with the notebook's `read` and its models."""

    def iteration(
        text: list[int], gamma: int, target_cache: Any, draft_cache: Any, accept: Any
    ) -> list[int]:
        unread = text[draft_cache.get_seq_length() :]
        drafted: list[int] = []
        while len(drafted) < gamma:
            unread = [int(read(draft, unread, draft_cache)[-1].argmax())]
            drafted += unread
        choice = read(target, [text[-1], *drafted], target_cache).argmax(-1).tolist()
        committed: list[int] = accept(drafted, choice)
        for cache in (target_cache, draft_cache):
            surplus = cache.get_seq_length() - len(text) - len(committed) + 1
            cache.crop(-max(surplus, 0))
        return committed

    return iteration


@version
def tree_inputs(parents: Sequence[int], prefix: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Notebook 1, D: positions [n] and mask [n, prefix + n] of a tree."""
    sees = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents[1:], start=1):
        sees[node] |= sees[parent]
    before = torch.ones(len(parents), prefix, dtype=torch.bool)
    return prefix + sees.sum(1) - 1, torch.cat([before, sees], 1)


@version
def gather(cache: Any, prefix: int, path: Sequence[int]) -> None:
    """Notebook 1, E: keep the rows of the prefix, the root and the path."""
    rows = torch.tensor([*range(prefix + 1), *(prefix + node for node in path)])
    for layer in cache.layers:
        layer.keys = layer.keys[:, :, rows]
        layer.values = layer.values[:, :, rows]


@version
def accept_path(tokens: Sequence[int], parents: Sequence[int], choice: Sequence[int]) -> list[int]:
    """Notebook 1, F: the accepted nodes of a tree."""
    path = [0]
    for node, parent in enumerate(parents):
        if parent == path[-1] and tokens[node] == choice[parent]:
            path.append(node)
    return path[1:]


@version
def residual(p: Any, q: Any) -> Any:
    """Notebook 4, A: norm(max(p - q, 0))."""
    lacking = np.maximum(p - q, 0)
    total = lacking.sum()
    return lacking / total if total else p


@version
def accept_one(p: Any, q: Any, candidates: Sequence[int], rng: Any, again: Any = None) -> Any:
    """Notebook 4, B: the next token and whether it is a candidate; `again` changes q."""
    for token in candidates:
        if rng.accepts(min(1, p[token] / q[token])):
            return token, True
        p = residual(p, q)
        q = again(q, token) if again else q
    return rng.draws(p), False


@version
def measure(
    methods: dict[str, Any], prompts: Sequence[Any], rounds: int, clock: Any = perf_counter
) -> list[dict[str, Any]]:
    """Notebook 7, A: the timing loop."""
    for method in methods.values():
        method(prompts[0])
    records = []
    for turn in range(rounds):
        for place, prompt in enumerate(prompts):
            for name in list(methods)[:: -1 if turn % 2 else 1]:
                began = clock()
                tokens = methods[name](prompt)
                seconds = clock() - began
                record = {"method": name, "prompt": place, "round": turn}
                records.append({**record, "tokens": tokens, "seconds": seconds})
    return records


@version
def aligned(tokens: torch.Tensor, states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Notebook 8, C: tokens and states that a head reads, and the states it should produce."""
    return tokens[:, 1:], states[:, :-1], states[:, 1:]


@version
def conditioned(
    logits: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    tokens: Sequence[int],
    depths: Sequence[int],
) -> torch.Tensor:
    """Notebook 8, D: log-probabilities of the children of nodes of a block, by a Markov bias."""
    return (logits[depths] + w1[tokens] @ w2.T).log_softmax(-1)
