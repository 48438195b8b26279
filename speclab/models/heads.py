"""A draft head: one decoder layer that proposes from the target's hidden states (EAGLE, Li et al. 2024).

At every place it reads the embedding of a token and the target's hidden state at the place before it, and gives what
the target's next hidden state may be; the target's own output matrix turns that into next-token logits. Behind a
drafted token, where the target has not been, it reads its own output in place of the target's.
"""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional

from speclab.models.cache import KVCache

Angles = tuple[Tensor, Tensor]
_MOST = 1 << 24  # of any size: more than that is a damaged file


class HeadConfig(BaseModel):
    """Sizes of a head, and the target that it was trained for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("head", description="what pictures and records call it")
    target: str = Field("", description="name of the target that it was trained for")
    vocab_size: int = Field(ge=2, le=_MOST, description="token ids of the target")
    hidden_size: int = Field(ge=8, le=_MOST, description="width of the target's hidden states")
    layers: tuple[int, ...] = Field(
        (-1,), min_length=1, description="target layers whose hidden states are fused; -1 the last, 0 the embeddings"
    )
    heads: int = Field(ge=1, le=_MOST, description="attention heads")
    key_value_heads: int = Field(
        ge=1, le=_MOST, description="heads of keys and values, shared by groups of attention heads"
    )
    feed_forward: int = Field(ge=1, le=_MOST, description="width of the feed-forward part")
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary positions")
    norm_epsilon: float = Field(1e-6, gt=0, description="epsilon of the norm before the feed-forward part")
    bias: bool = Field(default=True, description="whether the joining matrix has a bias")

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.heads


class Head(nn.Module):
    """The trained part of a draft head; parameters are named as in EAGLE's checkpoints."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.config = config
        self.fuse = nn.Linear(len(config.layers) * size, size, bias=False) if len(config.layers) > 1 else None
        self.fc = nn.Linear(2 * size, size, bias=config.bias)
        self.layers = nn.ModuleList([_Layer(config)])

    def join(self, embeddings: Tensor, features: Tensor) -> Tensor:
        """One input of a token's embedding and the feature before it, both `[..., hidden]`."""
        joined: Tensor = self.fc(torch.cat((embeddings, features), dim=-1))
        return joined

    def fused(self, states: Tensor) -> Tensor:
        """`[..., layers * hidden]` target states to the feature that the head reads, `[..., hidden]`."""
        return self.fuse(states) if self.fuse is not None else states

    def forward(self, x: Tensor, angles: Angles, mask: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """One pass.

        Args:
            x: `[B, T, hidden]`, from `join`.
            angles: cosines and sines `[T, head_dim]` of the rows' positions, from `rotary`.
            mask: `[T, length + T]` bool, what each row sees; None for plain causal order.
            cache: takes the keys and values of the rows; None in training.

        Returns:
            Features `[B, T, hidden]`, to be read as the target's own hidden states at these places.
        """
        out: Tensor = self.layers[0](x, angles, mask, cache)
        return out


def rotary(config: HeadConfig, positions: Tensor) -> Angles:
    """Cosines and sines `[T, head_dim]`, float32, of int positions `[T]`."""
    places = torch.arange(0, config.head_dim, 2, device=positions.device).float() / config.head_dim
    turns = positions.float()[:, None] / config.rope_theta**places
    turns = torch.cat((turns, turns), dim=-1)
    return turns.cos(), turns.sin()


class _Layer(nn.Module):
    """A Llama block without the norm before its attention, as in EAGLE."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.self_attn = _Attention(config)
        self.mlp = _FeedForward(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_epsilon)

    def forward(self, x: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        x = x + self.self_attn(x, angles, mask, cache)
        norm = self.post_attention_layernorm
        # Under autocast the weight would stay float32, and torch warns of two dtypes.
        normed = functional.rms_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.eps)
        out: Tensor = x + self.mlp(normed)
        return out


class _Attention(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        size, shared = config.hidden_size, config.key_value_heads * config.head_dim
        self.heads, self.key_value_heads = config.heads, config.key_value_heads
        self.q_proj, self.o_proj = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
        self.k_proj, self.v_proj = nn.Linear(size, shared, bias=False), nn.Linear(size, shared, bias=False)

    def forward(self, x: Tensor, angles: Angles, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        batch, rows, size = x.shape
        query = _turned(self._split(self.q_proj(x), self.heads), angles)
        key = _turned(self._split(self.k_proj(x), self.key_value_heads), angles)
        value = self._split(self.v_proj(x), self.key_value_heads)
        if cache is not None:
            key, value = cache.update(key, value, 0)
        causal = mask is None and rows > 1
        shared = self.heads != self.key_value_heads
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal, enable_gqa=shared
        )
        out: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, rows, size))
        return out

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


class _FeedForward(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.feed_forward, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.feed_forward, bias=False)
        self.down_proj = nn.Linear(config.feed_forward, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


def _turned(x: Tensor, angles: Angles) -> Tensor:
    cos, sin = (angle.to(x.dtype) for angle in angles)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
