"""Decodes greedily with trees on llama.cpp's own kernels and cache, and records every pass.

A row of the tree belongs to the sequence ids of the paths through it. The binding is cyllama, whose
context asks its model for `n_vocab`: make the model with
`type("Sized", (LlamaModel,), {"n_vocab": vocab_size})(path)`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from speclab.recorder import Recorder, topk

Tree = tuple[list[int], list[int]]
"""Tokens and parents of the rows; row 0 is the newest token, with parent -1."""


def decode(
    context: Any,
    make_batch: Callable[..., Any],
    prompt_ids: Sequence[int],
    draft: Callable[[Sequence[int]], Tree],
    path: str | os.PathLike[str],
    passes: int,
    **header: Any,
) -> list[int]:
    """The text after some passes. `context` has a unified cache and a sequence id for each leaf,
    `make_batch` is `LlamaBatch`, and `draft` makes a tree behind a text."""
    text = [int(token) for token in prompt_ids]
    start = _run(context, make_batch, text, range(len(text)), [[0]] * len(text))
    text.append(int(start[-1].argmax()))
    with Recorder(path, prompt_ids, engine="llama.cpp", **header) as recorder:
        for _ in range(passes):
            token, parent = draft(text)
            held = len(text) - 1
            lines = [[0]]
            for row, above in enumerate(parent[1:], start=1):
                lines.append([*lines[above], row])
            leaves = [line for row, line in enumerate(lines) if row not in parent]
            ids = [[i for i, leaf in enumerate(leaves) if row in leaf] for row in range(len(token))]
            for sequence in range(1, len(leaves)):
                context.memory_seq_cp(0, sequence, 0, held)
            position = [held + len(line) - 1 for line in lines]
            logits = _run(context, make_batch, token, position, ids)
            choice = logits.argmax(-1).tolist()
            kept = [0]
            children = dict(zip(zip(parent, token, strict=True), range(len(token)), strict=True))
            while (kept[-1], choice[kept[-1]]) in children:
                kept.append(children[kept[-1], choice[kept[-1]]])
            committed = [*[token[row] for row in kept[1:]], choice[kept[-1]]]
            recorder.step(
                prefix_length=held, token=token, parent=parent, position=position, choice=choice,
                topk=topk(logits), accepted=kept[1:], committed=committed,
            )  # fmt: skip
            if winner := ids[kept[-1]][0]:
                context.memory_seq_rm(0, held, -1)
                context.memory_seq_cp(winner, 0, held, held + len(kept))
            for sequence in range(1, len(leaves)):
                context.memory_seq_rm(sequence, -1, -1)
            context.memory_seq_rm(0, held + len(kept), -1)
            text += committed
    return text


def _run(context: Any, make_batch: Any, tokens: Any, positions: Any, ids: Any) -> Any:
    """Logits `[n, V]` of one batch."""
    batch = make_batch(n_tokens=len(tokens), embd=0, n_seq_max=max(map(len, ids)))
    for token, position, sequences in zip(tokens, positions, ids, strict=True):
        batch.add(token, position, sequences, True)
    context.decode(batch)
    return np.array([context.get_logits_ith(row) for row in range(len(tokens))], np.float32)
