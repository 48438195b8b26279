"""Forward passes written out for two families, GPT-NeoX (Pythia, the mini family) and Llama.

The library's module spends up to half of a small model's pass in Python; a lean forward shares its weights and keeps to
its arithmetic. A module that somebody has changed is not run this way: `lean_forward` gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from speclab.errors import UnsupportedModelError
from speclab.models.cache import KVCache
from speclab.models.fast.exact import VALUE_BITS, ExactAttention, FixedRows
from speclab.models.fast.packed import Linear, PackedWeights, can_pack, worth_packing
from speclab.models.forward import Batch, ForwardOutput, Implementation, heads_as_rows, stack_states
from speclab.models.masks import Mask
from speclab.models.memory import has_plain_weights, is_out_of_memory

FIRST_POSITIONS = 1024
_PLAIN = {nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout, nn.ModuleList, nn.Module}
"""Parts that every family is built of."""
_FIXED_ANGLES = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary embedding whose angles are a function of the position alone."""
Angles = tuple[Tensor, Tensor]
"""Cosines and sines, each `[m, half]`, of the rows' positions."""


class Layer(Protocol):
    """One decoder layer; `mask` is additive, `[1, 1, m, n]`, or in exact arithmetic what is hidden, `[m, n]` bool."""

    linears: Sequence[Linear]

    def __call__(self, rows: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache) -> Tensor:
        """`[m, hidden]` to `[m, hidden]`; appends keys and values to the cache."""
        ...


class Parts(NamedTuple):
    """What a causal model is made of: embeddings, rotary module, layers, final norm, output layer."""

    embed: nn.Embedding
    rotary: nn.Module
    layers: Sequence[Layer]
    norm: nn.Module
    head: nn.Linear


class NeoXLayer:
    """One layer of GPT-NeoX."""

    def __init__(self, layer: Any, index: int, config: Any, *, bitwise: bool) -> None:
        attention, mlp = layer.attention, layer.mlp
        product = FixedRows if bitwise else Linear
        self.index, self.heads = index, config.num_attention_heads
        self.parallel: bool = config.use_parallel_residual
        self.before_attention, self.before_mlp = layer.input_layernorm, layer.post_attention_layernorm
        self.qkv, self.out = product(attention.query_key_value), product(attention.dense)
        self.up, self.down = product(mlp.dense_h_to_4h, act=mlp.act), product(mlp.dense_4h_to_h)
        self.linears: Sequence[Linear] = (self.qkv, self.out, self.up, self.down)
        self.exact = self._exactly(attention.query_key_value) if bitwise else None

    def __call__(self, rows: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache) -> Tensor:
        """Appends the rows' keys and values to the cache."""
        attended = self.out(self._attention(normed(self.before_attention, rows), angles, mask, cache), plus=rows)
        read = rows if self.parallel else attended
        return self.down(self.up(normed(self.before_mlp, read)), plus=attended)

    def _attention(self, rows: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache) -> Tensor:
        count = len(rows)
        qkv = self.qkv(rows).view(count, self.heads, 3, -1)  # each head's query, key and value lie together
        if self.exact is not None:
            wide = qkv.transpose(1, 2).to(torch.float64, memory_format=torch.contiguous_format)
            rotate(wide[:, :2], *angles)
            return self.exact(wide.flatten(1, 2), mask, cache, self.index)
        rotate(qkv[:, :, :2], *angles)
        query, key, value = qkv.transpose(0, 1)[None].unbind(3)
        keys, values = cache.update(key, value, self.index)
        out = F.scaled_dot_product_attention(query, keys, values, mask, is_causal=mask is None and count > 1)
        return out.transpose(1, 2).reshape(count, -1)

    def _exactly(self, qkv: nn.Linear) -> ExactAttention:
        def by_head(part: Tensor) -> Tensor:  # queries of all heads, then keys, then values
            return torch.cat(list(part.unflatten(0, (self.heads, 3, -1)).unbind(1)))

        given: Tensor | None = qkv.bias
        bias = None if given is None else by_head(given)
        return ExactAttention(by_head(qkv.weight), bias, self.before_attention, self.heads, self.heads)


