"""Whether a model verifies trees: known unfit families by config, and a measurement on the model
itself.

The measurement compares the logits of a random 7-node tree, run as the runner runs it, with plain
passes over each path, without cache, mask or explicit positions. It compares logits, since a wrong
mask can agree on every argmax.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedConfig

from speclab.errors import LogitsError, OutOfMemoryError, UnsupportedModelError
from speclab.models.masks import CHUNKED, FULL, SLIDING
from speclab.models.runner import Runner
from speclab.models.transfers import nonfinite_advice
from speclab.tree import DraftTree

TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.25}
"""Largest allowed difference between two ways to the same logits, in units of the logits' standard
deviation if that exceeds 1. Measured on random models of nine families: correct masks differ by at
most 2e-5, .03 and .19 (float32, float16, bfloat16), a causal mask instead of the tree's by .24 and
more, an ignored window by 2.4.
"""
_ALIBI = "its position bias (ALiBi) is built from a 2-D mask, which cannot hold a tree"
_RECURRENT = "it keeps a recurrent state instead of a KV cache, so branches cannot share a prefix"
_UNFIT = {
    "gpt_neo": "its local attention layers depend on cache slots instead of positions",
    "bloom": _ALIBI,
    "mpt": _ALIBI,
    "mamba": _RECURRENT,
    "mamba2": _RECURRENT,
    "falcon_mamba": _RECURRENT,
    "rwkv": _RECURRENT,
    "recurrent_gemma": _RECURRENT,
    "xlstm": _RECURRENT,
}

_ENCODERS = {
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "electra",
    "ernie",
    "megatron-bert",
    "rembert",
    "roformer",
    "big_bird",
    "bert-generation",
    "data2vec-text",
}

# 0 has children 1 and 2, 1 has 3 and 4, 2 has 5, and 4 has 6: three leaves, depth 3.
_PARENTS = (-1, 0, 0, 1, 1, 2, 4)
_LEAVES = (3, 5, 6)
_PREFIX = 12
_PROBE_WINDOW = 8
_LONGEST_PREFIX = 1024
_LENGTHS = ("sliding_window", "attention_chunk_size")


def unfit(config: PreTrainedConfig) -> str | None:
    """Why a family is known not to verify trees, from its config alone, or None."""
    config = config.get_text_config(decoder=True)
    if config.model_type in _UNFIT:
        return _UNFIT[config.model_type]
    if getattr(config, "alibi", False) is True:
        return _ALIBI
    if config.model_type in _ENCODERS and not getattr(config, "is_decoder", False):
        return (
            "it is an encoder, in which every token sees the whole text, and not a causal decoder"
        )
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder, and speclab supports only decoders"
    kinds = set(getattr(config, "layer_types", None) or ())
    if CHUNKED in kinds and getattr(config, "attn_temperature_tuning", False):
        return "its attention temperature (attn_temperature_tuning) depends on cache slots instead of positions"
    other = kinds - {FULL, SLIDING, CHUNKED}
    return f"its layers of kind {', '.join(sorted(other))} take no tree mask" if other else None


def check_trees(runner: Runner) -> float:
    """Refuses a model that does not verify trees; returns the largest difference in logits.

    If the config has a window or chunks, the probe runs with a window of a few tokens, so that a
    short tree crosses it. A lean pass that fails is replaced by the module. An empty runner takes
    over the layout of the probe's cache.
    """
    reason = unfit(runner.model.config)
    way = "choose another model"
    difference = torch.inf
    while reason is None:
        probe = runner.fork()
        with _narrowed(probe):
            problem, way, difference = _problem(probe)
        if not problem:
            if runner.length == 0 and runner.hidden is None:
                runner.cache = probe.cache.copy(0)
            runner.settle()
            return difference
        if runner.lean is None:
            reason = f"its {problem}"
        runner.lean = runner.state.lean = None
    raise UnsupportedModelError(
        f"{runner.name} (family {runner.family}) cannot verify a draft tree: {reason}; {way}."
    )


def _problem(probe: Runner) -> tuple[str, str, float]:
    """What is wrong with an empty runner's passes, or ""; the way out; the largest difference."""
    way = "choose another model"
    try:
        difference, bound = measure(probe)
    except OutOfMemoryError:
        raise
    except LogitsError:
        kind = str(probe.dtype).removeprefix("torch.")
        return f"logits are not numbers in {kind}", nonfinite_advice(probe.dtype), torch.inf
    except Exception as error:  # a foreign module may raise anything
        first = str(error).split("\n")[0][:120]
        return f"pass over a tree fails ({type(error).__name__}: {first})", way, torch.inf
    if difference <= bound:
        return "", way, difference
    return (
        f"logits over a tree differ from those over single paths by {difference:.2g}",
        way,
        difference,
    )


@torch.inference_mode()
def measure(runner: Runner, seed: int = 0) -> tuple[float, float]:
    """The largest difference between a tree's logits and its paths', and the largest allowed, for an empty runner."""
    draw = random.Random(seed)
    ids = min(runner.known, runner.vocab_size)
    prefix = [draw.randrange(ids) for _ in range(_prefix_length(runner))]
    tokens = [draw.randrange(ids) for _ in _PARENTS]
    tree = DraftTree.of(tokens, _PARENTS, [0.0] * len(tokens), "probe")
    runner.extend(prefix)
    if runner.cache.length != len(prefix):
        raise RuntimeError("it left no KV cache")
    got = runner.forward(tokens, (len(prefix) + tree.depth).tolist(), tree.ancestor_mask())[:, :ids]
    want = torch.empty_like(got)
    for leaf in _LEAVES:
        path = np.array(tree.path(leaf))
        text = torch.tensor([[*prefix, *tree.token[path].tolist()]], device=runner.device)
        want[path] = runner.model(text, use_cache=False).logits[0, len(prefix) :, :ids]
    scale = max(1.0, want.float().std().item())
    return (got.float() - want.float()).abs().max().item(), TOLERANCE.get(
        runner.dtype, 1e-3
    ) * scale


def _prefix_length(runner: Runner) -> int:
    """Long enough to cross any other window or chunk in the config, but short enough to be cheap."""
    config = runner.model.config.get_text_config(decoder=True).to_dict()
    sizes = [
        size
        for name, size in config.items()
        if ("window" in name or "chunk" in name) and type(size) is int
    ]
    longest = max((size for size in sizes if size <= _LONGEST_PREFIX), default=0)
    return min(max(_PREFIX, longest + 4), (runner.context or _LONGEST_PREFIX) - len(_PARENTS))


@contextmanager
def _narrowed(probe: Runner) -> Iterator[None]:
    """Gives an empty runner and its module's config a window or chunks of a few tokens, if they are
    longer.

    The config alone decides, as the masks do. The module is not copied: a patched method may call
    the module that it was taken from.
    """
    window = probe.plan.window or 0
    config: Any = probe.model.config.get_text_config(decoder=True)
    names = [name for name in _LENGTHS if getattr(config, name, None) == window > _PROBE_WINDOW]
    if names:
        probe.plan = replace(probe.plan, window=_PROBE_WINDOW)
    try:
        for name in names:
            setattr(config, name, _PROBE_WINDOW)
        yield
    finally:
        for name in names:
            setattr(config, name, window)
