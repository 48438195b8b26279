"""The trained part of a draft head: one decoder layer, as in EAGLE, EAGLE-3 or EAGLE-3.1 (Li et al.
2024, 2025).

At every position it reads the embedding of a token and a feature: the target's hidden states at the
position before it, or after a drafted token its own output there. EAGLE joins the two with a matrix
before its layer; in EAGLE-3 the layer's attention reads both side by side, each normed, and the
feature is fused from several layers of the target. EAGLE-3.1 first norms the states of each layer,
and feeds back its own output after its last norm.
"""

from __future__ import annotations

from typing import Annotated, Any, Self, cast

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from speclab.models.cache import KVCache
from speclab.models.lean import grouped_attention

Angles = tuple[Tensor, Tensor]
_Size = Annotated[int, Field(ge=1, le=1 << 24)]  # more than that is a damaged file


class HeadConfig(BaseModel):
    """Sizes and kind of a head, and its target; norms are named as in the formats' configs."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = "head"
    format: str = "speclab"  # of its folder
    target: str = ""  # name of the only target that may load it; empty: any that fits
    verifier: str = ""  # the target's name in a folder of another format
    vocab_size: _Size = Field(ge=2)
    hidden_size: _Size = Field(ge=8)
    target_hidden_size: _Size | None = None  # if the layer is not as wide as the target
    draft_vocab_size: _Size | None = None  # tokens that it can propose; None: every token id
    # its vocabulary gains the tokens of prompt and text, by rows of the target's output matrix
    gains_tokens: bool = False
    # fused target layers: 0 the embeddings, -1 the last
    layers: tuple[int, ...] = Field(default=(-1,), min_length=1)
    layer_ids: str = ""  # the field of its folder that lists those layers, and how it counts them
    heads: _Size
    key_value_heads: _Size
    context: int | None = Field(default=None, ge=1)  # positions it was trained for, if it says so
    # of an attention head; None: hidden_size / heads
    head_width: _Size | None = Field(default=None, ge=2)
    feed_forward: _Size
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
    # EAGLE with norms of embeddings, before attention and before the output
    layernorms: bool = False

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.eagle3 and min(self.layers) < 0:
            raise ValueError("the layers of an EAGLE-3 head are counted from 0")
        return self

    @property
    def kind(self) -> str:
        return f"EAGLE-3{'.1' * (self.fc_norm or self.norm_output)}" if self.eagle3 else "EAGLE"

    def unfit(self, embeddings: int) -> str:
        """What does not fit so many token embeddings, its own or the target's; empty if all does."""
        return ""

    def module(self, *, own_output: bool, own_embeddings: bool) -> DraftModule:
        """A head of these sizes; arguments as of `Head`."""
        return Head(self, own_output=own_output, own_embeddings=own_embeddings)

    @property
    def head_dim(self) -> int:
        return self.head_width or self.hidden_size // self.heads

    @property
    def states_size(self) -> int:
        """Width of the target's hidden states."""
        return self.target_hidden_size or self.hidden_size


class DraftModule(nn.Module):
    """What draft heads of all kinds have in common: a config, and perhaps a draft vocabulary."""

    config: HeadConfig
    lm_head: nn.Linear | None
    embed_tokens: nn.Embedding | None

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def token_ids(self) -> Tensor | None:
        """The target's id of each token of the draft vocabulary, int64 `[draft_vocab]`; None: it has every token."""
        if self.config.draft_vocab_size is None:
            return None
        offsets: Tensor = self.get_buffer("d2t")
        return offsets + torch.arange(len(offsets), device=offsets.device)

    def choose_tokens(self, ids: Tensor) -> None:
        """Makes the target's tokens `ids`, int64 `[draft_vocab]`, all different, the draft vocabulary."""
        self.get_buffer("d2t").copy_(ids.sort().values - torch.arange(len(ids), device=ids.device))


