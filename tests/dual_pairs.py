"""Pairs whose target has two heads, or two draft models in their place."""

from __future__ import annotations

from functools import cache

import torch
from heads import random_head
from tiny import tiny

import speclab

PROMPT = [5, 9, 2, 11, 3, 7, 7, 1]
VOCAB = 16
SMALL = {"node_budget": 12, "depth": 3, "children": 4}
MODES = ("route", "merge", "first", "second")


@cache
def pair_of(family: str):
    """A target with two heads that read different layers."""
    target = tiny(family, vocab=VOCAB)
    heads = [random_head(target, 1, "prose"), random_head(target, 2, "code", layers=(0, 1))]
    return speclab.load_pair(target=target, heads=heads)


@cache
def models_of(family: str):
    """A target with two draft models in the place of heads: noisy copies of it."""
    models = [tiny(family, vocab=VOCAB) for _ in range(3)]
    with torch.no_grad():
        for seed, model in enumerate(models[1:]):
            generator = torch.Generator().manual_seed(seed)
            for parameter in model.parameters():
                parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
    return speclab.load_pair(target=models[0], heads=models[1:])
