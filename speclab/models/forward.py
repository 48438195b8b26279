"""One forward pass of a model over new rows: what goes in, what comes out, and the plain way, through the module.

Faster implementations of the same pass (`speclab.models.fast`) come before the module in a chain: CUDA graphs, then a
lean forward. One that fails is dropped for good, and the pass falls back to the next.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from threading import Lock, get_ident
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from speclab.models.cache import KVCache
from speclab.models.masks import Mask
from speclab.models.memory import is_out_of_memory
from speclab.tree import Bools

T = TypeVar("T")
TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.25}
"""Largest difference allowed between two ways to the same logits, in units of the logits' own deviation where that
exceeds 1. Fixed, between what was measured on random models of nine families: right masks differ by at most 2e-5, .03
and .19 (float32, float16, bfloat16), a causal mask in place of the tree's by .24 and more, an ignored window by 2.4.
"""


class Batch(NamedTuple):
    """The new rows of a pass, as the host has them, and what is wanted of them.

    Attributes:
        tokens, positions: of each of the `m` rows.
        visible: `[m, c]` bool, which of the last `c` columns each row sees, all before them are visible; None: causal.
        tensors: makes ids and positions, `[m]` int64, and the mask (additive `[1, 1, m, n]`, or one per kind of layer;
            None for a prompt into an empty cache) on the model's device. A captured pass has no need of them.
        last: only so many of the last rows are wanted; 0 for all.
        layers: whose hidden states are wanted, by their places in the module's `hidden_states`: 0 the embeddings, `i`
            the output of block `i`, the last after the final norm.
        vocab_size: columns of the logits that count.
        topk: so many most probable tokens of each row the host will read, as in `transfers.summarize`; 0: the argmax.
    """

    tokens: Sequence[int]
    positions: Sequence[int]
    visible: Bools | None
    tensors: Callable[[], tuple[Tensor, Tensor, Mask]]
    last: int
    layers: tuple[int, ...]
    vocab_size: int
    topk: int


class ForwardOutput(NamedTuple):
    """What a pass computes.

    Attributes:
        logits: `[m, V]`.
        states: `[m, layers, hidden]`, the hidden states that were wanted, if any were.
        mask: what the layers were given, as `Batch.tensors` makes it.
        summary: `transfers.summarize` of the logits, `[m, 1 + k]` int32, where it was computed with the pass.
    """

    logits: Tensor
    states: Tensor | None = None
    mask: Mask = None
    summary: Tensor | None = None


def stack_states(states: Sequence[Tensor], layers: Sequence[int]) -> Tensor:
    """The hidden states `[m, hidden]` of some layers side by side, `[m, layers, hidden]`."""
    return torch.stack([states[layer] for layer in layers], dim=1)


def heads_as_rows(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention in which heads that share their keys become rows: fast kernels take a mask, or shared keys, not both.

    Args:
        query: `[B, heads, m, dim]`.
        keys, values: `[B, shared heads, n, dim]`.
        mask: `[…, m, n]`, bool or additive; None hides nothing.

    Returns:
        `[B, heads, m, dim]`.
    """
    batch, heads, rows, dim = query.shape
    group = heads // keys.shape[1]
    seen = None if mask is None else mask.repeat(*(1,) * (mask.ndim - 2), group, 1)
    together = query.reshape(batch, keys.shape[1], group * rows, dim)
    out = F.scaled_dot_product_attention(together, keys, values, seen)
    return out.reshape(batch, heads, rows, dim)  # CUDA's memory-efficient kernel answers transposed


class Forward(Protocol):
    """What a runner calls for a pass."""

    @property
    def name(self) -> str:
        """For records: "module" or "lean", and where that is not the fastest the family has, why."""
        ...

    def __call__(self, batch: Batch, cache: KVCache) -> ForwardOutput:
        """Appends the rows to the cache, which holds all columns before them, and computes their logits."""
        ...


class Implementation:
    """One of several implementations of the same pass, a `Forward`; `feature` is what is lost where it is dropped."""

    name: str
    feature: str

    def accepts(self, batch: Batch, cache: KVCache) -> bool:  # noqa: ARG002
        """Whether it can run such a pass."""
        return True

    def may_fall_back(self, error: Exception) -> bool:  # noqa: ARG002
        """Whether an error of a pass is its own fault, so that the next implementation may do better."""
        return False

    def __call__(self, batch: Batch, cache: KVCache) -> ForwardOutput:
        """A pass, as `Forward` says."""
        raise NotImplementedError


