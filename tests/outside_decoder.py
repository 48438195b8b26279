"""A plain tree decoder of another make, with faults as switches; it writes its passes down with the recorder."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch

from speclab.models.runner import Runner
from speclab.recorder import Recorder

BRANCHES = (3, 2, 2, 1)


def tree(root: int, random: np.random.Generator, vocab: int, guess) -> tuple[list[int], list[int]]:
    """Tokens and parents, breadth-first; one child of each node is right three times out of four."""
    token, parent, level, paths = [root], [-1], [0], {0: [root]}
    for branches in BRANCHES:
        below = []
        for node in level[:4]:
            tokens = list(dict.fromkeys([guess(paths[node])] * (random.random() < 0.75) + random.permutation(vocab)[:9].tolist()))
            for one in tokens[:branches]:
                below.append(len(token))
                paths[len(token)] = [*paths[node], one]
                token.append(one)
                parent.append(node)
        level = below
    return token, parent


def decode(model, prompt, path, fault="", iterations=5, seed=0, outside=None, **header):
    """Decodes greedily; `fault` goes wrong in the pass, `outside` is what its record shows of it: all, or answers."""
    runner, random, vocab = Runner(model, lean=False), np.random.default_rng(seed), min(model.config.vocab_size, 4000)
    oracle = Runner(model, lean=False)
    base = _changed(model, fault)
    if base is not model:
        runner = Runner(base, lean=False)
    text = [*prompt, int(runner.extend(prompt).argmax())]
    stale, before = 0, None

    def guess(path):
        oracle.crop(0)
        return int(oracle.extend([*text[:-1], *path]).argmax())

    with Recorder(path, prompt, **header) as recorder:
        for _ in range(iterations):
            token, parent = tree(text[-1], random, vocab, guess)
            n, held = len(token), len(text) - 1
            depth = list(accumulate(parent[1:], lambda all, p: [*all, all[p] + 1], initial=[0]))[-1]
            places, own = [held + each for each in depth], np.eye(n, dtype=bool)
            for row in range(1, n):
                own[row] |= own[parent[row]]
            mask, given, before_mask = own.copy(), list(token), before
            visible = np.ones((n, runner.length), dtype=bool)
            before = own
            if fault == "position":
                places = [place + 4 for place in places]
            if fault == "along":
                places = [held + row for row in range(n)]
            if fault == "sibling":
                mask[3, 1] = True
            if fault == "ancestor":
                mask[-1, parent[-1]] = False
            if fault == "exchanged":
                mask[[1, 2]] = mask[[2, 1]]
            if fault == "rootless":
                mask[1:, 0] = False
            if fault == "chain":
                mask = np.tri(n, dtype=bool)
            if fault == "old mask" and before_mask is not None:
                mask[:] = np.eye(n)
                least = min(n, len(before_mask))
                mask[:least, :least] = before_mask[:least, :least]
            if fault == "short":
                visible[:, -1] = False
            if fault == "token":
                given[2] = given[1]
            logits = runner.logits(given, places, np.concatenate([visible, mask], 1)).logits
            if fault == "swapped answer":
                logits = logits[[1, 0, *range(2, n)]]
            if fault == "temperature":
                logits = logits / 0.6
            choice, path_rows = logits.argmax(-1).tolist(), [0]
            while below := [row for row in range(n) if parent[row] == path_rows[-1] and token[row] == choice[path_rows[-1]]]:
                path_rows.append(below[0])
            committed = [token[row] for row in path_rows[1:]] + [choice[path_rows[-1]]]
            kept = list(path_rows)
            if fault == "order":
                kept = list(range(len(path_rows)))
            first = runner.length - n
            if fault == "stale":
                kept = sorted([*path_rows, next(row for row in range(1, n) if row not in path_rows)])
            runner.keep(first, [first + row for row in kept])
            top = logits.float().log_softmax(-1).topk(16)
            shown = {"position": places, "mask": mask, "slot": [first + row for row in range(n)], "kept_slots": [first + row for row in kept]}
            if fault == "short":
                shown["hidden_prefix"] = [[row, held - 1, held - 1] for row in range(n)]
            recorder.step(
                prefix_length=first, token=token, parent=parent, accepted=path_rows[1:], committed=committed, choice=choice,
                topk=[[*zip(*row, strict=True)] for row in zip(top.indices.tolist(), top.values.tolist(), strict=True)],
                **(shown if outside is None else {}),
            )
            text += committed
    return text


def _changed(model, fault):
    from copy import deepcopy

    names = [name for name, part in model.named_modules() if "norm" in type(part).__name__.lower()]
    twin = model
    if fault == "final norm":
        twin = deepcopy(model)
        twin.set_submodule([n for n in names if not any(p.isdigit() for p in n.split("."))][-1], torch.nn.Identity())
    if fault == "first norm":
        twin = deepcopy(model)
        twin.set_submodule(names[0], torch.nn.Identity())
    if fault == "scale":
        twin = deepcopy(model)
        width = model.get_input_embeddings().embedding_dim
        twin.get_input_embeddings().register_forward_hook(lambda _, __, rows: rows * width**0.5)
    if fault == "window":
        twin = deepcopy(model)
        twin.config.sliding_window = None
    return twin
