"""Block heads: DFlash (arXiv 2602.06036), which drafts a whole block of tokens in one pass.

The head reads the target's hidden states at the committed positions and the embeddings of a block:
the newest token, then mask tokens. Every entry of the block attends to all committed positions and
to the whole block, so row `i` gives the distribution of the block's token `i` without the tokens
between: a marginal.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from speclab.heads.layer import (
    Angles,
    AngleTable,
    DecoderLayer,
    LayerConfig,
    LayerHead,
    LayerKeys,
    matrix,
    norm_of,
    normed,
)
from speclab.heads.layout import Folder, Layout
from speclab.heads.runner import HeadRunner
from speclab.models.answer import Answer
from speclab.models.cache import KVCache
from speclab.models.runner import Runner
from speclab.models.source import Columns, TreeRows
from speclab.models.transfers import to_device


class BlockConfig(LayerConfig):
    """Sizes of a block head.

    Attributes:
        depth: its decoder layers; `layers` are those of the target that it reads.
        markov_rank: of the bias that a token gives its successors (DSpark, arXiv 2607.05147); 0:
            none.
        sample_from_anchor: the entry of the newest token drafts, too (DSpark); else only the
            masked ones (DFlash).
        temperature: of its distributions, fitted on held-out text.
    """

    depth: int = Field(ge=1, le=1 << 10)
    block_size: int = Field(ge=2, le=256)
    mask_token_id: int = Field(ge=0)
    qk_norm: bool = True
    markov_rank: int = Field(default=0, ge=0, le=1 << 14)
    sample_from_anchor: bool = False
    temperature: float = Field(default=1.0, gt=0)

    @property
    def kind(self) -> str:
        if self.markov_rank:
            return "DSpark"
        return "DFlash"

    @property
    def drafted(self) -> int:
        """Tokens that a block drafts."""
        if self.sample_from_anchor:
            return self.block_size
        return self.block_size - 1


class BlockHead(LayerHead):
    """The trained part, with the parameter names of DFlash's and DSpark's checkpoints; arguments as
    of `Head`.
    """

    config: BlockConfig

    def __init__(self, config: BlockConfig, names: Container[str] = ()) -> None:
        super().__init__(config, names)
        size = config.hidden_size
        self.fc = matrix(len(config.layers) * size, size)
        self.hidden_norm = norm_of(config)
        self.layers = nn.ModuleList(
            DecoderLayer(config, size, "input_layernorm") for _ in range(config.depth)
        )
        self.norm = norm_of(config)
        proposed = config.draft_vocab_size or config.vocab_size
        self.markov_head: Any = None  # a ModuleDict, whose parts have names of their own
        if config.markov_rank:  # after a token `t` it adds W2 · W1[t] to the logits
            tables = nn.Embedding(config.vocab_size, config.markov_rank)
            parts = {"markov_w1": tables, "markov_w2": matrix(config.markov_rank, proposed)}
            self.markov_head = nn.ModuleDict(parts)

    def fused(self, states: Tensor) -> Tensor:
        """Target states `[..., layers * hidden]` to context features `[..., hidden]`."""
        return normed(self.hidden_norm, self.fc(states))

    def misfit(self, target: Runner) -> str:
        table = self.embed_tokens or target.model.get_input_embeddings()
        rows = table.num_embeddings
        if self.config.mask_token_id >= rows:
            return f"masks with a token id that is not among {rows} embeddings"
        return super().misfit(target)

    def forward(
        self,
        block: Tensor,
        features: Tensor,
        angles: Angles,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
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

        Returns:
            Input of the output matrix, `[B, n, hidden]`.
        """
        x = block
        for index, layer in enumerate(self.layers):
            read = normed(layer.input_layernorm, x)
            # the context enters every layer as keys and values alone (section 3.2)
            context = torch.cat((features, read), dim=1)
            x = layer(x, read, context, angles, mask, cache, index)
        return normed(self.norm, x)


class MarginalRunner(HeadRunner):
    """A head that drafts a block in one pass: the next tokens of a node are the marginal of its
    depth, whatever its path; with a Markov bias they depend on its token.
    """

    reach = 0
    spare = 0

    @abstractmethod
    def draft(self, token: int, states: Tensor, topk: int = 0) -> Answer:
        """One pass: a block after the text's newest `token`, whose row `i` answers for depth `i`.

        `states`: `[m, layers * hidden]`, the target's hidden states from position `length` on.
        """

    def after_text(self, tokens: Sequence[int], topk: int = 0, node: int = 0) -> Answer:
        last = len(tokens) - 1
        self.crop(min(self.length, last - self.spare))  # the same text again
        self._block = self.draft(tokens[last], self._states(last), topk)
        self._tree = TreeRows(last)
        self._first = 0  # the row after node 0
        if node < 0:  # the first row drafts a root that is not in the text
            self._first = 1
        self.reach = len(self._block) - self._first
        return self._block[:1]

    def after_nodes(self, tree: Columns, nodes: Sequence[int], topk: int = 0) -> Answer:
        tokens = [tree.token[node] for node in nodes]
        return self.at_depths([tree.depth[node] for node in nodes], tokens, topk)

    def at_depths(self, depths: Sequence[int], tokens: Sequence[int] | None, topk: int) -> Answer:
        return self._block[[self._first + depth for depth in depths]]

    def fill(self, entries: int) -> None:
        self.draft(0, self._no_states(entries))
        self.crop(entries)

    def run_rows(self, rows: int) -> Answer:
        """One block, whatever the number of nodes."""
        return self.draft(0, self._no_states(self.spare))


