"""Whether a model verifies trees: known unfit families by config, and a measurement on the model itself.

The measurement compares the logits of a random 7-node tree, run as the runner runs it, with plain passes
over each single path, without cache, mask or positions of ours. Logits, not choices: a wrong mask can agree
on every argmax.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig

from speclab.errors import LogitsError, OutOfMemoryError, UnsupportedModelError
from speclab.models.masks import FULL, SLIDING
from speclab.models.runner import Runner
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

# Largest difference allowed between the tree's logits and the paths', in units of the logits' own deviation where that
# exceeds 1. Fixed, between what was measured on random models of nine families: right masks differ by at most 2e-5, .03
# and .19 (float32, float16, bfloat16), a causal mask in place of the tree's by .24 and more, an ignored window by 2.4.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.25}

# 0 has children 1 and 2, 1 has 3 and 4, 2 has 5, and 4 has 6: three leaves, depth 3.
_PARENTS = (-1, 0, 0, 1, 1, 2, 4)
_LEAVES = (3, 5, 6)
_PREFIX = 12
_PROBE_WINDOW = 8
_LONGEST_PREFIX = 1024


def unfit(config: PreTrainedConfig) -> str | None:
    """Why a family is known to be unable to verify trees, from its config alone; None if it is not known to be."""
    config = config.get_text_config(decoder=True)
    if config.model_type in _UNFIT:
        return _UNFIT[config.model_type]
    if getattr(config, "alibi", False) is True:
        return _ALIBI
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder with a decoder, and speclab decodes with decoders alone"
    other = set(getattr(config, "layer_types", None) or ()) - {FULL, SLIDING}
    return f"its layers of kind {', '.join(sorted(other))} take no tree mask" if other else None


def check_trees(runner: Runner) -> float:
    """Refuses a model that does not verify trees; an empty runner learns the layout of its cache from the probe.

    Where the family has a sliding window, the module's config is made to say a few tokens for the length of the probe,
    so that a short tree crosses it.

    Returns:
        The largest difference found, in logits.

    Raises:
        UnsupportedModelError: the family is known to be unfit, its pass fails, or its logits differ.
    """
    reason = unfit(runner.model.config)
    if reason is None:
        try:
            with _narrow_window(runner) as probe:
                difference, bound = measure(probe)
        except OutOfMemoryError:
            raise
        except LogitsError:
            reason = f"its logits are not numbers in {str(runner.dtype).removeprefix('torch.')} (try float32)"
        except Exception as error:  # noqa: BLE001  # whatever a foreign module raises, the reason is the same
            first = next(iter(str(error).splitlines()), "")[:120]
            reason = f"its pass over a tree fails ({type(error).__name__}: {first})"
        else:
            if difference <= bound:
                if runner.length == 0:
                    runner.cache = probe.cache.copy(0)
                return difference
            reason = f"its logits over a tree differ from those over single paths by {difference:.2g}"
    raise UnsupportedModelError(
        f"{runner.name} (family {runner.family}) cannot verify a draft tree: {reason}; choose another model."
    )


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


@contextmanager
def _narrow_window(runner: Runner) -> Iterator[Runner]:
    """An empty fork whose window, and the module's for plain passes, is a few tokens wide."""
    probe, window = runner.fork(), runner.plan.window
    if window is None or window <= _PROBE_WINDOW:
        yield probe
        return
    config = runner.model.config.get_text_config(decoder=True)
    probe.plan = replace(runner.plan, window=_PROBE_WINDOW)
    config.sliding_window = _PROBE_WINDOW
    try:
        yield probe
    finally:
        config.sliding_window = window
