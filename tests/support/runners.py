"""Runners of random models, a plain pass of the library to compare with, and a tree in one pass or two."""

from contextlib import contextmanager
from functools import cache
from unittest import mock

import torch
from support.tiny import tiny

from speclab.models.runner import Runner

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@cache
def runner_of(family):
    return Runner(tiny(family))


@contextmanager
def small_buffers():
    """So that buffers grow within short tests."""
    with (
        mock.patch("speclab.models.cache.FIRST_CAPACITY", 3),
        mock.patch("speclab.models.runner.FIRST_CAPACITY", 3),
    ):
        yield


def plain(runner, tokens):
    """Logits after every token: the library alone, no cache, no mask, no positions of ours."""
    with torch.inference_mode():
        return runner.model(torch.tensor([tokens]), use_cache=False).logits[0]


def run_tree(runner, tree, cut=None):
    """A tree in one pass, or its first `cut` nodes and then the rest, as a drafter does level by level."""
    base = runner.length
    mask = tree.ancestor_mask()
    parts = [slice(0, len(tree))] if cut is None else [slice(0, cut), slice(cut, len(tree))]
    out = [
        runner.logits(
            tree.token[part].tolist(), (base + tree.depth[part]).tolist(), mask[part, : part.stop]
        ).logits
        for part in parts
        if part.start < part.stop
    ]
    return torch.cat(out)
