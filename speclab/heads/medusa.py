"""Medusa heads (arXiv 2401.10774): k residual heads on the target's last state.

Head `i` predicts the token `i + 2` positions after the state's own, whatever is between: a marginal,
as of a block head. The heads keep no cache of their own; the token after the state is the target's.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from speclab.heads.block_head import MarginalRunner
from speclab.heads.layout import DraftModule, Folder, HeadConfig, Keys, Layout
from speclab.models.answer import Answer


class MedusaConfig(HeadConfig):
    """`count` heads of `depth` residual blocks."""

    count: int = Field(ge=1, le=64)
    depth: int = Field(ge=1, le=64)

    @property
    def kind(self) -> str:
        return "Medusa"


class MedusaHead(DraftModule):
    """The trained part, with the parameter names of vLLM's folders but for `layers`."""

    config: MedusaConfig

    def __init__(self, config: MedusaConfig) -> None:
        super().__init__(config)
        size = config.hidden_size
        self.blocks = nn.ModuleList()
        self.lm_heads = nn.ModuleList()
        for _ in range(config.count):
            self.blocks.append(nn.ModuleList(nn.Linear(size, size) for _ in range(config.depth)))
            self.lm_heads.append(nn.Linear(size, config.vocab_size, bias=False))

    def forward(self, state: Tensor) -> Tensor:
        """Logits `[count, V]` after a state `[hidden]` of the target."""
        rows = []
        parts: Any = zip(self.blocks, self.lm_heads, strict=True)
        for blocks, output in parts:
            x = state
            for block in blocks:
                x = x + functional.silu(block(x))  # the residual block (section 2.1.1)
            rows.append(output(x))
        return torch.stack(rows)


class MedusaRunner(MarginalRunner, runs=MedusaHead):
    """Medusa heads: each draft reads the target's state before the newest token, and nothing else."""

    model: MedusaHead
    spare = 1  # that state, which a fork does not copy

    @torch.inference_mode()
    def draft(self, token: int, states: Tensor, topk: int = 0) -> Answer:
        with self.whole_pass(len(states)):
            self.keep_nothing(len(states))
            logits = self.model(states[-1].to(self.dtype))
            answer = self._answer(logits[:, : self.vocab_size], topk)
        self._count(len(states))
        return answer


class MedusaKeys(Keys):
    """FasterDecoding's folder, without sizes, or vLLM's."""

    medusa_num_heads: int = 0
    medusa_num_layers: int = 1
    num_heads: int = 0

    def head(self, folder: Folder) -> MedusaHead:
        target = folder.target
        config = MedusaConfig(
            name=folder.name,
            vocab_size=target.known,
            hidden_size=target.text_config.hidden_size,
            count=self.medusa_num_heads or self.num_heads,
            depth=self.medusa_num_layers,
        )
        return MedusaHead.empty(config)


MEDUSA = Layout(
    MedusaKeys,
    runs="Medusa heads",
    words="medusa",
    names=r"medusa(_num_heads)?|\w*Medusa\w*",
    key="medusa_num_heads",
    notes=("base_model_name_or_path", "truncated_vocab_size"),
    renamed=(
        (r"^(\d+)\.(\d+)\.linear\.", r"blocks.\1.\2."),
        (r"^(\d+)\.\d+\.", r"lm_heads.\1."),  # the output matrix in the place of a block
        (r"^(blocks\.\d+)\.layers\.", r"\1."),  # vLLM's name
    ),
)