class FallbackChain:
    """The fastest implementation that works for a model: what fails is dropped for good, with its reason.

    Args:
        implementations: the fastest first; the last, the module, accepts any pass.

    Attributes:
        implementations: those that were not dropped.
        dropped: the feature of each that was dropped, and why.
    """

    def __init__(self, *implementations: Implementation) -> None:
        self.implementations, self.dropped = list(implementations), dict[str, str]()

    @property
    def name(self) -> str:
        """For records: the fastest implementation that remains, and why it is not a faster one."""
        reasons = [f"without {feature}: {why}" for feature, why in self.dropped.items()]
        return ", ".join([self.implementations[0].name, *reasons])

    def __call__(self, batch: Batch, cache: KVCache) -> ForwardOutput:
        """A pass, as `Forward` says."""
        start = cache.length
        while True:
            chosen = next(each for each in self.implementations if each.accepts(batch, cache))
            try:
                return chosen(batch, cache)
            except Exception as error:
                if not chosen.may_fall_back(error):
                    raise
                why = _reason(error)
            # After the handler, whose traceback holds what the failed pass had allocated.
            self.drop(chosen, why)
            cache.shorten(start)

    def drop(self, failed: Implementation, why: str) -> None:
        """Passes use neither `failed` nor what came before it any more."""
        if failed in self.implementations[:-1]:  # another thread may have dropped it
            end = self.implementations.index(failed) + 1
            self.dropped |= {each.feature: why for each in self.implementations[:end]}
            del self.implementations[:end]


def _reason(error: Exception) -> str:
    if is_out_of_memory(error):
        return "no memory was left for a pass"
    first = next(iter(str(error).splitlines()), "")[:120]
    return f"a pass failed ({type(error).__name__}: {first})"


class ModuleForward(Implementation):
    """Through the `transformers` module, whatever its family.

    Args:
        reason: why not by its family's lean forward; empty where there is none, or by choice.
    """

    feature = "module"

    def __init__(self, model: PreTrainedModel, reason: str = "") -> None:
        self.model = model
        self.name = f"module: {reason}" if reason else "module"
        self._takes_last = "logits_to_keep" in inspect.signature(model.forward).parameters

    def __call__(self, batch: Batch, cache: KVCache) -> ForwardOutput:
        """A pass, as `Forward` says."""
        output, mask = self._run(
            batch,
            cache,
            **({"logits_to_keep": batch.last} if self._takes_last else {}),
            **({"output_hidden_states": True} if batch.layers else {}),
        )
        states = stack_states([state[0] for state in output.hidden_states], batch.layers) if batch.layers else None
        return ForwardOutput(output.logits[0], states, mask)

    def _run(self, batch: Batch, cache: KVCache, **more: Any) -> tuple[Any, Tensor | dict[str, Tensor] | None]:
        """What the module returns, asked for `more` besides, and the mask it was given."""
        tokens, positions, mask = batch.tensors()
        output = self.model(
            tokens[None],
            attention_mask=mask,
            position_ids=positions[None],
            past_key_values=cache,
            use_cache=True,
            **more,
        )
        return output, mask


_flag_lock = Lock()
_threads_inside: set[int] = set()
_flag_before: list[bool] = []


def without_cudnn_attention(device: torch.device, run: Callable[[], T]) -> T:
    """What `run` returns, while torch chooses none of cuDNN's attention kernels.

    They compile a plan for every exact shape, and a tree's is seldom the same. The flag is the process's: of passes on
    several threads the first turns it off, and the last restores it. A Ctrl-C at any point leaves it as it was found.
    """
    if device.type != "cuda":
        return run()
    try:
        with _flag_lock:
            if not _threads_inside:
                _flag_before[:] = [torch.backends.cuda.cudnn_sdp_enabled()]
            _threads_inside.add(get_ident())
            torch.backends.cuda.enable_cudnn_sdp(False)
        return run()
    finally:
        try:
            _leave()
        finally:
            _leave()  # again, in case the first was interrupted


def _leave() -> None:
    with _flag_lock:
        _threads_inside.discard(get_ident())
        if _flag_before and not _threads_inside:
            torch.backends.cuda.enable_cudnn_sdp(_flag_before[0])
            _flag_before.clear()
