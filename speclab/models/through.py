"""One pass of a model over new rows: what it goes through, what it answers, and the plain way, through the module."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor, nn
from transformers import PreTrainedModel

from speclab.models.cache import KVCache
from speclab.models.linear import Linear
from speclab.models.masks import Mask


class Answer(NamedTuple):
    """What a pass gives: logits `[m, V]`, and the hidden states `[1, m, hidden]` of every layer if they were asked for.

    States are ordered as the module's `hidden_states`: the embeddings, then every block, the last after the final norm.
    """

    logits: Tensor
    states: Sequence[Tensor] = ()


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

    def __call__(
        self, tokens: Tensor, positions: Tensor, mask: Mask, cache: KVCache, *, last: int, states: bool
    ) -> Answer:
        """Appends the rows to the cache, and answers them.

        Args:
            tokens, positions: `[m]` int64, on the model's device.
            mask: additive `[1, 1, m, n]`, or one a kind of layer; None for a prompt into an empty cache.
            cache: holds the first `n - m` columns.
            last: answer only so many of the last rows; 0 answers all.
            states: hand out the hidden states too.
        """
        ...


class ModulePass:
    """Through the `transformers` module, whatever its family.

    Args:
        model: the module.
        reason: why not through its family's lean forward; empty where there is none, or by choice.
    """

    def __init__(self, model: PreTrainedModel, reason: str = "") -> None:
        self.model = model
        self.name = f"module: {reason}" if reason else "module"
        self._takes_last = "logits_to_keep" in inspect.signature(model.forward).parameters

    def __call__(
        self, tokens: Tensor, positions: Tensor, mask: Mask, cache: KVCache, *, last: int, states: bool
    ) -> Answer:
        """A pass, as `Through` says."""
        output = self.model(
            tokens[None],
            attention_mask=mask,
            position_ids=positions[None],
            past_key_values=cache,
            use_cache=True,
            **({"logits_to_keep": last} if self._takes_last else {}),
            **({"output_hidden_states": True} if states else {}),
        )
        return Answer(output.logits[0], output.hidden_states if states else ())