def normed(norm: Any, rows: Tensor) -> Tensor:
    """A norm of the rows; the module's call takes as long again as that of a few rows."""
    if isinstance(norm, nn.LayerNorm):
        return torch.layer_norm(rows, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    return F.rms_norm(rows, norm.weight.shape, norm.weight, norm.variance_epsilon)


class LlamaLayer:
    """One layer of Llama."""

    def __init__(self, layer: Any, index: int, config: Any, *, bitwise: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        product = FixedRows if bitwise else Linear
        self.index, self.dim = index, attention.head_dim
        self.heads, self.shared = config.num_attention_heads, config.num_key_value_heads
        self.before_attention, self.before_mlp = layer.input_layernorm, layer.post_attention_layernorm
        qkv = attention.q_proj, attention.k_proj, attention.v_proj
        self.qkv, self.out, self.gate = product(*qkv), product(attention.o_proj), product(mlp.gate_proj, act=mlp.act_fn)
        self.up, self.down = product(mlp.up_proj), product(mlp.down_proj)
        self.linears: Sequence[Linear] = (self.qkv, self.out, self.gate, self.up, self.down)
        self.exact = self._exactly(*qkv) if bitwise else None

    def __call__(self, rows: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache) -> Tensor:
        """Appends the rows' keys and values to the cache."""
        rows = self.out(self._attention(normed(self.before_attention, rows), angles, mask, cache), plus=rows)
        read = normed(self.before_mlp, rows)
        return self.down(self.up(read, times=self.gate(read)), plus=rows)

    def _attention(self, rows: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache) -> Tensor:
        count, turned = len(rows), self.heads + self.shared
        qkv = self.qkv(rows).view(count, -1, self.dim)
        if self.exact is not None:
            wide = qkv.to(torch.float64)
            rotate(wide[:, :turned], *angles)
            return self.exact(wide, mask, cache, self.index)
        rotate(qkv[:, :turned], *angles)
        query, key, value = qkv.transpose(0, 1)[None].split((self.heads, self.shared, self.shared), dim=1)
        keys, values = cache.update(key, value, self.index)
        if mask is None:
            out = F.scaled_dot_product_attention(
                query, keys, values, is_causal=count > 1, enable_gqa=self.heads > self.shared
            )
        else:
            out = heads_as_rows(query, keys, values, mask)
        return out.transpose(1, 2).reshape(count, -1)

    def _exactly(self, *qkv: nn.Linear) -> ExactAttention:
        given: list[Tensor | None] = [part.bias for part in qkv]
        biases = [bias.unflatten(0, (-1, self.dim)) for bias in given if bias is not None]
        weights = [part.weight.unflatten(0, (-1, self.dim)) for part in qkv]
        bias = torch.cat(biases) if biases else None
        return ExactAttention(torch.cat(weights), bias, self.before_attention, self.heads, self.shared)


def _neox(model: Any, *, bitwise: bool) -> Parts:
    base = model.gpt_neox
    layers = [NeoXLayer(each, place, model.config, bitwise=bitwise) for place, each in enumerate(base.layers)]
    return Parts(base.embed_in, base.rotary_emb, layers, base.final_layer_norm, model.get_output_embeddings())


def _llama(model: Any, *, bitwise: bool) -> Parts:
    base = model.model
    layers = [LlamaLayer(each, place, model.config, bitwise=bitwise) for place, each in enumerate(base.layers)]
    return Parts(base.embed_tokens, base.rotary_emb, layers, base.norm, model.get_output_embeddings())


_FAMILIES: dict[str, Callable[..., Parts]] = {"GPTNeoXForCausalLM": _neox, "LlamaForCausalLM": _llama}


class Rotary:
    """Cosines and sines of every position that was needed so far, made once by the module's own rule.

    Args:
        module: the model's rotary module, called as `(x, positions)`; its angles may not depend on the length.
        like: a tensor of the dtype and device that they are wanted in.
    """

    def __init__(self, module: nn.Module, like: Tensor) -> None:
        self._module: Any = module
        self._like = like
        self._cos = self._sin = like.new_empty(0)

    def reserve(self, positions: int) -> None:
        """Makes the tables reach that many positions."""
        if positions > len(self._cos):
            wanted = torch.arange(max(positions, 2 * len(self._cos), FIRST_POSITIONS), device=self._like.device)
            cos, sin = self._module(self._like, wanted[None])
            self._frequencies = self._module.inv_freq.clone()
            half = cos.shape[-1] // 2  # the second half repeats the first
            self._cos, self._sin = cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()

    def is_current(self) -> bool:
        """Whether the tables, if there are any yet, are still what the module's frequencies give."""
        return not len(self._cos) or torch.equal(self._frequencies, self._module.inv_freq)

    @property
    def tables(self) -> Angles:
        """Cosines and sines by position; who keeps them may read them after others took their place."""
        return self._cos, self._sin

    def at(self, positions: Tensor) -> Angles:
        """Those of `positions` `[m]`, which were reserved."""
        return self._cos.index_select(0, positions), self._sin.index_select(0, positions)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotates the first `2 * half` features of every head in place; what lies beyond stays.

    Args:
        heads: `[m, …, dim]`.
        cos, sin: `[m, half]`.
    """
    half = cos.shape[-1]
    shape = (len(cos), *(1,) * (heads.ndim - 2), half)
    cos, sin = cos.view(shape), sin.view(shape)
    low, high = heads[..., :half], heads[..., half : 2 * half]
    from_low, from_high = low * sin, high * sin
    low.mul_(cos).sub_(from_high)
    high.mul_(cos).add_(from_low)


class LeanForward(Implementation):
    """The layers of a family, written out; it accepts no pass while a hook waits for the module's call.

    Args:
        bitwise: the layers compute as `speclab.models.fast.exact` does. The module could not take over then.
        pack: multiply by packed copies of the weights where that is faster.
    """

    feature = "lean forward"

    def __init__(self, model: PreTrainedModel, parts: Parts, *, bitwise: bool, pack: bool = True) -> None:
        self.bitwise = bitwise
        self.embed, self.layers, self.norm = parts.embed, parts.layers, parts.norm
        self.rotary = Rotary(parts.rotary, parts.embed.weight)
        self.head = FixedRows(parts.head) if bitwise else Linear(parts.head)
        linears = [self.head, *(linear for layer in parts.layers for linear in layer.linears)]
        pack = pack and (can_pack(linears) if bitwise else worth_packing(linears))
        self.packed = PackedWeights(linears, pack=pack)
        self.name = "lean" + ", packed" * pack + ", bitwise" * bitwise
        self._hookable, self._hooks_seen, self._hooked = tuple(model.modules()), -1, False

    def accepts(self, batch: Batch, cache: KVCache) -> bool:  # noqa: ARG002
        """Whether nobody watches the module."""
        if self.bitwise and self.hooked:
            raise UnsupportedModelError(
                "A hook waits for a module whose passes are bitwise and never go through it: remove the hook, or load "
                "the pair with bitwise=False."
            )
        return not self.hooked

    def may_fall_back(self, error: Exception) -> bool:
        """The module would need as much memory, and has other bits."""
        return not self.bitwise and not is_out_of_memory(error)

    def __call__(self, batch: Batch, cache: KVCache) -> ForwardOutput:
        """A pass, as `Forward` says."""
        self.rotary.reserve(cache.length + len(batch.tokens))
        self.packed.refresh()
        return self.compute(*batch.tensors(), cache, last=batch.last, layers=batch.layers)

    @property
    def hooked(self) -> bool:
        """Whether a hook waits for the module's call, for that of a part, or for any module's.

        Every hook has a handle, and torch numbers them: where none was made since the last look, none was added.
        """
        if self._hooked or RemovableHandle.next_id != self._hooks_seen:
            self._hooks_seen = RemovableHandle.next_id
            self._hooked = bool(module._global_forward_hooks or module._global_forward_pre_hooks) or any(
                part._forward_hooks or part._forward_pre_hooks for part in self._hookable
            )
        return self._hooked

    def compute(
        self, tokens: Tensor, positions: Tensor, mask: Mask, cache: KVCache, *, last: int, layers: Sequence[int]
    ) -> ForwardOutput:
        """The pass itself: tensor work alone, over angles that were reserved."""
        assert not isinstance(mask, dict)
        rows = F.embedding(tokens, self.embed.weight)
        angles, seen = self.rotary.at(positions), mask
        if self.bitwise:
            angles = angles[0].double(), angles[1].double()
            seen = None if mask is None else mask[0, 0] < 0
        kept = [rows]
        for layer in self.layers:
            rows = layer(rows, angles, seen, cache)
            kept.append(rows)
        rows = kept[-1] = normed(self.norm, rows)
        return ForwardOutput(self.head(rows[-last:]), stack_states(kept, layers) if layers else None, mask)


def lean_forward(model: PreTrainedModel, *, bitwise: bool = False, pack: bool = True) -> LeanForward | str:
    """The lean forward of a model, or why it has none; empty where its family was never written out."""
    family = _FAMILIES.get(type(model).__name__)
    reason = "" if family is None else _why_not(model)
    if family is None or reason:
        return reason
    if bitwise and model.dtype not in VALUE_BITS:
        return f"its dtype is {str(model.dtype).removeprefix('torch.')}"
    with torch.inference_mode():
        lean = LeanForward(model, family(model, bitwise=bitwise), bitwise=bitwise, pack=pack)
    if bitwise and model.device.type == "cpu" and not lean.packed.fused:
        return "oneDNN packs no such products on this processor, or too little memory is free"
    return lean


def _why_not(model: PreTrainedModel) -> str:
    """Why a module of a family with a lean forward does not run as the family's does; empty if it does."""
    config, layers = model.config, len(list(model.base_model.get_submodule("layers").children()))
    rope = getattr(config, "rope_parameters", None) or {}
    if config._attn_implementation != "sdpa":
        return f"its attention is {config._attn_implementation}"
    if rope.get("rope_type", "default") not in _FIXED_ANGLES:
        return f"its rotary angles ({rope['rope_type']}) are no function of the position alone"
    if not has_plain_weights(model) or len({(weight.device, weight.dtype) for weight in model.parameters()}) != 1:
        return "its weights differ in kind, device or dtype"
    if layers != config.num_hidden_layers:
        return f"it has {layers} layers and its config says {config.num_hidden_layers}"
    return next((reason for part in model.modules() if (reason := _foreign(part, type(model).__module__))), "")


def _foreign(part: nn.Module, family: str) -> str:
    """What makes a part another than the library's own for this family; empty if nothing does."""
    kind = type(part)
    own = {family, "transformers.activations", "torch.nn.modules.activation"}
    if kind not in _PLAIN and kind.__module__ not in own:
        return f"a part of it is a {kind.__module__}.{kind.__qualname__}"
    if "forward" in vars(part) or kind.forward.__module__ not in own | {parent.__module__ for parent in _PLAIN}:
        return f"the forward of its {kind.__name__} was replaced"
    return f"its {kind.__name__} is placed by accelerate" if hasattr(part, "_hf_hook") else ""
