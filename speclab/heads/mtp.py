"""MTP layers as a draft head: decoder layers that a checkpoint has after its last one (DeepSeek-V3,
section 2.2).

Layer 0 reads the embedding of a token and the target's hidden state at the position before it, each
normed and joined by a matrix; layer 1 reads the token and layer 0's output at the position before,
and so on. Layer d answers for depth d of a tree; below the last layer's depth it is that layer
again, which then reads its own output.

Every token runs through all layers, and entry i of each layer's cache belongs to token i + 1. Layer
k has no input at its first k entries, so later ones do not see them. For a drafted token at depth d
only the layers from d on count: the first answers, the others serve the tokens below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import modeling_layers

from speclab.errors import UnsupportedModelError, first_line
from speclab.heads.layout import DraftModule, HeadConfig
from speclab.heads.runner import HeadRows, HeadRunner
from speclab.loading.loader import Loader, locate, no_progress_bar
from speclab.models.cache import KVCache
from speclab.models.masks import MaskPlan
from speclab.models.runner import Runner
from speclab.models.transfers import to_device


class MtpConfig(HeadConfig):
    """Sizes of MTP layers."""

    @property
    def kind(self) -> str:
        return "MTP"


class MtpHead(DraftModule):
    """The layers of transformers' `MtpModel`; embeddings and output matrix are the target's."""

    def __init__(self, model: Any) -> None:
        config = model.config
        super().__init__(
            MtpConfig(name="mtp", vocab_size=config.vocab_size, hidden_size=config.hidden_size)
        )
        self.plan = MaskPlan.of(config)
        self.kinds: Sequence[str | None] = getattr(config, "layer_types", None) or [None] * len(
            model.layers
        )
        self.layers = model.layers
        self.rotary = model.rotary_emb
        self.turns_by_kind: bool = model.has_per_layer_rope

    def run(
        self,
        layer: int,
        embedded: Tensor,
        reads: Tensor,
        token_positions: Tensor,
        mask: Any,
        cache: KVCache,
    ) -> Tensor:
        """The output of one layer for rows `[m, hidden]` at positions `[m]`, which are appended to the cache."""
        kind = self.kinds[layer]
        if isinstance(mask, dict):
            mask = mask[kind]
        mask = mask.clone()
        cached = mask.shape[-1] - len(token_positions)
        mask[..., max(layer - cached, 0) :, :layer] = torch.finfo(mask.dtype).min
        options = {}
        if self.turns_by_kind:
            options["layer_type"] = kind
        out: Tensor = self.layers[layer](
            embedded[None],
            reads[None],
            position_embeddings=self.rotary(
                embedded[None], position_ids=token_positions[None], **options
            ),
            attention_mask=mask,
            position_ids=token_positions[None],
            past_key_values=cache,
        )
        return out[0]


class MtpRunner(HeadRunner, runs=MtpHead):
    """A `HeadRunner` of MTP layers.

    Its feature at a position is the output of every layer: `[layers * hidden]`.
    """

    model: MtpHead

    def __init__(self, head: MtpHead, target: Runner) -> None:
        super().__init__(head, target)
        # its hidden states are read by the next token's layers
        self.cache = KVCache(range(len(head.layers) - 1))
        self._columns: list[int] = []  # the position of each entry's token

    def compute(self, rows: HeadRows, *, last_only: bool) -> tuple[Tensor, Tensor]:
        tokens, features, positions, visible, depths = rows
        count = len(tokens)
        last = len(self.model.layers) - 1
        new = [position + 1 for position in positions]
        self._columns = self._columns[: self.length] + new  # forks share the old list
        columns = to_device(self._columns, self.device)
        token_positions = columns[self.length :]
        if visible is None:
            visible = np.tri(count, dtype=np.bool_)
        hidden = to_device(np.logical_not(visible), self.device)
        mask = self.model.plan.build(hidden, token_positions, columns, self.dtype)
        embedded = self._embed(to_device(tokens, self.device))
        if depths is None:
            depth = torch.zeros_like(token_positions)
        else:
            depth = to_device(depths, self.device)
            above = features.unflatten(1, (last + 1, -1))
        store = self.cache.hidden
        before = features.new_zeros((1, last, self.config.hidden_size))
        if store is not None and self.length:
            before = store.rows(self.length - 1, self.length, range(last)).view_as(before)
        outputs: list[Tensor] = []
        for layer in range(last + 1):
            if layer == 0 and depths is None:
                reads = features
            elif depths is None:  # of a text: the layer before, at the token before
                reads = torch.cat((before[:, layer - 1], outputs[-1][:-1]))
            else:  # of a tree: the layer before at the parent, or below the layer's depth its own
                reads = torch.where(
                    depth[:, None] > layer, above[:, layer], above[:, max(layer - 1, 0)]
                )
            outputs.append(
                self.model.run(layer, embedded, reads, token_positions, mask, self.cache)
            )
        out = torch.stack(outputs, dim=1)
        if store is not None:
            store.append(out[:, :last])
        answers = out[torch.arange(count, device=self.device), depth.clamp(max=last)]
        if last_only:
            answers = answers[-1:]
        return self._logits_of(answers), out.flatten(1)


def load_mtp(target: Runner, loader: Loader) -> MtpRunner:
    """The MTP layers of the target's own checkpoint.

    Raises:
        UnsupportedModelError: it has none, or transformers cannot load them.
    """
    config = target.model.config
    path = str(config.name_or_path)
    loader.report(f"Loading the MTP layers of {target.name}…")
    try:
        if not getattr(target.text_config, "num_mtp_layers", None):
            raise ValueError(
                f"transformers finds none in this checkpoint of family {target.family}"
            )
        if not path:
            raise ValueError("it was not loaded from a checkpoint")
        config.name_or_path = str(locate(path, loader.report))
        with no_progress_bar():
            library: Any = modeling_layers.MtpModel
            model = library.from_pretrained(target.model, device_map={"": target.device})
    except Exception as error:  # whatever the library misses in the config or in the files
        reason = first_line(error, 70)
        raise UnsupportedModelError(
            f"{target.name} cannot draft with MTP layers ({reason}): load a draft head, or "
            "choose another target."
        ) from None
    finally:
        config.name_or_path = path
    # the library maps them from their file, which may change
    for weights in model.layers.parameters():
        weights.data = weights.data.clone()
    return MtpRunner(MtpHead(model), target)
