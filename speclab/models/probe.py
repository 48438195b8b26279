"""Whether a model verifies trees: known unfit families by config, and a measurement on the model itself.

The measurement compares the logits of a random 7-node tree, run as the runner runs it, with plain passes
over each single path, without cache, mask or explicit positions. Logits, not choices: a wrong mask can agree
on every argmax.
"""

from __future__ import annotations

import copy
import random
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from speclab.errors import LogitsError, OutOfMemoryError, UnsupportedModelError
from speclab.models.forward import TOLERANCE, FallbackChain
from speclab.models.masks import CHUNKED, FULL, SLIDING
from speclab.models.memory import is_spread
from speclab.models.runner import Runner
from speclab.models.transfers import nonfinite_advice
from speclab.tree import DraftTree

_ALIBI = "its position bias (ALiBi) is built from a 2-D mask, which cannot hold a tree"
_RECURRENT = "it keeps a recurrent state instead of a KV cache, so branches cannot share a prefix"
_UNFIT = {
    "gpt_neo": "its local attention layers cut by place in the cache and not by position",
    "bloom": _ALIBI,
    "mpt": _ALIBI,
    "mamba": _RECURRENT,
    "mamba2": _RECURRENT,
    "falcon_mamba": _RECURRENT,
    "rwkv": _RECURRENT,
    "recurrent_gemma": _RECURRENT,
    "xlstm": _RECURRENT,
}

# 0 has children 1 and 2, 1 has 3 and 4, 2 has 5, and 4 has 6: three leaves, depth 3.
_PARENTS = (-1, 0, 0, 1, 1, 2, 4)
_LEAVES = (3, 5, 6)
_BIT_TREES = (7, 24)
"""Nodes of the trees whose bits are looked at."""
_LOOSE = 4
"""Half precision differs from the module's by more in deep models, where nothing is wrong."""
_PREFIX = 12
_PROBE_WINDOW = 8
_LONGEST_PREFIX = 1024
_SHARED_BYTES = 1 << 20


def unfit(config: PreTrainedConfig) -> str | None:
    """Why a family is known to be unable to verify trees, from its config alone; None if it is not known to be."""
    config = config.get_text_config(decoder=True)
    if config.model_type in _UNFIT:
        return _UNFIT[config.model_type]
    if getattr(config, "alibi", False) is True:
        return _ALIBI
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder with a decoder, and speclab decodes with decoders alone"
    kinds = set(getattr(config, "layer_types", None) or ())
    if CHUNKED in kinds and getattr(config, "attn_temperature_tuning", False):
        return (
            "its attention temperature (attn_temperature_tuning) follows a row's place in the cache, not its position"
        )
    other = kinds - {FULL, SLIDING, CHUNKED}
    return f"its layers of kind {', '.join(sorted(other))} take no tree mask" if other else None


def check_trees(runner: Runner) -> float:
    """Refuses a model that does not verify trees; an empty runner learns the layout of its cache from the probe.

    Where the config names a length from which on the model computes otherwise (a sliding window, chunks, longrope), the
    probe runs on a copy of the module, on the same weights, whose config says a few tokens, so that a short tree
    crosses it; the module itself is not written to, and may decode meanwhile.

    Returns:
        The largest difference found, in logits.

    A runner in exact arithmetic is held to it: where a bit differs it goes on in ordinary arithmetic.

    Raises:
        UnsupportedModelError: the family is known to be unfit, its pass fails, its logits differ, or their bits do and
            exact arithmetic was asked for.
    """
    reason, way = unfit(runner.model.config), "choose another model"
    while reason is None:
        probe = _narrowed(runner) or runner.fork()
        why, way, difference = _wrong(probe)
        if not why and runner.bitwise and (apart := bits_apart(probe.fork())):
            runner.drop_bitwise(f"over a tree and one token at a time its logits differ by {apart:.2g}")
            continue
        if not why:
            if runner.length == 0:
                runner.cache = probe.cache.copy(0)
            return difference
        chain = probe.implementation
        if isinstance(chain, FallbackChain) and chain is runner.implementation and len(chain.implementations) > 1:
            chain.drop(chain.implementations[0], why)  # the next one shows whose fault it is
        else:
            reason = f"its {why}"
    raise UnsupportedModelError(f"{runner.name} (family {runner.family}) cannot verify a draft tree: {reason}; {way}.")


def _wrong(probe: Runner) -> tuple[str, str, float]:
    """What is wrong with the way that passes go now, empty where nothing is; the way out; the largest difference."""
    way = "choose another model"
    try:
        difference, bound = measure(probe)
    except OutOfMemoryError:
        raise
    except LogitsError:
        return (
            f"logits are not numbers in {str(probe.dtype).removeprefix('torch.')}",
            nonfinite_advice(probe.dtype),
            torch.inf,
        )
    except Exception as error:  # noqa: BLE001  # whatever a foreign module raises, the reason is the same
        first = next(iter(str(error).splitlines()), "")[:120]
        return f"pass over a tree fails ({type(error).__name__}: {first})", way, torch.inf
    if probe.bitwise:  # its trees are held to its paths bit for bit; here it must only be this model
        bound *= _LOOSE
    differ = f"logits over a tree differ from those over single paths by {difference:.2g}"
    return "" if difference <= bound else differ, way, difference


