"""Decoder layers of draft heads: their sizes, rotary angles, draft vocabularies, and config.json."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from transformers import CONFIG_MAPPING, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from speclab.heads.layout import (
    EMBEDDINGS,
    OUTPUT,
    DraftModule,
    Folder,
    HeadConfig,
    Keys,
    Size,
)
from speclab.models.cache import KVCache
from speclab.models.lean import attention
from speclab.models.runner import Runner, trained_positions
from speclab.models.transfers import to_device

Angles = tuple[Tensor, Tensor]


class LayerConfig(HeadConfig):
    """Sizes of a head of decoder layers.

    Attributes:
        draft_vocab_size: tokens that it can propose; None: every token id.
        head_width: of an attention head; None: `hidden_size / heads`.
        qk_norm: queries and keys are normed, as in Qwen3.
    """

    draft_vocab_size: Size | None = None
    heads: Size = 1
    key_value_heads: Size = 1
    head_width: Size | None = Field(default=None, ge=2)
    feed_forward: Size = 1
    rope_theta: float = Field(default=10000.0, gt=0)
    rope_scaling: dict[str, Any] | None = None
    norm_epsilon: float = Field(default=1e-6, gt=0)
    attention_bias: bool = False
    qk_norm: bool = False

    @property
    def head_dim(self) -> int:
        return self.head_width or self.hidden_size // self.heads

    @model_validator(mode="after")
    def _has_angles(self) -> Self:
        rotary(self, torch.arange(2))
        return self


class LayerHead(DraftModule):
    """A head of decoder layers, perhaps with a draft vocabulary.

    Args:
        names: of its tensors. With `OUTPUT` it has an output layer, with `EMBEDDINGS` token
            embeddings; else it uses the target's.

    Attributes:
        d2t: of a draft vocabulary; offsets int64 `[draft_vocab]`: its token i is the target's i +
            d2t[i].
    """

    def __init__(self, config: LayerConfig, names: Container[str] = ()) -> None:
        super().__init__(config)
        size = config.hidden_size
        proposed = config.draft_vocab_size or config.vocab_size
        if OUTPUT in names:
            self.lm_head = matrix(size, proposed)
        if EMBEDDINGS in names:
            self.embed_tokens = nn.Embedding(config.vocab_size, size)
        if config.draft_vocab_size is not None:
            self.register_buffer("d2t", torch.zeros(proposed, dtype=torch.int64))

    @property
    def token_ids(self) -> Tensor | None:
        if self.config.draft_vocab_size is None:
            return None
        offsets: Tensor = self.get_buffer("d2t")
        return offsets + torch.arange(len(offsets), device=offsets.device)

    def misfit(self, target: Runner) -> str:
        width = self.config.hidden_size
        if self.config.states_size != width and self.embed_tokens is None:
            return f"is {width} wide and lacks embed_tokens of its own"
        return super().misfit(target)


class DecoderLayer(nn.Module):
    """A decoder layer of Llama's or Qwen3's kind.

    Args:
        read: columns that its attention reads.
        norms: those beside the one after attention.
    """

    def __init__(self, config: LayerConfig, read: int, *norms: str) -> None:
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
        context: Tensor,
        angles: Angles,
        mask: Tensor | None,
        cache: KVCache | None,
        index: int = 0,
        *,
        causal: bool = False,
    ) -> Tensor:
        """The residual rows `x` `[B, T, hidden]` after attention and MLP.

        Args:
            read: gives queries, `[B, T, …]`. `context`: gives keys and values, `[B, n, …]`; its
                last rows are `read`.
            angles: of `context`. `mask`: as in `attention`. `cache`: gets keys and values at
                `index`.
        """
        part: Any = self.self_attn
        query = self._heads("q", read)
        key = self._heads("k", context)
        value = self._heads("v", context)
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
        heads: Tensor = part[f"{name}_proj"](rows).unflatten(-1, (-1, self.head_dim))
        heads = heads.transpose(1, 2)
        if f"{name}_norm" in part:
            heads = normed(part[f"{name}_norm"], heads)
        return heads


def matrix(columns: int, rows: int, *, bias: bool = False) -> nn.Linear:
    return nn.Linear(columns, rows, bias=bias)


def norm_of(config: LayerConfig, size: int | None = None) -> nn.RMSNorm:
    return nn.RMSNorm(size or config.hidden_size, eps=config.norm_epsilon)


def normed(norm: Any, x: Tensor) -> Tensor:
    """`x` through an `nn.RMSNorm`, or unchanged without one."""
    if norm is None:
        return x
    # Under autocast the weight would stay float32, and torch warns of two dtypes.
    return functional.rms_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.eps)


def rotary(config: LayerConfig, positions: Tensor) -> Angles:
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
    cos, sin = angles
    turned = x.roll(x.shape[-1] // 2, dims=-1)
    return torch.addcmul(x * cos.to(x.dtype), turned, sin.to(x.dtype))


class AngleTable:
    """The angles of positions, from tables that grow by doubling."""

    def __init__(self, config: LayerConfig, device: torch.device, dtype: torch.dtype) -> None:
        self._config = config
        self._device = device
        self._dtype = dtype
        self._cos = torch.empty(0)
        self._sin = torch.empty(0)

    def at(self, positions: Sequence[int]) -> Angles:
        """`[T, head_dim]`, twice."""
        highest = max(positions)
        if highest >= len(self._cos):
            cos, sin = rotary(self._config, torch.arange(2 * highest + 256, device=self._device))
            self._cos = cos.to(self._dtype)
            self._sin = sin.to(self._dtype)
        rows = to_device(positions, self._device)
        return self._cos[rows], self._sin[rows]


STRETCHED = {"linear", "llama3", "yarn"}


class LayerKeys(Keys):
    """A `config.json` that describes decoder layers as transformers does."""

    num_hidden_layers: int = 1
    hidden_act: Literal["silu", "swish"] = "silu"
    layer_types: tuple[Literal["full_attention"], ...] = ()
    draft_vocab_size: int | None = None

    def layer(self, folder: Folder) -> dict[str, Any]:
        """The fields of `LayerConfig`, as transformers reads them, which knows the family's defaults."""
        tensors = folder.tensors
        if folder.settings.get("tie_word_embeddings") and EMBEDDINGS in tensors:
            tensors.setdefault(OUTPUT, tensors[EMBEDDINGS])  # as in SGLang
        library: Any = library_config(folder.settings)(**folder.settings)
        rope = dict(library.rope_parameters)
        kind = rope["rope_type"]
        theta = rope.pop("rope_theta")
        longest = library.max_position_embeddings
        partial = rope.get("partial_rotary_factor", 1) != 1
        if partial or (kind not in STRETCHED and kind not in {"default", "mrope"}):
            raise ValueError(f"rope_parameters: {kind} of these columns does not run")
        context = trained_positions(kind, rope, longest)
        if kind != "linear":
            rope.setdefault("original_max_position_embeddings", longest)
        heads = library.num_attention_heads
        fields = {
            "name": folder.name,
            "vocab_size": library.vocab_size,
            "hidden_size": library.hidden_size,
            "heads": heads,
            "key_value_heads": library.num_key_value_heads or heads,
            "head_width": getattr(library, "head_dim", None),
            "feed_forward": library.intermediate_size,
            "norm_epsilon": library.rms_norm_eps,
            "context": context,
            "rope_theta": theta,
        }
        if "d2t" in tensors:
            fields["draft_vocab_size"] = tensors["d2t"].numel()
        if kind in STRETCHED:
            fields["rope_scaling"] = rope
        return fields


def library_config(settings: dict[str, Any]) -> type[Any]:
    """transformers' config of the family that a head's settings name, else Llama's."""
    family = str(settings.get("model_type"))
    if family not in CONFIG_MAPPING:
        family = "llama"
    return CONFIG_MAPPING[family]
