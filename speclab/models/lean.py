"""The lean pass: GPT-NeoX (Pythia, the mini family) and Llama written out, with packed weights on a
CPU.

The library's module spends up to half of a small model's pass in Python. A lean pass uses the
module's weights and arithmetic, so it equals the module within rounding; the probe compares the two
at load. `lean_forward` returns None if passes go through the module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from speclab.models import transfers
from speclab.models.cache import KVCache
from speclab.models.eight_bits import EightBit
from speclab.models.own_paths import OwnPaths
from speclab.models.products import CLASSES
from speclab.models.products import Linear as Linear

FIRST_POSITIONS = 1024
SPARE_POSITIONS = 256  # positions of a pass may exceed the length of the cache
# rotary embeddings that depend on the position alone
_FIXED_ANGLES = {"default", "linear", "llama3", "yarn"}
_OWN_MODULES = {"transformers.activations", "torch.nn.modules.activation"}
_OWN_PARTS = {EightBit, nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout, nn.ModuleList, nn.Module}
Angles = tuple[Tensor, Tensor]
"""Cosines and sines of the rows' positions, each `[m, half]`."""


def attention(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """Attention of `query` `[B, heads, m, dim]` to `keys` and `values` `[B, shared heads, n, dim]`,
    as `query`.

    `mask`: `[…, m, n]`, bool or additive; None hides nothing, or with `causal` what is later.
    """
    batch, heads, rows, dim = query.shape
    group = heads // keys.shape[1]
    if group == 1 or causal:
        return F.scaled_dot_product_attention(
            query, keys, values, mask, is_causal=causal, enable_gqa=group > 1
        )
    # fast kernels take a mask or shared keys, but not both: heads that share keys become rows
    if mask is not None:
        mask = mask.repeat((1,) * (mask.ndim - 2) + (group, 1))
    together = query.reshape(batch, keys.shape[1], group * rows, dim)
    out = F.scaled_dot_product_attention(together, keys, values, mask)
    return out.reshape(batch, heads, rows, dim)


def _one_row(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of one row in the library's form, whose bits it has; shapes as in `attention`."""
    shared = keys.shape[1] < query.shape[1]
    return F.scaled_dot_product_attention(query, keys, values, enable_gqa=shared)


def _normed(norm: Any, rows: Tensor) -> Tensor:
    """The norm of rows in few operators, twice as fast as the module for a few rows."""
    if isinstance(norm, nn.LayerNorm):
        return torch.layer_norm(rows, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    # the module rounds to the dtype before it multiplies by the weight, too
    weight: Tensor = norm.weight
    return F.rms_norm(rows, weight.shape, None, norm.variance_epsilon) * weight


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotates the first `2 * half` features of every head `[m, …, dim]` in place; `cos`, `sin`: `[m, half]`."""
    half = cos.shape[-1]
    shape = (len(cos),) + (1,) * (heads.ndim - 2) + (half,)
    cos = cos.view(shape)
    sin = sin.view(shape)
    low = heads[..., :half]
    high = heads[..., half : 2 * half]
    from_low = low * sin
    from_high = high * sin
    # (a, b) to (a cos - b sin, b cos + a sin); both products are taken before a and b change
    low.mul_(cos).sub_(from_high)
    high.mul_(cos).add_(from_low)


LeanMask = Tensor | OwnPaths | None
# A decoder layer maps rows `[m, hidden]` and appends their keys and values to the cache. Its mask
# is additive, `[1, 1, m, n]`; None for causal order; or the rows read by own path.


class _Layer:
    def __init__(self, out: Any, index: int, config: Any) -> None:
        self.index = index
        self.heads: int = config.num_attention_heads
        self.out = Linear(out)

    def _mix(
        self, query: Tensor, key: Tensor, value: Tensor, mask: LeanMask, cache: KVCache
    ) -> Tensor:
        """What `query` `[1, heads, m, dim]` reads, `[m, hidden]`; stores `key` and `value`."""
        count = query.shape[2]
        keys, values = cache.update(key, value, self.index)
        if isinstance(mask, OwnPaths):
            out = torch.cat(mask.attend(query, keys, values, _one_row, None), dim=2)
        else:
            out = attention(query, keys, values, mask, causal=mask is None and count > 1)
        return self.out(out.transpose(1, 2).reshape(count, -1))


class _NeoXLayer(_Layer):
    def __init__(self, layer: Any, index: int, config: Any) -> None:
        super().__init__(layer.attention.dense, index, config)
        self.parallel: bool = layer.use_parallel_residual
        self.before_attention = layer.input_layernorm
        self.before_mlp = layer.post_attention_layernorm
        self.qkv = Linear(layer.attention.query_key_value)
        self.up = Linear(layer.mlp.dense_h_to_4h)
        self.act = layer.mlp.act
        self.down = Linear(layer.mlp.dense_4h_to_h)

    def __call__(self, rows: Tensor, angles: Angles, mask: LeanMask, cache: KVCache) -> Tensor:
        attended = self._attention(_normed(self.before_attention, rows), angles, mask, cache)
        # Pythia: MLP(LN2(x)) + Attn(LN1(x)) + x, added in the module's order
        if self.parallel:
            return self._mlp(rows) + attended + rows
        rows = attended + rows
        return self._mlp(rows) + rows

    def _mlp(self, rows: Tensor) -> Tensor:
        read = _normed(self.before_mlp, rows)
        hidden: Tensor = self.down(self.act(self.up(read)))
        return hidden

    def _attention(self, rows: Tensor, angles: Angles, mask: LeanMask, cache: KVCache) -> Tensor:
        qkv = self.qkv(rows).view(len(rows), self.heads, 3, -1)  # per head: query, key, value
        _rotate(qkv[:, :, :2], *angles)  # queries and keys; values have no position
        query, key, value = qkv.transpose(0, 1)[None].unbind(3)
        return self._mix(query, key, value, mask, cache)


class _LlamaLayer(_Layer):
    def __init__(self, layer: Any, index: int, config: Any) -> None:
        attention = layer.self_attn
        mlp = layer.mlp
        super().__init__(attention.o_proj, index, config)
        self.dim: int = attention.head_dim
        self.shared: int = config.num_key_value_heads
        self.before_attention = layer.input_layernorm
        self.before_mlp = layer.post_attention_layernorm
        self.qkv = Linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.gate = Linear(mlp.gate_proj)
        self.act = mlp.act_fn
        self.up = Linear(mlp.up_proj)
        self.down = Linear(mlp.down_proj)

    def __call__(self, rows: Tensor, angles: Angles, mask: LeanMask, cache: KVCache) -> Tensor:
        rows = rows + self._attention(_normed(self.before_attention, rows), angles, mask, cache)
        read = _normed(self.before_mlp, rows)
        # SwiGLU: W_down (act(W_gate x) * W_up x)
        return rows + self.down(self.act(self.gate(read)) * self.up(read))

    def _attention(self, rows: Tensor, angles: Angles, mask: LeanMask, cache: KVCache) -> Tensor:
        qkv = self.qkv(rows).view(len(rows), -1, self.dim)  # [m, heads + 2 * shared, dim]
        _rotate(qkv[:, : self.heads + self.shared], *angles)  # queries and keys
        query, key, value = qkv.transpose(0, 1)[None].split(
            (self.heads, self.shared, self.shared), dim=1
        )
        return self._mix(query, key, value, mask, cache)


_FAMILIES: dict[str, tuple[str, str, str, type[Any]]] = {
    "GPTNeoXForCausalLM": ("gpt_neox", "embed_in", "final_layer_norm", _NeoXLayer),
    "LlamaForCausalLM": ("model", "embed_tokens", "norm", _LlamaLayer),
}
"""By class: the names of the base model, its embedding and its final norm, and its layer written out."""


class LeanForward:
    """A model's pass, written out.

    Attributes:
        products: all of its products.
        packed: whether some of them use packed copies of the weights.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        base_name, embedding, norm, layer = _FAMILIES[type(model).__name__]
        base: Any = getattr(model, base_name)
        self._embedding = getattr(base, embedding)
        self._norm = getattr(base, norm)
        self._rotary = base.rotary_emb
        self._layers = [layer(part, index, model.config) for index, part in enumerate(base.layers)]
        self.output = Linear(model.get_output_embeddings())
        self.products = [self.output]
        for layer in self._layers:
            self.products += [part for part in vars(layer).values() if isinstance(part, Linear)]
        self.packed = any(product.packed is not None for product in self.products)
        self._cos = self._sin = torch.empty(0)

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: LeanMask,
        cache: KVCache,
        *,
        last_only: bool = False,
        layers: Sequence[int] = (),
    ) -> tuple[Tensor, Tensor | None]:
        angles = self._angles(positions, cache.length + len(tokens))
        rows = F.embedding(tokens, self._embedding.weight)
        states = [rows]
        for layer in self._layers:
            rows = layer(rows, angles, mask, cache)
            states.append(rows)
        # as in the library's hidden_states: the last one is normed
        rows = states[-1] = _normed(self._norm, rows)
        wanted = None
        if layers:
            wanted = torch.stack([states[layer] for layer in layers], dim=1)
        if last_only:
            rows = rows[-1:]
        elif mask is None and len(rows) > 1:
            # a whole prompt: as in `generate`, the last row is a product of its own
            return torch.cat((self.output(rows[:-1]), self.output(rows[-1:]))), wanted
        return self.output(rows), wanted

    def ways(self) -> str:
        """How products are computed, by class of rows: plain, packed, or both."""
        words = []
        for index, name in enumerate(CLASSES):
            ways = {product.ways[index] for product in self.products}
            word = "plain"
            if True in ways:
                word = "packed"
            if len(ways) > 1:
                word = "both"
            words.append(f"{name} {word}")
        return ", ".join(words)

    def _angles(self, positions: Tensor, length: int) -> Angles:
        """Angles of `positions`, from tables computed by the module's own rule."""
        if length + SPARE_POSITIONS > len(self._cos):
            like = self._embedding.weight
            size = max(length + SPARE_POSITIONS, 2 * len(self._cos), FIRST_POSITIONS)
            table = torch.arange(size, device=like.device)
            cos, sin = self._rotary(like, table[None])
            half = cos.shape[-1] // 2  # the second half repeats the first
            self._sin = sin[0, :, :half].contiguous()
            self._cos = cos[0, :, :half].contiguous()
        return self._cos.index_select(0, positions), self._sin.index_select(0, positions)


@torch.inference_mode()
def lean_forward(model: PreTrainedModel) -> LeanForward | None:
    """The lean pass of a model; None if the module is not the library's own of a known family."""
    rope = getattr(model.config, "rope_parameters", None) or {}
    library = _OWN_MODULES | {type(model).__module__}
    is_own = (
        type(model).__name__ in _FAMILIES
        and model.config._attn_implementation == "sdpa"
        and rope.get("rope_type", "default") in _FIXED_ANGLES
        and len({(weight.device, weight.dtype) for weight in model.parameters()}) == 1
        and transfers.has_plain_weights(model)
        and all(_is_own(part, library) for part in model.modules())
    )
    if not is_own:
        return None
    return LeanForward(model)


def _is_own(part: nn.Module, library: set[str]) -> bool:
    """Whether a part of a module is the library's own: not an adapter, not patched, not placed by accelerate."""
    kind = type(part)
    if kind not in _OWN_PARTS and kind.__module__ not in library:
        return False
    if "forward" in vars(part) or hasattr(part, "_hf_hook"):
        return False
    homes = {base.__module__ for base in _OWN_PARTS}
    return kind.forward.__module__ in library | homes
