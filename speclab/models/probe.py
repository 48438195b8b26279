"""How a model verifies trees: by a mask, by paths, or not at all, as measured on the model itself.

The measurement compares the logits of a random 7-node tree, run as the runner runs it, with plain
passes over each path, without cache, mask or explicit positions. It compares logits, since a wrong
mask can agree on every argmax.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch

from speclab.errors import LogitsError, OutOfMemoryError, UnsupportedModelError
from speclab.models.eight_bits import EightBit
from speclab.models.masks import FULL, SLIDING
from speclab.models.paths import LevelRunner, PathRunner
from speclab.models.runner import Runner
from speclab.models.transfers import nonfinite_advice
from speclab.tree import DraftTree

TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.25}
"""Largest allowed difference between two ways to the same logits, in units of the logits' standard
deviation if that exceeds 1. Measured on random models of nine families: correct masks differ by at
most 2e-5, .03 and .19 (float32, float16, bfloat16), a causal mask instead of the tree's by .24 and
more, an ignored window by 2.4.
"""
# 0 has children 1 and 2, 1 has 3 and 4, 2 has 5, and 4 has 6: three leaves, depth 3.
_PARENTS = (-1, 0, 0, 1, 1, 2, 4)
_LEAVES = (3, 5, 6)
_PREFIX = 12
_PROBE_WINDOW = 8
_LONGEST_PREFIX = 1024


def check_trees(runner: Runner) -> Runner:
    """The runner, or one of the same model that verifies by paths if it takes no tree mask.

    Tried in turn: a tree mask; paths in one pass; paths level by level. If the config has a window,
    the probe runs with one of a few tokens, so that a short tree crosses it. A lean
    pass that fails is replaced by the module.

    Raises:
        UnsupportedModelError: none of them gives the logits of plain passes; what was measured.
    """
    if any(isinstance(part, EightBit) for part in runner.model.modules()):
        # its rows are rounded by their number: what it is a copy of was probed
        runner.settle()
        return runner
    kinds: list[type[Runner]] = [PathRunner, LevelRunner]
    layers = getattr(runner.text_config, "layer_types", None) or ()
    if set(layers) <= {FULL, SLIDING}:  # a tree mask is worth a try
        kinds.insert(0, Runner)
    problems = []
    for kind in kinds:
        tried = runner
        if kind is not Runner:
            tried = runner.beside(runner.model, kind)
        problem = _problem(tried)
        if problem and tried.lean is not None:
            tried.lean = tried.state.lean = None
            problem = _problem(tried)
        if not problem:
            tried.settle()
            return tried
        problems.append(f"{problem} ({tried.forward_name})")
    raise _refused(runner, "; ".join(problems))


def _refused(
    runner: Runner, reason: str, way_out: str = "choose another model"
) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{runner.name} (family {runner.family}) cannot verify a draft tree: {reason}; {way_out}."
    )


def _problem(runner: Runner) -> str:
    """What is wrong with a runner's passes, or ""."""
    probe = runner.fork()
    try:
        with _narrowed(probe):
            difference, bound = measure(probe)
        runner.cache = probe.cache.copy(0)  # it knows the sizes of entries
    except OutOfMemoryError:
        raise
    except LogitsError:
        kind = str(probe.dtype).removeprefix("torch.")
        reason = f"its logits are not numbers in {kind}"
        raise _refused(probe, reason, nonfinite_advice(probe.dtype)) from None
    except Exception as error:  # a foreign module may raise anything
        return f"pass fails ({type(error).__name__}: {str(error)[:24].strip()})"
    if difference > bound:
        return f"logits differ by {difference:.2g}"
    return ""


@torch.inference_mode()
def measure(runner: Runner, seed: int = 0) -> tuple[float, float]:
    """The largest difference between a tree's logits and its paths', and the largest allowed, for an empty runner."""
    draw = random.Random(seed)
    ids = min(runner.known, runner.vocab_size)
    prefix = [draw.randrange(ids) for _ in range(prefix_length(runner))]
    tokens = [draw.randrange(ids) for _ in _PARENTS]
    tree = DraftTree.of(tokens, _PARENTS, [0.0] * len(tokens), "probe")
    runner.extend(prefix)
    masked = type(runner) is Runner
    if masked and runner.cache.length != len(prefix):
        raise RuntimeError("it left no KV cache")
    places = (len(prefix) + tree.depth).tolist()
    got = runner.logits(tokens, places, tree.ancestor_mask()).logits[:, :ids]
    want = torch.empty_like(got)
    for leaf in _LEAVES:
        path = np.array(tree.path(leaf))
        text = torch.tensor([prefix + tree.token[path].tolist()], device=runner.device)
        options = {}
        if masked:
            # as `generate` does: some families count positions from padding if none are given
            options["position_ids"] = torch.arange(text.shape[1], device=runner.device)[None]
        out = runner.model(text, use_cache=False, **options)
        want[path] = out.logits[0, len(prefix) :, :ids]
    # then the last path is kept: its last row again, from the cache that the tree left
    runner.keep(len(prefix), [len(prefix) + node for node in path[:-1]])
    again = runner.logits([tokens[_LEAVES[-1]]]).logits[:, :ids]
    got = torch.cat((got, again)).float()
    want = torch.cat((want, want[-1:])).float()
    scale = max(1.0, want.std().item())
    return (got - want).abs().max().item(), TOLERANCE.get(runner.dtype, 1e-3) * scale


def prefix_length(runner: Runner, least: int = _PREFIX, rows: int = len(_PARENTS)) -> int:
    """Long enough to cross any other window or chunk in the config, but short enough to be cheap;
    `rows` follow it.
    """
    config = runner.text_config.to_dict()
    longest = 0
    for name, size in config.items():
        bounds = "window" in name or "chunk" in name
        if bounds and type(size) is int and size <= _LONGEST_PREFIX:
            longest = max(longest, size)
    return min(max(least, longest + 4), (runner.context or _LONGEST_PREFIX) - rows)


@contextmanager
def _narrowed(probe: Runner) -> Iterator[None]:
    """Gives an empty runner and its module's config a window of a few tokens, if it is longer.

    The config alone decides, as the masks do. The module is not copied: a patched method may call
    the module that it was taken from.
    """
    window = probe.plan.window or 0
    if window <= _PROBE_WINDOW:
        yield
        return
    config = probe.text_config
    probe.plan = replace(probe.plan, window=_PROBE_WINDOW)
    config.sliding_window = _PROBE_WINDOW
    try:
        yield
    finally:
        config.sliding_window = window
