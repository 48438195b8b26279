"""Distillation of the mini draft: KL from the target, half on text, half on the target's own output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from speclab.training.loop import Schedule, State, accumulate, run, stage
from speclab.training.made import MadeText, batches
from speclab.training.model import DRAFT, Shape, build, export, load, logits


class DistilConfig(MadeText):
    """The shipped recipe of distillation."""

    start: Path | None = Field(None, description="Folder of a draft to go on from; default: fresh weights.")
    out: Path = Field(Path("checkpoints/draft"), description="Folder for checkpoint, log and the finished model.")
    shape: Shape = Field(DRAFT, description="Sizes of the draft.")
    schedule: Schedule = Field(Schedule(minutes=25, peak_lr=4e-3), description="Length and learning rates.")
    lengths: tuple[tuple[float, int], ...] = Field(
        ((0.0, 256), (0.75, 1024)), min_length=1, description="Tokens of a row, each from a share of the run on."
    )
    batch_tokens: int = Field(4096, ge=16, description="Tokens a step.")
    micro_tokens: int = Field(2048, ge=16, description="Tokens a forward pass.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay of the matrices.")
    compile: bool = Field(True, description="Compile the forward passes.")


def distil(config: DistilConfig) -> Any:
    """Distil, or go on from the checkpoint in `out`; returns the draft and writes it to `out/model`."""
    target = load(config.target).eval().requires_grad_(False)
    data = batches(config, target)
    draft = load(config.start) if config.start else sketch(target, config.shape, config.seed)
    state = State(draft, config.weight_decay, config.out / "checkpoint.pt")
    position = state.restore()
    if position is not None:
        data.restore(position)
    loss_of = torch.compile(divergence, dynamic=False) if config.compile else divergence

    def step(progress: float) -> tuple[float, int]:
        length = stage(config.lengths, progress)
        return accumulate(
            lambda batch: loss_of(draft, target, batch[:, :-1]),
            data,
            length,
            config.batch_tokens,
            config.micro_tokens,
        )

    run(state, config.schedule, step=step, every=lambda state: state.save(data.state()), log=config.out / "log.jsonl")
    export(draft, config.out / "model")
    return draft


@torch.no_grad()
def sketch(target: Any, shape: Shape, seed: int) -> Any:
    """A fresh draft whose token embeddings are the target's, cut to their strongest principal components."""
    draft = build(shape, seed)
    wide = target.gpt_neox.embed_in.weight
    centred = wide - wide.mean(0)
    _, _, components = torch.linalg.svd(centred, full_matrices=False)
    narrow = centred @ components[: shape.hidden].T
    draft.gpt_neox.embed_in.weight.copy_(narrow * (wide.std() / narrow.std()))
    return draft


def divergence(draft: Any, target: Any, tokens: Tensor) -> Tensor:
    """Mean KL(target || draft) in nats over the next-token distributions at all positions of `[B, T]` ids."""
    with torch.no_grad():
        wanted = logits(target, tokens).float().log_softmax(-1)
    got = logits(draft, tokens).float().log_softmax(-1)
    return (wanted.exp() * (wanted - got)).sum(-1).mean()
