"""The trained part of a draft head: one decoder layer, as in EAGLE, EAGLE-3 or EAGLE-3.1 (Li et al.
2024, 2025).

At every position it reads the embedding of a token and a feature: the target's hidden states at the
position before it, or after a drafted token its own output there. EAGLE joins the two with a matrix
before its layer; in EAGLE-3 the layer's attention reads both side by side, each normed, and the
feature is fused from several layers of the target. EAGLE-3.1 first norms the states of each layer,
and feeds back its own output after its last norm.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from speclab.models.cache import KVCache
from speclab.models.lean import attention

Angles = tuple[Tensor, Tensor]
_Size = Annotated[int, Field(ge=1, le=1 << 24)]  # more than that is a damaged file


class HeadConfig(BaseModel):
    """Sizes and kind of a head, and its target; norms are named as in the formats' configs."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = "head"
    target: str = ""  # name of the only target that may load it; empty: any that fits
    vocab_size: _Size = Field(ge=2)
    hidden_size: _Size = Field(ge=8)
    target_hidden_size: _Size | None = None  # if the layer is not as wide as the target
    draft_vocab_size: _Size | None = None  # tokens that it can propose; None: every token id
    # fused target layers: 0 the embeddings, -1 the last
    layers: tuple[int, ...] = Field(default=(-1,), min_length=1)
    heads: _Size = 1
    key_value_heads: _Size = 1
    context: int | None = Field(default=None, ge=1)  # positions it was trained for, if it says so
    # of an attention head; None: hidden_size / heads
    head_width: _Size | None = Field(default=None, ge=2)
    feed_forward: _Size = 1
    rope_theta: float = Field(default=10000.0, gt=0)
    rope_scaling: dict[str, Any] | None = None
    norm_epsilon: float = Field(default=1e-6, gt=0)
    bias: bool = True  # of the joining matrix
    attention_bias: bool = False
    qk_norm: bool = False  # queries and keys are normed, as in Qwen3
    eagle3: bool = False  # attention reads embedding and feature side by side
    norm_before_fc: bool = False  # one norm over all fused states (EAGLE-3)
    fc_norm: bool = False  # a norm for the states of each fused layer (EAGLE-3.1)
    norm_before_residual: bool = False  # the residual begins at the normed feature (EAGLE-3)
    norm_output: bool = False  # what is fed back has gone through the last norm (EAGLE-3.1)

    @property
    def kind(self) -> str:
        if not self.eagle3:
            return "EAGLE"
        return "EAGLE-3.1" if self.fc_norm or self.norm_output else "EAGLE-3"

    @property
    def module(self) -> type[DraftModule]:
        """The class of heads of this kind."""
        return Eagle3Head if self.eagle3 else Head

    @property
    def head_dim(self) -> int:
        return self.head_width or self.hidden_size // self.heads

    @property
    def states_size(self) -> int:
        """Width of the target's hidden states."""
        return self.target_hidden_size or self.hidden_size


