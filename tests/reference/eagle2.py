"""EAGLE-2's tree, a draft head and the routing rule, as plainly as they can be written: paths and dictionaries."""

from __future__ import annotations

import math

import numpy as np
import torch

Path = tuple[int, ...]


def best_paths(probs, budget, depth, children):
    """Paths below the root and their log-probabilities: all levels are expanded, then the best of all are kept."""
    found: dict[Path, float] = {(): 0.0}
    level: list[Path] = [()]
    for _ in range(depth):
        best = sorted(level, key=lambda path: -found[path])[:children]
        level = []
        for path in best:
            probabilities = np.asarray(probs(path))
            for token in np.argsort(-probabilities, kind="stable")[:children].tolist():
                found[(*path, token)] = found[path] + math.log(probabilities[token])
                level.append((*path, token))
    kept = sorted(found, key=lambda path: (-found[path], len(path)))[:budget]
    return {path: found[path] for path in kept}


def mean_confidence(paths):
    """Dual-Draft Routing, sections 4 and 5."""
    drafted = [math.exp(score) for path, score in paths.items() if path]
    return sum(drafted) / len(drafted) if drafted else 0.0


@torch.no_grad()
def head_probs(head, target, text, path):
    """A head's next-token distribution after `text` and drafted `path`: no cache, no mask, all from scratch."""
    from speclab.heads.layer import rotary

    states = target(torch.tensor([list(text)]), output_hidden_states=True).hidden_states
    seen = head.fused(torch.cat([states[layer][0] for layer in head.config.layers], dim=-1))[:-1]
    tokens = list(text[1:])
    for token in [*path, None]:
        embeddings = target.get_input_embeddings()(torch.tensor(tokens))
        out = head(embeddings[None], seen[None], rotary(head.config, torch.arange(len(tokens))))[0]
        if token is not None:
            tokens.append(token)
            seen = torch.cat([seen, out[-1:]])
    logits = target.get_output_embeddings()(out[-1]).double().numpy()
    if head.token_ids is not None:
        logits[np.setdiff1d(np.arange(len(logits)), head.token_ids.numpy())] = -np.inf
    return np.exp(logits - np.logaddexp.reduce(logits))
