"""One pass of a model over new rows: what it goes through, what it answers, and the plain way, through the module.

Faster ways stand above the module on a ladder: CUDA graphs, then a lean forward. One that fails is left for good, and
the pass goes on one below.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.models.cache import KVCache
from speclab.models.fast.packed import Linear
from speclab.models.masks import Mask
from speclab.models.memory import is_out_of_memory
from speclab.tree import Bools

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
        tensors: makes ids and positions, `[m]` int64, and the mask (additive `[1, 1, m, n]`, or one a kind of layer;
            None for a prompt into an empty cache) on the model's device. A captured pass has no need of them.
        last: answer only so many of the last rows; 0 answers all.
        layers: whose hidden states to hand out, by their places in the module's `hidden_states`: 0 the embeddings, `i`
            the output of block `i`, the last after the final norm.
        vocab_size: columns of the logits that count.
        likeliest: what the host will read of the logits, as in `transfers.digest`.
    """

    tokens: Sequence[int]
    positions: Sequence[int]
    visible: Bools | None
    tensors: Callable[[], tuple[Tensor, Tensor, Mask]]
    last: int
    layers: tuple[int, ...]
    vocab_size: int
    likeliest: int


class Answer(NamedTuple):
    """What a pass gives.

    Attributes:
        logits: `[m, V]`.
        states: `[m, layers, hidden]`, the hidden states that were asked for, if any were.
        mask: what the layers were handed, as `Batch.tensors` has it.
        found: `transfers.digest` of the logits, `[m, 1 + k]` int32, where it was worked out with the pass.
    """

    logits: Tensor
    states: Tensor | None = None
    mask: Mask = None
    found: Tensor | None = None


def stacked(states: Sequence[Tensor], layers: Sequence[int]) -> Tensor:
    """The hidden states `[m, hidden]` of some layers side by side, `[m, layers, hidden]`."""
    return torch.stack([states[layer] for layer in layers], dim=1)


class Layer(Protocol):
    """One decoder layer."""

    @property
    def linears(self) -> Sequence[Linear]:
        """The linear layers that it is made of."""
        ...

    def __call__(self, rows: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None, cache: KVCache) -> Tensor:
        """`[m, hidden]` to `[m, hidden]`; appends keys and values to the cache. `angles`: of the rows' positions."""
        ...


class Parts(NamedTuple):
    """What a causal model is made of: embeddings, rotary module, layers, final norm, output layer."""

    embed: nn.Embedding
    rotary: nn.Module
    layers: Sequence[Layer]
    norm: nn.Module
    head: nn.Linear


class Through(Protocol):
    """What a pass goes through."""

    @property
    def name(self) -> str:
        """For records: "module" or "lean", and where that is not what the family has, why."""
        ...

    def __call__(self, batch: Batch, cache: KVCache) -> Answer:
        """Appends the rows to the cache, which holds all columns before them, and answers them."""
        ...


class Rung(Through, Protocol):
    """One of several ways that give the same answer."""

    @property
    def feature(self) -> str:
        """What is lost where it is left."""
        ...

    def takes(self, batch: Batch, cache: KVCache) -> bool:
        """Whether such a pass may go this way."""
        ...

    def blames_itself(self, error: Exception) -> bool:
        """Whether an error of a pass is this way's own, so that the next way may do better."""
        ...


class Ladder:
    """The fastest way that works for a model: what fails is left for good, and says why.

    Args:
        rungs: the fastest first; the last, the module, takes any pass.

    Attributes:
        rungs: those that were not left.
        left: the feature of each rung that was left, and why.
    """

    def __init__(self, *rungs: Rung) -> None:
        self.rungs, self.left = list(rungs), dict[str, str]()

    @property
    def name(self) -> str:
        """For records: the fastest way that is left, and why it is not a faster one."""
        return ", ".join([self.rungs[0].name, *(f"without {feature}: {why}" for feature, why in self.left.items())])

    def __call__(self, batch: Batch, cache: KVCache) -> Answer:
        """A pass, as `Through` says."""
        start = cache.length
        while True:
            rung = next(rung for rung in self.rungs if rung.takes(batch, cache))
            try:
                return rung(batch, cache)
            except Exception as error:
                if not rung.blames_itself(error):
                    raise
                why = _why(error)
            # Behind the handler, whose traceback holds what the failed pass had allocated.
            self.leave(rung, why)
            cache.shorten(start)

    def leave(self, rung: Rung, why: str) -> None:
        """Passes go neither through `rung` nor through what stands above it any more."""
        if rung in self.rungs[:-1]:  # another thread may have left it
            place = self.rungs.index(rung) + 1
            for each in self.rungs[:place]:
                self.left[each.feature] = why
            del self.rungs[:place]


def _why(error: Exception) -> str:
    if is_out_of_memory(error):
        return "no memory was left for a pass"
    first = next(iter(str(error).splitlines()), "")[:120]
    return f"a pass failed ({type(error).__name__}: {first})"


class _NoCudnnAttention:
    """Within it torch chooses no attention of cuDNN's, which makes a plan for every shape: a tree's is seldom the same.

    The flag is the process's; of passes on several threads the first turns it off, and the last puts it back.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._was = Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was = torch.backends.cuda.cudnn_sdp_enabled()
                torch.backends.cuda.enable_cudnn_sdp(False)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.backends.cuda.enable_cudnn_sdp(self._was)


no_cudnn_attention = _NoCudnnAttention()


class ModulePass:
    """Through the `transformers` module, whatever its family.

    Args:
        model: the module.
        reason: why not through its family's lean forward; empty where there is none, or by choice.
    """

    feature = "module"

    def __init__(self, model: PreTrainedModel, reason: str = "") -> None:
        self.model = model
        self.name = f"module: {reason}" if reason else "module"
        self._takes_last = "logits_to_keep" in inspect.signature(model.forward).parameters

    def takes(self, batch: Batch, cache: KVCache) -> bool:  # noqa: ARG002
        """Any pass."""
        return True

    def blames_itself(self, error: Exception) -> bool:  # noqa: ARG002
        """There is no other way."""
        return False

    def __call__(self, batch: Batch, cache: KVCache) -> Answer:
        """A pass, as `Through` says."""
        tokens, positions, mask = batch.tensors()
        output = self.model(
            tokens[None],
            attention_mask=mask,
            position_ids=positions[None],
            past_key_values=cache,
            use_cache=True,
            **({"logits_to_keep": batch.last} if self._takes_last else {}),
            **({"output_hidden_states": True} if batch.layers else {}),
        )
        states = stacked([state[0] for state in output.hidden_states], batch.layers) if batch.layers else None
        return Answer(output.logits[0], states, mask)
