"""The lean pass: GPT-NeoX (Pythia, the mini family) and Llama written out, with packed weights on a
CPU.

The library's module spends up to half of a small model's pass in Python. A lean pass uses the
module's weights and arithmetic, so it equals the module within rounding; the probe compares the two
at load. `lean_forward` returns None if passes go through the module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from speclab.models import transfers
from speclab.models.cache import KVCache

FIRST_POSITIONS = 1024
SPARE_POSITIONS = 256  # positions of a pass may exceed the length of the cache
PACKING: bool | None = None  # whether to pack weights; None: if that is measured to be faster
ROUNDS = 5
MARGIN = 0.05  # of the time; closer than this, both are called equal, and nothing is copied
TREE_ROWS = (1, 8)  # of a pass of plain decoding, and of a tree
_measured: dict[tuple[object, ...], int] = {}
# rotary embeddings that depend on the position alone
_FIXED_ANGLES = {"default", "linear", "llama3", "yarn"}
_OWN_MODULES = {"transformers.activations", "torch.nn.modules.activation"}
_OWN_PARTS = {nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout, nn.ModuleList, nn.Module}
# Activations that oneDNN fuses with a product, by the library's class.
_FUSED = {
    "SiLUActivation": ("swish", ""),
    "SiLU": ("swish", ""),
    "GELUActivation": ("gelu", "none"),
    "NewGELUActivation": ("gelu", "tanh"),
    "GELUTanh": ("gelu", "tanh"),
    "ReLU": ("relu", ""),
}

Angles = tuple[Tensor, Tensor]
"""Cosines and sines of the rows' positions, each `[m, half]`."""


class Linear:
    """`act(x Wᵀ + b)` with one `nn.Linear`, or with several that read the same rows, their outputs
    concatenated.

    `pack` copies the weights into oneDNN's layout. The library's product repacks its weights at
    every call, which takes longer than the product if rows are few.
    """

    def __init__(self, *modules: nn.Linear, act: Any = None) -> None:
        self.modules: tuple[Any, ...] = modules
        self.act = act
        self.packed_from = 1
        self.packed: Tensor | None = None

    def pack(self) -> None:
        weights = torch.cat([module.weight for module in self.modules])
        biases = [
            weights.new_zeros(module.out_features) if module.bias is None else module.bias
            for module in self.modules
        ]
        bias = torch.cat(biases)
        self._bias = bias if bias.any() else None
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weights)

    def __call__(
        self, rows: Tensor, *, plus: Tensor | None = None, times: Tensor | None = None
    ) -> Tensor:
        if self.packed is None or rows.shape[-2] < self.packed_from:
            return self.by_library(rows, plus, times)
        return self.by_packed(rows, plus, times)

    def by_packed(
        self, rows: Tensor, plus: Tensor | None = None, times: Tensor | None = None
    ) -> Tensor:
        """As a call, with the packed copies."""
        product, product_and_other = _operators()
        if plus is not None:
            return product_and_other(rows, plus, self.packed, self._bias, "add")
        if times is not None:
            return product_and_other(rows, times, self.packed, self._bias, "mul")
        if self.act is None:
            return product(rows, self.packed, self._bias, "none", [], "")
        name, algorithm = _FUSED.get(type(self.act).__name__, ("none", ""))
        out = product(rows, self.packed, self._bias, name, [], algorithm)
        return out if name != "none" else torch.as_tensor(self.act(out))

    def by_library(
        self, rows: Tensor, plus: Tensor | None = None, times: Tensor | None = None
    ) -> Tensor:
        """As a call, with the modules' own weights."""
        outputs = [F.linear(rows, module.weight, module.bias) for module in self.modules]
        product = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        product = product if self.act is None else self.act(product)
        if plus is not None:
            return plus + product
        return product if times is None else product * times


@torch.inference_mode()
def pack(linears: Sequence[Linear]) -> int:
    """Packs the weights of a model on a CPU if that is faster for one row, or for the rows of a tree.

    Returns:
        The rows from which a pass uses the packed copies; 0 if there are none.
    """
    weights = [module.weight for linear in linears for module in linear.modules]
    on_cpu = all(weight.device.type == "cpu" for weight in weights)
    if PACKING is False or not on_cpu or not _can_pack(weights[0].dtype):
        return 0
    for linear in linears:
        linear.pack()
    least = 1 if PACKING else _faster_from(linears)
    for linear in linears:
        linear.packed_from = least
        if not least:
            linear.packed = None
    return least


