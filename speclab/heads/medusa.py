"""Medusa heads (arXiv 2401.10774): k residual heads on the target's last state.

Head `i` predicts the token `i + 2` positions after the state's own, whatever is between: a marginal,
as of a block head. The heads keep no cache of their own; the token after the state is the target's.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from speclab.heads.block_head import MarginalRunner
from speclab.heads.eagle import DraftModule, HeadConfig, matrix
from speclab.models.answer import Answer


class MedusaConfig(HeadConfig):
    """`count` heads of `depth` residual blocks."""

    count: int = Field(ge=1, le=64)
    depth: int = Field(ge=1, le=64)

    @property
    def kind(self) -> str:
        return "Medusa"

    @property
    def module(self) -> type[DraftModule]:
        return MedusaHead


class MedusaHead(DraftModule):
    """The trained part, with the parameter names of vLLM's folders but for `layers`."""

    config: MedusaConfig

    def __init__(self, config: MedusaConfig, **own: bool) -> None:
        super().__init__(config, **own)
        size = config.hidden_size
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Linear(size, size) for _ in range(config.depth))
            for _ in range(config.count)
        )
        self.lm_heads = nn.ModuleList(matrix(size, config.vocab_size) for _ in range(config.count))

    def forward(self, state: Tensor) -> Tensor:
        """Logits `[count, V]` after a state `[hidden]` of the target."""
        rows = []
        for blocks, output in zip(self.blocks, self.lm_heads, strict=True):
            x = state
            for block in blocks:  # type: ignore[attr-defined]
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
            logits = self.model(states[-1].to(self.dtype))
            answer = self._answer(logits[:, : self.vocab_size], topk)
        self._count(len(states))
        return answer
