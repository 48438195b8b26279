"""Which forward a model's passes go through: a lean one where its family has it, else the module's own.

The library's module spends up to half of a small model's pass in Python; a lean forward shares its weights and keeps to
its arithmetic. A module that somebody has changed goes through itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from speclab.models import lean_llama, lean_neox
from speclab.models.cache import KVCache
from speclab.models.graphs import GraphPass
from speclab.models.linear import Copies, Linear, packable
from speclab.models.masks import Mask
from speclab.models.placed import weighs_itself
from speclab.models.rotary import Rotary
from speclab.models.through import Answer, ModulePass, Parts, Through

_FAMILIES: dict[str, Callable[..., Parts]] = {
    "GPTNeoXForCausalLM": lean_neox.parts,
    "LlamaForCausalLM": lean_llama.parts,
}
_FIXED_ANGLES = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary embedding whose angles are a function of the position alone."""


class LeanPass:
    """Through the layers of a family, written out; through the module while a hook waits for its call."""

    name = "lean"

    def __init__(self, model: PreTrainedModel, parts: Parts, *, pack: bool) -> None:
        self.embed, self.layers, self.norm = parts.embed, parts.layers, parts.norm
        self.rotary = Rotary(parts.rotary, parts.embed.weight)
        self.head = Linear(parts.head, pack=pack)
        self._copies = Copies([self.head, *(linear for layer in parts.layers for linear in layer.linears)])
        self._module, self._hookable = ModulePass(model), tuple(model.modules())

    def __call__(
        self, tokens: Tensor, positions: Tensor, mask: Mask, cache: KVCache, *, last: int, states: bool
    ) -> Answer:
        """A pass, as `Through` says."""
        if self.hooked:
            return self._module(tokens, positions, mask, cache, last=last, states=states)
        self.rotary.reserve(cache.length + len(tokens))
        self._copies.refresh()
        return self.rows(tokens, positions, mask, cache, last=last, states=states)

    @property
    def hooked(self) -> bool:
        """Whether a hook waits for the module's call, or for that of a part."""
        return any(part._forward_hooks or part._forward_pre_hooks for part in self._hookable)

    def rows(self, tokens: Tensor, positions: Tensor, mask: Mask, cache: KVCache, *, last: int, states: bool) -> Answer:
        """The pass itself: tensor work alone, over angles that were reserved."""
        assert not isinstance(mask, dict)
        rows = F.embedding(tokens, self.embed.weight)
        angles = self.rotary.at(positions)
        kept = [rows]
        for layer in self.layers:
            rows = layer(rows, angles, mask, cache)
            kept.append(rows)
        rows = kept[-1] = self.norm(rows)
        return Answer(self.head(rows[-last:]), [state[None] for state in kept] if states else ())


def through(model: PreTrainedModel) -> Through:
    """The lean forward of a model where it has one and runs as its family's module does, else the module's own.

    On CUDA its small passes run as graphs.
    """
    family = _FAMILIES.get(type(model).__name__)
    if family is None or not _unchanged(model) or not _plain(model.config):
        return ModulePass(model)
    pack = packable(model)
    with torch.inference_mode():
        lean = LeanPass(model, family(model, pack=pack), pack=pack)
    return GraphPass(lean, model) if model.device.type == "cuda" else lean


def _unchanged(model: PreTrainedModel) -> bool:
    """Whether every part is the library's own and on one device: no adapter, no quantised, parted or shared layer."""
    own = {type(model).__module__, "transformers.activations", "torch.nn.modules.activation"}
    kinds = {nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout, nn.ModuleList}
    placed = weighs_itself(model) and len({weight.device for weight in model.parameters()}) == 1
    return placed and all(
        (type(part) in kinds or type(part).__module__ in own) and not hasattr(part, "_hf_hook")
        for part in model.modules()
    )


def _plain(config: Any) -> bool:
    rope = getattr(config, "rope_parameters", None) or {}
    return config._attn_implementation == "sdpa" and rope.get("rope_type", "default") in _FIXED_ANGLES