def _faster_from(linears: Sequence[Linear]) -> int:
    """The least of `TREE_ROWS` from which packed products are faster, 0 for none; measured once per
    process.

    A second model of these shapes decides as the first did, since measurements vary.
    """
    shapes = tuple(
        (module.weight.shape, module.weight.dtype) for each in linears for module in each.modules
    )
    conditions = (torch.get_num_threads(), shapes)
    if conditions not in _measured:
        faster = [rows for rows in TREE_ROWS if _is_faster(linears, rows)]
        _measured[conditions] = min(faster, default=0)
    return _measured[conditions]


def _is_faster(linears: Sequence[Linear], rows: int) -> bool:
    """Whether packed products of so many rows are faster by `MARGIN`, over all layers in the order
    of a pass."""
    like = linears[0].modules[0].weight
    widths = {linear.modules[0].in_features for linear in linears}
    inputs = {width: like.new_ones((rows, width)) for width in widths}
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):  # alternate, so that a busy moment affects both
        for packed in seconds:
            start = perf_counter()
            for linear in linears:
                multiply = linear.by_packed if packed else linear.by_library
                multiply(inputs[linear.modules[0].in_features])
            seconds[packed].append(perf_counter() - start)
    return median(seconds[True]) < (1 - MARGIN) * median(seconds[False])


@cache
def _operators() -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """oneDNN's product with an activation, and with another tensor added or multiplied."""
    operators: Any = torch.ops.mkldnn._linear_pointwise
    return operators.default, operators.binary


@cache
def _can_pack(dtype: torch.dtype) -> bool:
    """Whether torch's private operators exist and compute correct products in this dtype."""
    module = nn.Linear(16, 16, dtype=dtype)
    rows = torch.linspace(-1, 1, 32, dtype=dtype).view(2, 16)
    activated = Linear(module, act=nn.SiLU())
    added = Linear(module)
    try:
        expected = torch.cat([activated(rows), added(rows, plus=rows)])
        activated.pack()
        added.pack()
        difference = (torch.cat([activated(rows), added(rows, plus=rows)]) - expected).abs().max()
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return float(difference) < (1e-5 if dtype == torch.float32 else 0.05)


def grouped_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention in which heads that share keys become rows, since fast kernels take a mask or
    shared keys, but not both.

    `query` and the result: `[B, heads, m, dim]`. `keys`, `values`: `[B, shared heads, n, dim]`.
    `mask`: `[…, m, n]`, bool or additive; None hides nothing.
    """
    batch, heads, rows, dim = query.shape
    group = heads // keys.shape[1]
    repeated = None if mask is None else mask.repeat(*(1,) * (mask.ndim - 2), group, 1)
    together = query.reshape(batch, keys.shape[1], group * rows, dim)
    out = F.scaled_dot_product_attention(together, keys, values, repeated)
    return out.reshape(batch, heads, rows, dim)


def _normed(norm: Any, rows: Tensor) -> Tensor:
    """The norm of rows as one operator, twice as fast as the module for a few rows."""
    if isinstance(norm, nn.LayerNorm):
        return torch.layer_norm(rows, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    return F.rms_norm(rows, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotates the first `2 * half` features of every head `[m, …, dim]` in place; `cos`, `sin`: `[m, half]`."""
    half = cos.shape[-1]
    shape = (len(cos), *(1,) * (heads.ndim - 2), half)
    cos = cos.view(shape)
    sin = sin.view(shape)
    low = heads[..., :half]
    high = heads[..., half : 2 * half]
    from_low = low * sin
    from_high = high * sin
    low.mul_(cos).sub_(from_high)
    high.mul_(cos).add_(from_low)


# A decoder layer maps rows `[m, hidden]` and appends their keys and values to the cache. Its mask
# is additive, `[1, 1, m, n]`, or None for causal order.


class _NeoXLayer:
    def __init__(self, layer: Any, index: int, config: Any) -> None:
        self.index = index
        self.heads: int = config.num_attention_heads
        self.parallel: bool = layer.use_parallel_residual
        self.before_attention = layer.input_layernorm
        self.before_mlp = layer.post_attention_layernorm
        self.qkv = Linear(layer.attention.query_key_value)
        self.out = Linear(layer.attention.dense)
        self.up = Linear(layer.mlp.dense_h_to_4h, act=layer.mlp.act)
        self.down = Linear(layer.mlp.dense_4h_to_h)
        self.linears = (self.qkv, self.out, self.up, self.down)

    def __call__(self, rows: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache) -> Tensor:
        attended = self.out(
            self._attention(_normed(self.before_attention, rows), angles, mask, cache), plus=rows
        )
        read = rows if self.parallel else attended
        return self.down(self.up(_normed(self.before_mlp, read)), plus=attended)

    def _attention(
        self, rows: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache
    ) -> Tensor:
        count = len(rows)
        qkv = self.qkv(rows).view(count, self.heads, 3, -1)  # per head: query, key, value
        _rotate(qkv[:, :, :2], *angles)
        query, key, value = qkv.transpose(0, 1)[None].unbind(3)
        keys, values = cache.update(key, value, self.index)
        out = F.scaled_dot_product_attention(
            query, keys, values, mask, is_causal=mask is None and count > 1
        )
        return out.transpose(1, 2).reshape(count, -1)