@torch.inference_mode()
def measure(runner: Runner, seed: int = 0) -> tuple[float, float]:
    """The largest difference between a tree's logits and its paths', and the largest allowed, for an empty runner."""
    draw = random.Random(seed)  # noqa: S311  # no secret
    prefix = [draw.randrange(runner.vocab_size) for _ in range(_prefix_length(runner))]
    tokens = [draw.randrange(runner.vocab_size) for _ in _PARENTS]
    tree = DraftTree.of(tokens, _PARENTS, [0.0] * len(tokens), "probe")
    runner.extend(prefix)
    if runner.cache.length != len(prefix):
        raise RuntimeError("it left no KV cache")
    got = runner.forward(tokens, (len(prefix) + tree.depth).tolist(), tree.ancestor_mask())
    want = torch.empty_like(got)
    for leaf in _LEAVES:
        path = np.array(tree.path(leaf))
        want[path] = _plain(runner, [*prefix, *tree.token[path].tolist()])[len(prefix) :]
    scale = max(1.0, want.float().std().item())
    return (got.float() - want.float()).abs().max().item(), TOLERANCE.get(runner.dtype, 1e-3) * scale


@torch.inference_mode()
def bits_apart(runner: Runner, seed: int = 0) -> float:
    """The largest difference between the logits of nodes of random trees and those of their paths, token by token.

    Exactly 0.0 in exact arithmetic (`load_pair(…, bitwise=True)`), where the bits are the same; in ordinary arithmetic
    what other kernels and another order of keys make of the last bits.

    Args:
        runner: its cache is not read; passes are made on forks.
        seed: of the tokens and the shapes of the trees.
    """
    draw, largest = random.Random(seed), 0.0  # noqa: S311  # no secret
    for size in _BIT_TREES:
        prefix = [draw.randrange(runner.vocab_size) for _ in range(_PREFIX + draw.randrange(_PREFIX))]
        tokens = draw.sample(range(runner.vocab_size), min(size, runner.vocab_size))
        parents = [-1]
        while len(parents) < len(tokens):
            parents.append(min(max(0, parents[-1]) + draw.randrange(2), len(parents) - 1))
        tree = DraftTree.of(tokens, parents, [0.0] * len(tokens), "probe")
        text = runner.fork()
        text.extend(prefix)
        got = text.fork(len(prefix)).forward(tokens, (len(prefix) + tree.depth).tolist(), tree.ancestor_mask())
        path = tree.path(len(tree) - 1)
        for node in path:
            apart = (got[node].float() - text.extend([tokens[node]]).float()).abs().max()
            largest = max(largest, float(apart))
    return largest


def _prefix_length(runner: Runner) -> int:
    """Long enough to cross whatever else the config calls a window or a chunk, short enough to be cheap."""
    config = runner.model.config.get_text_config(decoder=True).to_dict()
    sizes = [size for name, size in config.items() if ("window" in name or "chunk" in name) and type(size) is int]
    longest = max((size for size in sizes if size <= _LONGEST_PREFIX), default=0)
    return min(max(_PREFIX, longest + 4), (runner.context or _LONGEST_PREFIX) - len(_PARENTS))


def _plain(runner: Runner, tokens: list[int]) -> Tensor:
    output = runner.model(torch.tensor([tokens], device=runner.device), use_cache=False)
    logits: Tensor = output.logits[0, :, : runner.vocab_size]
    return logits


def _narrowed(runner: Runner) -> Runner | None:
    """An empty runner of a copy whose window, chunks or longrope border is a few tokens wide; None if all are, or none.

    A module that is spread over devices is not copied: its placement belongs to it.
    """
    window, border = runner.plan.window or 0, runner.border or 0
    if max(window, border) <= _PROBE_WINDOW or is_spread(runner.model):
        return None
    model = sharing_weights(runner.model)
    config = model.config.get_text_config(decoder=True)
    for name in ("sliding_window", "attention_chunk_size"):
        if window > _PROBE_WINDOW and getattr(config, name, None) == window:
            setattr(config, name, _PROBE_WINDOW)
    if border > _PROBE_WINDOW:
        _narrow_border(config)
    plan = replace(runner.plan, window=min(window, _PROBE_WINDOW) or None)
    probe = Runner(model, runner.name, plan)
    probe.vocab_size = runner.vocab_size
    return probe


def _narrow_border(config: Any) -> None:
    if hasattr(config, "original_max_position_embeddings"):  # it goes before the one below
        config.original_max_position_embeddings = _PROBE_WINDOW
    rope = config.rope_parameters
    for kind in rope.values() if all(isinstance(kind, dict) for kind in rope.values()) else (rope,):
        if kind.get("rope_type") == "longrope":
            kind["original_max_position_embeddings"] = _PROBE_WINDOW


def sharing_weights(model: PreTrainedModel) -> PreTrainedModel:
    """A copy with parts, small buffers and configs of its own, on the same parameters and large buffers."""
    shared = [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.nbytes > _SHARED_BYTES)]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