class DraftModule(nn.Module):
    """What draft heads of all kinds have in common: a config, and perhaps a draft vocabulary.

    Args:
        own_output: it has an output layer, `lm_head`; else it uses the target's.
        own_embeddings: it has token embeddings, `embed_tokens`; else it uses the target's.

    Attributes:
        d2t: of a draft vocabulary; offsets int64 `[draft_vocab]`: its token i is the target's i +
            d2t[i].
    """

    def __init__(
        self, config: HeadConfig, *, own_output: bool = False, own_embeddings: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        proposed = config.draft_vocab_size or config.vocab_size
        self.lm_head = matrix(size, proposed) if own_output else None
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if own_embeddings else None
        if config.draft_vocab_size is not None:
            self.register_buffer("d2t", torch.zeros(proposed, dtype=torch.int64))

    @property
    def token_ids(self) -> Tensor | None:
        """The target's id of each token of the draft vocabulary, int64 `[draft_vocab]`; None: it has every token."""
        if self.config.draft_vocab_size is None:
            return None
        offsets: Tensor = self.get_buffer("d2t")
        return offsets + torch.arange(len(offsets), device=offsets.device)


class Head(DraftModule):
    """EAGLE's layer: a matrix joins embedding and feature before it.

    Parameters and buffers are named as in EAGLE's checkpoints. The layer that fuses the target's
    states is `fuse` in every kind of head, though EAGLE-3 calls it `fc`.
    """

    def __init__(self, config: HeadConfig, **own: bool) -> None:
        super().__init__(config, **own)
        size = config.hidden_size
        states = len(config.layers) * config.states_size
        self.fuse = matrix(states, size) if len(config.layers) > 1 else None
        self.fc = nn.Linear(2 * size, size, bias=config.bias)
        self.norm: nn.RMSNorm | None = None
        self.layers = nn.ModuleList([DecoderLayer(config, size)])

    def fused(self, states: Tensor) -> Tensor:
        """`[..., layers * states_size]` target states to the feature that the head reads, `[..., hidden]`."""
        return states if self.fuse is None else self.fuse(states)

    def _read(self, embeddings: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """Where the residual begins, `[B, T, hidden]`, and what the attention reads."""
        x = self.fc(torch.cat((embeddings, features), dim=-1))
        return x, x

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        angles: Angles,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """One pass.

        Args:
            embeddings: `[B, T, hidden]`, of the rows' tokens.
            features: `[B, T, hidden]`, of the positions before them: from `fused`, or of an earlier
                pass.
            angles: from `rotary` at the rows' positions: `[T, head_dim]`, or `[1, head_dim]` if all
                are the same.
            mask: `[…, T, length + T]` bool, what each row sees; None: causal order, or one row that
                sees all.
            cache: stores the keys and values of the rows; None in training.

        Returns:
            Features `[B, T, hidden]`, the next input in place of `fused` states; `read_out` leads
            to logits.
        """
        x, read = self._read(embeddings, features)
        causal = mask is None and x.shape[1] > 1
        x = self.layers[0](x, read, read, angles, mask, cache, causal=causal)
        return normed(self.norm if self.config.norm_output else None, x)

    def read_out(self, features: Tensor) -> Tensor:
        """The input of the output matrix for features `[..., hidden]`."""
        if self.config.norm_output:
            return features
        return normed(self.norm, features)


class Eagle3Head(Head):
    """EAGLE-3's layer: its attention reads embedding and feature side by side, each normed."""

    def __init__(self, config: HeadConfig, **own: bool) -> None:
        DraftModule.__init__(self, config, **own)
        size = config.hidden_size
        states = len(config.layers) * config.states_size
        self.fuse = matrix(states, size)
        self.input_norm = norm_of(config, states) if config.norm_before_fc else None
        self.fc_norm = nn.ModuleList(
            norm_of(config, config.states_size) for _ in config.layers if config.fc_norm
        )
        self.norm = norm_of(config)
        layer = DecoderLayer(config, 2 * size, "input_layernorm", "hidden_norm")
        self.layers = nn.ModuleList([layer])

    def fused(self, states: Tensor) -> Tensor:
        if self.config.fc_norm:
            parts = states.split(self.config.states_size, dim=-1)
            states = torch.cat(list(map(normed, self.fc_norm, parts)), dim=-1)
        return super().fused(normed(self.input_norm, states))

    def _read(self, embeddings: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        layer = cast("Any", self.layers[0])
        hidden = normed(layer.hidden_norm, features)
        x = hidden if self.config.norm_before_residual else features
        return x, torch.cat((normed(layer.input_layernorm, embeddings), hidden), dim=-1)


class DecoderLayer(nn.Module):
    """A decoder layer of Llama's or Qwen3's kind.

    Args:
        read: columns that its attention reads.
        norms: those beside the one after attention.
    """

    def __init__(self, config: HeadConfig, read: int, *norms: str) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        size = config.hidden_size
        inner = config.heads * self.head_dim
        shared = config.key_value_heads * self.head_dim
        bias = config.attention_bias
        self.self_attn = nn.ModuleDict({
            "q_proj": matrix(read, inner, bias=bias),
            "k_proj": matrix(read, shared, bias=bias),
            "v_proj": matrix(read, shared, bias=bias),
            "o_proj": matrix(inner, size, bias=bias),
        })  # fmt: skip
        if config.qk_norm:
            for name in ("q_norm", "k_norm"):
                self.self_attn[name] = norm_of(config, self.head_dim)
        self.mlp = nn.ModuleDict({
            "gate_proj": matrix(size, config.feed_forward),
            "up_proj": matrix(size, config.feed_forward),
            "down_proj": matrix(config.feed_forward, size),
        })  # fmt: skip
        for name in ("post_attention_layernorm", *norms):
            self.add_module(name, norm_of(config))

    def forward(
        self,
        x: Tensor,
        read: Tensor,
        every: Tensor,
        angles: Angles,
        mask: Tensor | None,
        cache: KVCache | None,
        index: int = 0,
        *,
        causal: bool = False,
    ) -> Tensor:
        """The residual rows `x` `[B, T, hidden]` after attention and MLP.

        Args:
            read: what asks, `[B, T, …]`. `every`: what is asked, `[B, n, …]`; its last rows are `read`.
            angles: of `every`. `mask`: as in `attention`. `cache`: gets keys and values at `index`.
        """
        part: Any = self.self_attn
        query = self._heads("q", read)
        key = self._heads("k", every)
        value = self._heads("v", every)
        # one row of angles stands for rows of the same position
        query = rotated(
            query, (angles[0][..., -read.shape[1] :, :], angles[1][..., -read.shape[1] :, :])
        )
        key = rotated(key, angles)
        if cache is not None:
            key, value = cache.update(key, value, index)
        mixed = attention(query, key, value, mask, causal=causal)
        x = x + part["o_proj"](mixed.transpose(1, 2).flatten(2))
        rows = normed(self.post_attention_layernorm, x)
        mlp: Any = self.mlp
        gated = functional.silu(mlp["gate_proj"](rows)) * mlp["up_proj"](rows)
        return x + cast("Tensor", mlp["down_proj"](gated))

    def _heads(self, name: str, rows: Tensor) -> Tensor:
        """Queries, keys or values of rows: `[B, heads, T, head_dim]`, normed as in Qwen3."""
        part: Any = self.self_attn
        heads = part[f"{name}_proj"](rows).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        return normed(part[f"{name}_norm"], heads) if f"{name}_norm" in part else heads


def matrix(columns: int, rows: int, *, bias: bool = False) -> nn.Linear:
    return nn.Linear(columns, rows, bias=bias)


def norm_of(config: HeadConfig, size: int | None = None) -> nn.RMSNorm:
    return nn.RMSNorm(size or config.hidden_size, eps=config.norm_epsilon)


def normed(norm: Any, x: Tensor) -> Tensor:
    """`x` through an `nn.RMSNorm`, or unchanged without one."""
    if norm is None:
        return x
    # Under autocast the weight would stay float32, and torch warns of two dtypes.
    return functional.rms_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.eps)


def rotary(config: HeadConfig, positions: Tensor) -> Angles:
    """Cosines and sines `[T, head_dim]`, float32, of int positions `[T]`; the first half of the sines is negative."""
    rope: Any = {"rope_type": "default", "rope_theta": config.rope_theta}
    rope |= config.rope_scaling or {}
    longest = int(rope.get("original_max_position_embeddings", 2048) * rope.get("factor", 1))
    library = LlamaConfig(
        head_dim=config.head_dim, max_position_embeddings=longest, rope_parameters=rope
    )
    table = LlamaRotaryEmbedding(library).to(positions.device)
    cos, sin = table(positions.float(), positions[None])
    sin[..., : config.head_dim // 2].neg_()
    return cos[0], sin[0]


def rotated(x: Tensor, angles: Angles) -> Tensor:
    cos, sin = (angle.to(x.dtype) for angle in angles)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)