class _LlamaLayer:
    def __init__(self, layer: Any, index: int, config: Any) -> None:
        attention = layer.self_attn
        mlp = layer.mlp
        self.index = index
        self.dim: int = attention.head_dim
        self.heads: int = config.num_attention_heads
        self.shared: int = config.num_key_value_heads
        self.before_attention = layer.input_layernorm
        self.before_mlp = layer.post_attention_layernorm
        self.qkv = Linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = Linear(attention.o_proj)
        self.gate = Linear(mlp.gate_proj, act=mlp.act_fn)
        self.up = Linear(mlp.up_proj)
        self.down = Linear(mlp.down_proj)
        self.linears = (self.qkv, self.out, self.gate, self.up, self.down)

    def __call__(self, rows: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache) -> Tensor:
        rows = self.out(
            self._attention(_normed(self.before_attention, rows), angles, mask, cache), plus=rows
        )
        read = _normed(self.before_mlp, rows)
        return self.down(self.up(read, times=self.gate(read)), plus=rows)

    def _attention(
        self, rows: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache
    ) -> Tensor:
        count = len(rows)
        qkv = self.qkv(rows).view(count, -1, self.dim)
        _rotate(qkv[:, : self.heads + self.shared], *angles)
        query, key, value = qkv.transpose(0, 1)[None].split(
            (self.heads, self.shared, self.shared), dim=1
        )
        keys, values = cache.update(key, value, self.index)
        if mask is None and count > 1:
            out = F.scaled_dot_product_attention(
                query, keys, values, is_causal=True, enable_gqa=self.heads > self.shared
            )
        else:
            out = grouped_attention(query, keys, values, mask)
        return out.transpose(1, 2).reshape(count, -1)


_FAMILIES: dict[str, tuple[str, str, str, type[Any]]] = {
    "GPTNeoXForCausalLM": ("gpt_neox", "embed_in", "final_layer_norm", _NeoXLayer),
    "LlamaForCausalLM": ("model", "embed_tokens", "norm", _LlamaLayer),
}
"""By class: the names of the base model, its embedding and its final norm, and its layer written out."""


class LeanForward:
    """A model's pass, written out.

    Attributes:
        packed_from: rows from which a pass multiplies by packed copies of the weights; 0: there are
            none.
    """

    def __init__(self, model: PreTrainedModel, *, packing: bool) -> None:
        base_name, embedding, norm, layer = _FAMILIES[type(model).__name__]
        base: Any = getattr(model, base_name)
        self._embedding = getattr(base, embedding)
        self._norm = getattr(base, norm)
        self._rotary = base.rotary_emb
        self._layers = [layer(part, index, model.config) for index, part in enumerate(base.layers)]
        self._head = Linear(model.get_output_embeddings())
        linears = [self._head, *(linear for layer in self._layers for linear in layer.linears)]
        self.packed_from = pack(linears) if packing else 0
        self._cos = self._sin = torch.empty(0)

    def __call__(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
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
        rows = states[-1] = _normed(self._norm, rows)
        wanted = torch.stack([states[layer] for layer in layers], dim=1) if layers else None
        return self._head(rows[-1:] if last_only else rows), wanted

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
def lean_forward(model: PreTrainedModel, *, packing: bool = True) -> LeanForward | None:
    """The lean pass of a model; None if the module is not the library's own of a known family.

    Args:
        packing: multiply by packed copies of the weights if that is faster; False copies no weight.
    """
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
    return LeanForward(model, packing=packing) if is_own else None


def _is_own(part: nn.Module, library: set[str]) -> bool:
    """Whether a part of a module is the library's own: not an adapter, not patched, not placed by accelerate."""
    kind = type(part)
    if kind not in _OWN_PARTS and kind.__module__ not in library:
        return False
    patched = "forward" in vars(part) or kind.forward.__module__ not in library | {
        base.__module__ for base in _OWN_PARTS
    }
    return not patched and not hasattr(part, "_hf_hook")
