"""Block heads: DFlash (arXiv 2602.06036), which drafts a whole block of tokens in one pass.

The head reads the target's hidden states at the committed positions and the embeddings of a block:
the newest token, then mask tokens. Every entry of the block attends to all committed positions and
to the whole block, so row `i` gives the distribution of the block's token `i` without the tokens
between: a marginal.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from speclab.heads.eagle import (
    Angles,
    DraftModule,
    HeadConfig,
    decoder_layer,
    matrix,
    norm_of,
    normed,
    rotated,
)
from speclab.heads.runner import HeadRunner
from speclab.models.answer import Answer
from speclab.models.cache import KVCache
from speclab.models.lean import Linear, grouped_attention
from speclab.models.transfers import check_finite, to_device


class BlockConfig(HeadConfig):
    """Sizes of a block head; `depth`: its decoder layers, `layers`: those of the target that it reads."""

    depth: int = Field(ge=1, le=1 << 10)
    block_size: int = Field(ge=2, le=256)
    mask_token_id: int = Field(ge=0)
    qk_norm: bool = True
    # of the bias that a token gives its successors (DSpark, arXiv 2607.05147); 0: none
    markov_rank: int = Field(default=0, ge=0, le=1 << 14)
    # the entry of the newest token drafts, too (DSpark); else only the masked ones (DFlash)
    sample_from_anchor: bool = False
    causal: bool = False  # an entry of the block sees none after it (JetSpec, arXiv 2606.18394)
    temperature: float = Field(default=1.0, gt=0)  # of its distributions, fitted on held-out text

    @property
    def kind(self) -> str:
        return "DSpark" if self.markov_rank else "DFlash"

    def module(self, *, own_output: bool, own_embeddings: bool) -> BlockHead:
        return BlockHead(self, own_output=own_output, own_embeddings=own_embeddings)

    @property
    def drafted(self) -> int:
        """Tokens that a block drafts."""
        return self.block_size - (not self.sample_from_anchor)


class BlockHead(DraftModule):
    """The trained part, with the parameter names of DFlash's and DSpark's checkpoints; arguments as
    of `Head`.
    """

    config: BlockConfig

    def __init__(
        self, config: BlockConfig, *, own_output: bool = False, own_embeddings: bool = False
    ) -> None:
        super().__init__(config)
        self.fc = matrix(len(config.layers) * config.hidden_size, config.hidden_size)
        self.hidden_norm = norm_of(config)
        self.layers = nn.ModuleList(
            decoder_layer(config, config.hidden_size, "input_layernorm")
            for _ in range(config.depth)
        )
        self.norm = norm_of(config)
        proposed = config.draft_vocab_size or config.vocab_size
        self.markov_head = MarkovHead(config, proposed) if config.markov_rank else None
        self.lm_head = matrix(config.hidden_size, proposed) if own_output else None
        self.embed_tokens = (
            nn.Embedding(config.vocab_size, config.hidden_size) if own_embeddings else None
        )
        if config.draft_vocab_size is not None:
            self.register_buffer("d2t", torch.zeros(proposed, dtype=torch.int64))
        self.products = BlockProducts(self)

    def fused(self, states: Tensor, products: BlockProducts | None = None) -> Tensor:
        """Target states `[..., layers * hidden]` to context features `[..., hidden]`."""
        return normed(self.hidden_norm, (products or self.products).fc(states))

    def forward(
        self,
        block: Tensor,
        features: Tensor,
        angles: Angles,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
        products: BlockProducts | None = None,
    ) -> Tensor:
        """One pass.

        Args:
            block: `[B, n, hidden]`, embeddings.
            features: `[B, m, hidden]`, of the positions before the block that the cache lacks, from
                `fused`.
            angles: of these positions, then of the block's, from `rotary`: `[…, m + n, head_dim]`.
            mask: `[…, n, length + m + n]` bool; None: every entry sees the context and the whole
                block.
            cache: stores the keys and values of context and block; None in training.
            products: multiply by its matrices; by default by the head's own.

        Returns:
            Input of the output matrix, `[B, n, hidden]`.
        """
        x = block
        products = products or self.products
        block_angles = angles[0][..., -block.shape[1] :, :], angles[1][..., -block.shape[1] :, :]
        for index, product in enumerate(products.layers):
            layer = cast("Any", self.layers[index])
            attention = layer["self_attn"]
            read = normed(layer["input_layernorm"], x)
            query = rotated(
                normed(attention["q_norm"], self._heads(product.query(read))), block_angles
            )
            key, value = self._heads(product.key_value(torch.cat((features, read), dim=1))).chunk(
                2, dim=1
            )
            key = rotated(normed(attention["k_norm"], key), angles)
            if cache is not None:
                key, value = cache.update(key, value, index)
            mixed = grouped_attention(query, key, value, mask)
            x = product.out(mixed.transpose(1, 2).flatten(2), plus=x)
            read = normed(layer["post_attention_layernorm"], x)
            x = product.down(product.up(read, times=product.gate(read)), plus=x)
        return normed(self.norm, x)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)  # type: ignore[no-any-return]


class MarkovHead(nn.Module):
    """DSpark's vanilla bias (arXiv 2607.05147): after a token `t` it adds W2 · W1[t] to the logits."""

    def __init__(self, config: BlockConfig, proposed: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(config.vocab_size, config.markov_rank)
        self.markov_w2 = matrix(config.markov_rank, proposed)

    def forward(self, tokens: Tensor) -> Tensor:
        """Biases `[..., draft_vocab]` after tokens `[...]`, int64 ids of the target."""
        bias: Tensor = self.markov_w2(self.markov_w1(tokens))
        return bias


class _LayerProducts(NamedTuple):
    query: Linear
    key_value: Linear
    out: Linear
    gate: Linear
    up: Linear
    down: Linear


class BlockProducts:
    """The matrices of a block head, with those of keys and values concatenated."""

    def __init__(self, head: BlockHead) -> None:
        self.fc = Linear(head.fc)
        self.layers = []
        for layer in cast("Any", head.layers):
            attention = layer["self_attn"]
            mlp = layer["mlp"]
            self.layers.append(
                _LayerProducts(
                    Linear(attention["q_proj"]),
                    Linear(attention["k_proj"], attention["v_proj"]),
                    Linear(attention["o_proj"]),
                    Linear(mlp["gate_proj"], act=nn.SiLU()),
                    Linear(mlp["up_proj"]),
                    Linear(mlp["down_proj"]),
                )
            )

    @property
    def linears(self) -> list[Linear]:
        return [self.fc, *(each for layer in self.layers for each in layer)]


class BlockRunner(HeadRunner):
    """A block head with its own cache: entry `i` has the keys and values of the target's state at
    position `i`.

    The entries of a drafted block follow them until the next `crop`.
    """

    model: BlockHead
    config: BlockConfig

    @torch.inference_mode()
    def draft(self, token: int, states: Tensor, topk: int = 0) -> Answer:
        """One pass: appends `m` positions of the text, then the block, which begins with `token`.

        Args:
            token: the newest of the text.
            states: `[m, layers * hidden]`, the target's hidden states from position `length` on.
            topk: as in `Runner.logits`.

        Returns:
            An answer of `config.drafted` rows: row `i` is the marginal of the token at `i + 1`
            positions after `token`.
        """
        config = self.config
        weights = self._weights
        rows = len(states) + config.block_size
        ids = [token, *[config.mask_token_id] * (config.block_size - 1)]
        try:
            features = self.model.fused(states.to(self.dtype), weights.products)
            # The bare weight, since some families' modules scale embeddings and DFlash does not.
            block = functional.embedding(to_device(ids, self.device), self._embed.weight)
            angles = self._angles_at(range(self.length, self.length + rows))
            before = self.length + len(states)
            seen = np.tri(config.block_size, before + config.block_size, before, dtype=np.bool_)
            mask = to_device(seen, self.device) if config.causal else None
            out = self.model(
                block[None], features[None], angles, mask, self.cache, weights.products
            )[0]
            logits = weights.output(out[-config.drafted :])[:, : self.vocab_size]
            answer = check_finite(
                logits, topk, self.name, ids=weights.ids, vocab_size=self.vocab_size
            )
        except BaseException:
            self.cache.shorten(self.length)
            raise
        self.calls += 1
        self.length += rows
        return answer