class Head(DraftModule):
    """The trained part of a draft head; parameters and buffers are named as in EAGLE's checkpoints.

    The layer that fuses the target's states is `fuse` in every kind of head, though EAGLE-3 calls
    it `fc`.

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
        super().__init__(config)
        size = config.hidden_size
        states = len(config.layers) * config.states_size
        self.fuse = matrix(states, size) if config.eagle3 or len(config.layers) > 1 else None
        self.input_norm = norm_of(config, states) if config.norm_before_fc else None
        self.fc_norm = nn.ModuleList(
            norm_of(config, config.states_size) for _ in config.layers if config.fc_norm
        )
        self.fc = None if config.eagle3 else nn.Linear(2 * size, size, bias=config.bias)
        self.embed_layernorm = norm_of(config) if config.layernorms else None
        norms = ["input_layernorm"] if config.eagle3 or config.layernorms else []
        norms += ["hidden_norm"] if config.eagle3 else []
        self.layers = nn.ModuleList([decoder_layer(config, size * (1 + config.eagle3), *norms)])
        self.norm = norm_of(config) if config.eagle3 or config.layernorms else None
        proposed = config.draft_vocab_size or config.vocab_size
        self.lm_head = matrix(size, proposed) if own_output else None
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if own_embeddings else None
        if config.draft_vocab_size is not None:
            self.register_buffer("d2t", torch.zeros(proposed, dtype=torch.int64))

    def fused(self, states: Tensor) -> Tensor:
        """`[..., layers * states_size]` target states to the feature that the head reads, `[..., hidden]`."""
        if len(self.fc_norm):
            parts = states.split(self.config.states_size, dim=-1)
            states = torch.cat(
                [normed(norm, part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1
            )
        states = normed(self.input_norm, states)
        return states if self.fuse is None else self.fuse(states)

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
        config = self.config
        layer = cast("Any", self.layers[0])
        if self.fc is None:
            hidden = normed(layer["hidden_norm"], features)
            x = hidden if config.norm_before_residual else features
            read = torch.cat((normed(layer["input_layernorm"], embeddings), hidden), dim=-1)
        else:
            x = self.fc(torch.cat((normed(self.embed_layernorm, embeddings), features), dim=-1))
            read = normed(layer["input_layernorm"], x) if config.layernorms else x
        attention = layer["self_attn"]
        query, key, value = (
            per_head(attention[name](read), config) for name in ("q_proj", "k_proj", "v_proj")
        )
        if config.qk_norm:
            query = normed(attention["q_norm"], query)
            key = normed(attention["k_norm"], key)
        query = rotated(query, angles)
        key = rotated(key, angles)
        if cache is not None:
            key, value = cache.update(key, value, 0)
        mixed = _attention(query, key, value, mask).transpose(1, 2).flatten(2)
        x = x + attention["o_proj"](mixed)
        x = x + fed_forward(layer["mlp"], normed(layer["post_attention_layernorm"], x))
        return normed(self.norm, x) if config.norm_output else x

    def read_out(self, features: Tensor) -> Tensor:
        """The input of the output matrix for features `[..., hidden]`."""
        return features if self.config.norm_output else normed(self.norm, features)


def decoder_layer(config: HeadConfig, read: int, *norms: str) -> nn.ModuleDict:
    """A layer whose attention reads `read` columns; `norms`: those beside the one after attention."""
    size = config.hidden_size
    width = config.head_dim
    bias = config.attention_bias
    attention: dict[str, nn.Module] = {
        "q_proj": matrix(read, config.heads * width, bias=bias),
        "k_proj": matrix(read, config.key_value_heads * width, bias=bias),
        "v_proj": matrix(read, config.key_value_heads * width, bias=bias),
        "o_proj": matrix(config.heads * width, size, bias=bias),
    }
    if config.qk_norm:
        attention |= {"q_norm": norm_of(config, width), "k_norm": norm_of(config, width)}
    mlp = {
        "gate_proj": matrix(size, config.feed_forward),
        "up_proj": matrix(size, config.feed_forward),
        "down_proj": matrix(config.feed_forward, size),
    }
    layer = {"self_attn": nn.ModuleDict(attention), "mlp": nn.ModuleDict(mlp)}
    return nn.ModuleDict(
        {**layer, **{name: norm_of(config) for name in ("post_attention_layernorm", *norms)}}
    )


def per_head(x: Tensor, config: HeadConfig) -> Tensor:
    """`[B, T, heads * head_dim]` to `[B, heads, T, head_dim]`."""
    rows: Tensor = x.unflatten(-1, (-1, config.head_dim))
    return rows.transpose(1, 2)


def fed_forward(mlp: Any, x: Tensor) -> Tensor:
    gated: Tensor = functional.silu(mlp["gate_proj"](x)) * mlp["up_proj"](x)
    return cast("Tensor", mlp["down_proj"](gated))


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
    dimensions = (
        torch.arange(0, config.head_dim, 2, device=positions.device).float() / config.head_dim
    )
    periods = config.rope_theta**dimensions
    factor = 1.0
    if config.rope_scaling is not None:
        inverse, factor = _stretched(config, positions.device)
        periods = 1 / inverse
    turns = positions.float()[:, None] / periods
    cos = turns.cos() * factor
    sin = turns.sin() * factor
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _stretched(config: HeadConfig, device: torch.device) -> tuple[Tensor, float]:
    """Inverse frequencies `[head_dim / 2]` of scaled positions, and the factor of cosines and sines."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    given = {"rope_theta": config.rope_theta, **(config.rope_scaling or {})}
    shape = {
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.heads,
        "head_dim": config.head_dim,
    }
    longest = int(given.get("original_max_position_embeddings", 2048) * given["factor"])
    library = LlamaConfig(**shape, max_position_embeddings=longest, rope_parameters=given)  # type: ignore[arg-type]
    inverse, factor = ROPE_INIT_FUNCTIONS[given["rope_type"]](library, device)
    return inverse, float(factor)


def rotated(x: Tensor, angles: Angles) -> Tensor:
    cos, sin = (angle.to(x.dtype) for angle in angles)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def _attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None and query.shape[2] > 1:
        shared = query.shape[1] > key.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=shared
        )
    return grouped_attention(query, key, value, mask)
