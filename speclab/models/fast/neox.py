"""The layers of the GPT-NeoX family (Pythia, the mini family), written out for a lean forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from speclab.models.cache import KVCache
from speclab.models.fast.packed import Linear
from speclab.models.fast.rotary import turn
from speclab.models.forward import Parts


def parts(model: Any, *, pack: bool) -> Parts:
    """What a `GPTNeoXForCausalLM` is made of."""
    base = model.gpt_neox
    layers = [Layer(layer, index, model.config, pack=pack) for index, layer in enumerate(base.layers)]
    return Parts(base.embed_in, base.rotary_emb, layers, base.final_layer_norm, model.lm_head)


class Layer:
    """One decoder layer: `[m, hidden]` to `[m, hidden]`."""

    def __init__(self, layer: Any, index: int, config: Any, *, pack: bool) -> None:
        attention, mlp = layer.attention, layer.mlp
        self.index, self.heads = index, config.num_attention_heads
        self.parallel: bool = config.use_parallel_residual
        self.before_attention, self.before_mlp = layer.input_layernorm, layer.post_attention_layernorm
        self.qkv, self.out = Linear(attention.query_key_value, pack=pack), Linear(attention.dense, pack=pack)
        self.up, self.down = Linear(mlp.dense_h_to_4h, pack=pack), Linear(mlp.dense_4h_to_h, pack=pack)
        self.linears = (self.qkv, self.out, self.up, self.down)
        self.act = mlp.act

    def __call__(self, rows: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None, cache: KVCache) -> Tensor:
        """Appends the rows' keys and values to the cache."""
        attended = rows + self._attention(_normed(self.before_attention, rows), angles, mask, cache)
        read = rows if self.parallel else attended
        return attended + self.down(self.act(self.up(_normed(self.before_mlp, read))))

    def _attention(self, rows: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None, cache: KVCache) -> Tensor:
        count = len(rows)
        qkv = self.qkv(rows).view(count, self.heads, 3, -1)  # each head's query, key and value lie together
        turn(qkv[:, :, :2], *angles)
        query, key, value = qkv.transpose(0, 1)[None].unbind(3)
        keys, values = cache.update(key, value, self.index)
        out = F.scaled_dot_product_attention(query, keys, values, mask, is_causal=mask is None and count > 1)
        return self.out(out.transpose(1, 2).reshape(count, -1))


def _normed(norm: nn.LayerNorm, rows: Tensor) -> Tensor:
    # The module's call takes as long again as the norm of a few rows.
    return torch.layer_norm(rows, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
