"""The layers of the Llama family, written out for a lean forward."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from speclab.models.cache import KVCache
from speclab.models.fast.packed import Linear
from speclab.models.fast.rotary import turn
from speclab.models.forward import Parts


def parts(model: Any, *, pack: bool) -> Parts:
    """What a `LlamaForCausalLM` is made of."""
    base = model.model
    layers = [Layer(layer, index, model.config, pack=pack) for index, layer in enumerate(base.layers)]
    return Parts(base.embed_tokens, base.rotary_emb, layers, base.norm, model.lm_head)


class Layer:
    """One decoder layer: `[m, hidden]` to `[m, hidden]`."""

    def __init__(self, layer: Any, index: int, config: Any, *, pack: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.index, self.dim = index, attention.head_dim
        self.heads, self.shared = config.num_attention_heads, config.num_key_value_heads
        self.before_attention, self.before_mlp = layer.input_layernorm, layer.post_attention_layernorm
        self.qkv = Linear(attention.q_proj, attention.k_proj, attention.v_proj, pack=pack)
        self.out = Linear(attention.o_proj, pack=pack)
        self.gate_up, self.down = Linear(mlp.gate_proj, mlp.up_proj, pack=pack), Linear(mlp.down_proj, pack=pack)
        self.linears = (self.qkv, self.out, self.gate_up, self.down)
        self.act = mlp.act_fn

    def __call__(self, rows: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None, cache: KVCache) -> Tensor:
        """Appends the rows' keys and values to the cache."""
        rows = rows + self._attention(self.before_attention(rows), angles, mask, cache)
        gate, up = self.gate_up(self.before_mlp(rows)).chunk(2, dim=-1)
        return rows + self.down(self.act(gate) * up)

    def _attention(self, rows: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None, cache: KVCache) -> Tensor:
        count, turned = len(rows), self.heads + self.shared
        qkv = self.qkv(rows).view(count, -1, self.dim)
        turn(qkv[:, :turned], *angles)
        query, key, value = qkv.transpose(0, 1)[None].split((self.heads, self.shared, self.shared), dim=1)
        keys, values = cache.update(key, value, self.index)
        if mask is None:
            out = F.scaled_dot_product_attention(
                query, keys, values, is_causal=count > 1, enable_gqa=self.heads > self.shared
            )
        else:
            out = self._by_rows(query, keys, values, mask)
        return self.out(out.transpose(1, 2).reshape(count, -1))

    def _by_rows(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Heads that share their keys become rows: the fast kernels take a mask, or shared keys, but not both."""
        group, (count, columns) = self.heads // self.shared, mask.shape[2:]
        rows = query.reshape(1, self.shared, group * count, self.dim)
        seen = mask.expand(1, group, count, columns).reshape(1, 1, group * count, columns)
        out = F.scaled_dot_product_attention(rows, keys, values, seen)
        return out.reshape(1, self.heads, count, self.dim)  # CUDA's memory-efficient kernel answers transposed