class BlockRunner(MarginalRunner, runs=BlockHead):
    """A block head with its own cache: entry `i` has the keys and values of the target's state at
    position `i`. The entries of a drafted block follow them until the next `crop`.
    """

    model: BlockHead
    config: BlockConfig

    @cached_property
    def _angles(self) -> AngleTable:
        return AngleTable(self.config, self.device, self.dtype)

    @property
    def conditions(self) -> bool:
        return self.model.markov_head is not None

    @torch.inference_mode()
    def at_depths(self, depths: Sequence[int], tokens: Sequence[int] | None, topk: int) -> Answer:
        if tokens is None or not self.conditions:
            return super().at_depths(depths, tokens, topk)
        rows = [self._first + depth for depth in depths]
        with self.whole_pass(len(rows)):
            parents = to_device(self.shown(tokens), self.device)
            return self._answer(self._logits[rows] + self._bias(parents), topk)

    @torch.inference_mode()
    def draft(self, token: int, states: Tensor, topk: int = 0) -> Answer:
        """One pass: appends `m` positions of the text, then the block, which begins with `token`.

        Row `i` is the marginal of the token at `i + 1` positions after it; the first depends on
        `token`, if there is a bias.
        """
        config = self.config
        size = config.block_size
        before = self.length + len(states)
        with self.whole_pass(len(states) + size):
            # The bare weight, since some families' modules scale embeddings and DFlash does not.
            entries = [config.mask_token_id] * size
            entries[:1] = self.shown([token])
            ids = to_device(entries, self.device)
            block = functional.embedding(ids, self._embed.weight)
            features = self.model.fused(states.to(self.dtype))
            angles = self._angles.at(range(self.length, before + size))
            out = self.packed()(block[None], features[None], angles, None, self.cache)[0]
            self._logits = self._logits_of(out[-config.drafted :])
            if self.conditions:
                first = self._logits[:1] + self._bias(ids[:1])
                answer = self._answer(torch.cat((first, self._logits[1:])), topk)
            else:
                answer = self._answer(self._logits, topk)
        self._count(len(states) + size)
        return answer

    def _bias(self, tokens: Tensor) -> Tensor:
        """What tokens `[m]` add to the logits of their successors: W2 · W1[t], `[m, proposed]`."""
        before, after = self._markov
        bias = functional.linear(before(tokens), after)
        # a token that only the target has has no bias
        return functional.pad(bias, (0, self._logits.shape[-1] - bias.shape[-1]))

    @cached_property
    def _markov(self) -> tuple[nn.Embedding, Tensor]:
        """W1, and the rows of W2 of the tokens that the pair has."""
        head: Any = self.model.markov_head
        ids = self.model.token_ids
        rows = head.markov_w2.weight
        if ids is None:
            return head.markov_w1, rows[: self.vocab_size]
        shared = ids < self.vocab_size
        return head.markov_w1, rows[shared]

    def _answer(self, logits: Tensor, topk: int) -> Answer:
        return super()._answer(logits / self.config.temperature, topk)


class BlockKeys(LayerKeys):
    """DFlash's folders (arXiv 2602.06036), DSpark's (arXiv 2607.05147), and speculators'.

    In `target_layer_ids` layers count by output, in speculators' ids by input.
    """

    block_size: int = 16
    mask_token_id: int
    target: str = ""
    target_layer_ids: tuple[int, ...] = ()
    aux_hidden_state_layer_ids: tuple[int, ...] = ()
    markov_rank: int = 0
    markov_head_type: Literal["vanilla"] = "vanilla"
    projector_type: Literal["dspark"] = "dspark"
    enable_confidence_head: bool = False  # it changes no draft, and is not read
    confidence_head_with_markov: bool = True
    dspark_bonus_anchor: bool = False  # vLLM's name for a head that drafts from its masks alone
    sample_from_anchor: bool | None = None
    marginal_temperature: float = 1.0
    input_embedding_scale: Literal[1] = 1
    output_multiplier: Literal[1] = 1

    def head(self, folder: Folder) -> BlockHead:
        layers = self.aux_hidden_state_layer_ids
        if self.target_layer_ids:
            layers = tuple([output + 1 for output in self.target_layer_ids])
        # DeepSpec's heads draft from the newest token's own entry, too; others must say so.
        anchor = self.sample_from_anchor
        if anchor is None:
            dspark = self.markov_rank > 0 and len(self.target_layer_ids) > 0
            anchor = dspark and not self.dspark_bonus_anchor
        config = BlockConfig(
            target=self.target,
            layers=layers,
            depth=self.num_hidden_layers,
            block_size=self.block_size,
            mask_token_id=self.mask_token_id,
            markov_rank=self.markov_rank,
            sample_from_anchor=anchor,
            temperature=self.marginal_temperature,
            **self.layer(folder),
        )
        return BlockHead.empty(config, folder.tensors)


BLOCK = Layout(
    BlockKeys,
    runs="DFlash and DSpark heads",
    words="dflash|dspark",
    names=r"dflash(_config)?|dspark|DFlash(?!2)\w*|\w*DSpark\w*",
    key="dflash_config",
    nested=("transformer_layer_config", "dflash_config"),
    notes=("rope_", "speculators_", "num_target_", "num_anchors"),
    renamed=((r"^model\.", ""),),
    unread=r"^verifier_|^confidence_head\.|rotary_emb\.|inv_freq$",
)
